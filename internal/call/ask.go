package call

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/approval"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/environ"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/steady"
	"github.com/toold/toold/internal/store"
)

// errWaits says that the daemon leaves while a call waits for its approval: the
// next one takes both up again.
var errWaits = errors.New("the call waits for its approval")

// asking is a call that is judged, and perhaps waits for somebody's answer.
type asking struct {
	*steps
	c *Call
}

// permit ends step 6: it tells how the call was judged and lets it pass, or says
// why not. What the rules ask about waits here, without a slot and without a
// lock, until somebody has answered.
func (a asking) permit(j *judge.Judgement) error {
	a.c.approved = ""
	if a.c.probe {
		j.Verdict = policy.Verdict{Action: policy.Allow, Rule: judge.RuleProbe, Reason: "a probe of the daemon's own"}
	}
	if a.c.of != nil && j.Verdict.Action == policy.Ask && covered(a.c.of, j.Verdict.Pending) {
		j.Verdict = policy.Verdict{Action: policy.Allow, Rule: "call " + a.c.of.id, Reason: "it may change the file"}
	}
	if j.Loop != nil {
		action := j.Each[len(j.Each)-1].Action
		a.daemon.observe(func(o Observer) { o.DoomLoop(j.Inv.Tool.Name, j.Loop.Period, action) })
	}
	a.c.judged(j.Verdict, "")
	err := a.decided(j.Decision(a.c.by, a.c.snapshot()))
	switch asked := a.c.asked; {
	case asked != nil:
		a.c.asked = nil
		return a.askedBefore(j, asked)
	case j.Verdict.Action == policy.Allow, err != nil && j.Verdict.Action == policy.Ask:
		return err
	case j.Verdict.Action == policy.Ask:
		return a.ask(j)
	}
	if err != nil {
		a.log.Error("record a denial", "call", a.c.id, "error", err)
	}
	return j.Denied()
}

// covered reports whether all that is asked about are files that the call has changed.
func covered(of *Call, asked []policy.Request) bool {
	return !slices.ContainsFunc(asked, func(r policy.Request) bool { return !slices.Contains(of.writes, r.Path) })
}

// ask makes a pending approval for the whole call and waits for its answer.
func (a asking) ask(j *judge.Judgement) error {
	p := newPending(a.c, j, a.approvalRow(j))
	if err := a.daemon.Approvals.Add(p); err != nil {
		return err
	}
	if err := a.store(&p.Row); err != nil {
		a.daemon.Approvals.Drop(p)
		return fmt.Errorf("store an approval: %w", err)
	}
	return a.await(p)
}

// store writes that an approval is pending. Its tenant has what it takes.
func (a asking) store(row *store.Approval) error {
	takes := row.Takes()
	if err := a.daemon.Quota.TakeRoom(a.c.ctx, a.tenant, takes); err != nil {
		return err
	}
	asked := a.c.bare(client.EventApprovalAsked, &row.Approval)
	err := a.c.flush() // the call first: an approval is of something
	if err == nil {
		err = a.daemon.Store.Write(func(tx *store.Tx) error {
			tx.AddEvent(asked)
			return tx.InsertApproval(row)
		})
	}
	if err != nil {
		a.tenant.Kept.Add(-takes)
	}
	return err
}

// askedBefore goes on with an approval that an earlier daemon asked for.
func (a asking) askedBefore(j *judge.Judgement, row *store.Approval) error {
	p := newPending(a.c, j, *row)
	same := bytes.Equal(row.State, stateOf(a.c, j))
	if row.Reply != "" { // that daemon died between the answer and the call
		r := approval.Reply{How: row.Reply, By: row.By, Message: row.Message}
		if !same && r.Allows() {
			r = approval.Reply{How: approval.Stale} // it may be another input, by a hook
		}
		return a.replied(p, r)
	}
	if !same {
		r := approval.Reply{How: approval.Stale}
		if err := a.daemon.Approvals.Settle(p, r); err != nil {
			return err
		}
		return a.replied(p, r)
	}
	p.Rejudge() // the rules may be others
	if err := a.daemon.Approvals.Add(p); err != nil {
		return err
	}
	return a.await(p)
}

func newPending(c *Call, j *judge.Judgement, row store.Approval) *approval.Pending {
	row.SelfApprove, row.SelfOnce = c.at.daemon.Approvals.Config().SelfApprove, approval.AtTerminal(&row)
	p := approval.NewPending(row, j, c.stream.TellApart, c.done)
	p.Unreadable = func() string { return c.unreadable(j) }
	return p
}

// unreadable says why the session may not see what a change makes of its files; "" where it may.
func (c *Call) unreadable(j *judge.Judgement) string {
	if j.Prep == nil || j.Inv.Tool.Command {
		return ""
	}
	var files []string
	for i := range j.Prep.Targets {
		if j.Prep.Targets[i].Write {
			files = append(files, j.Prep.Targets[i].Path)
		}
	}
	if files == nil && j.Prep.Diff == "" {
		return ""
	}
	if read := c.at.mayReadAll(c.profile, files); read.Action != policy.Allow {
		return judge.NotReadable(&read)
	}
	return ""
}

// await tells that the call waits, and waits.
func (a asking) await(p *approval.Pending) error {
	a.c.waiting.Store(true)
	defer a.c.waiting.Store(false)
	a.c.judged(policy.Verdict{Action: policy.Ask, Rule: p.Judgement.Verdict.Rule}, p.Row.ID)
	if a.judge.Rules(a.c.profile) != p.Judgement.Rules {
		p.Rejudge()
	}
	r, err := a.answer(a.c.ctx, p)
	switch {
	case err == nil:
		return a.replied(p, r)
	case errors.Is(err, ErrLeaving):
		a.daemon.Approvals.Drop(p)
		return errWaits
	case a.c.ctx.Err() != nil:
		a.gone(p)
	}
	return err
}

// answer has somebody asked, and waits for the answer until ctx ends.
func (a asking) answer(ctx context.Context, p *approval.Pending) (approval.Reply, error) {
	// Before anybody can answer it: who counts must not hear of its end first.
	a.daemon.observe(func(o Observer) { o.ApprovalAsked(&p.Row.Approval) })
	p.Told()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(a.daemon.Approvals.Config().Command) > 0 {
		a.work.Go("approval for "+a.c.id, func() { a.daemon.Approvals.Ask(ctx, p) })
	}
	return a.daemon.Approvals.Await(ctx, p, func() approval.Reply { return a.judgedAgain(p) })
}

// gone ends an approval together with what it was asked for.
func (a asking) gone(p *approval.Pending) {
	if err := a.daemon.Approvals.Settle(p, approval.Reply{How: approval.Gone}); err != nil && !errors.Is(err, approval.ErrAnswered) {
		a.daemon.Approvals.Drop(p)
		a.log.Error("end an approval", "approval", p.Row.ID, "error", err)
	}
}

// judgedAgain judges a pending call by the rules of this moment; the zero reply
// says that they still ask.
func (a asking) judgedAgain(p *approval.Pending) approval.Reply {
	if why := a.judge.Rules(a.c.profile).Unchosen(a.c.def); why != "" {
		return approval.Reply{How: approval.Stale, By: approval.ByRules, Message: why}
	}
	j := *p.Judgement
	a.judge.Weigh(&j)
	switch j.Verdict.Action {
	case policy.Ask:
		return approval.Reply{}
	case policy.Allow:
		return approval.Reply{How: approval.Always, By: approval.ByRules, Message: "allowed now by " + j.Verdict.Rule}
	}
	return approval.Reply{How: approval.Reject, By: approval.ByRules, Message: j.Denied().Err.Error()}
}

// replied lets the call pass as its approval has ended, or says why not.
func (a asking) replied(p *approval.Pending, r approval.Reply) error {
	if again := a.judgedAgain(p); r.Allows() && again.How == approval.Stale {
		r = again
	}
	d, refused := a.decision(p, r, cmp.Or(r.Message, p.Judgement.Verdict.Reason))
	a.c.judged(d.Verdict, p.Row.ID)
	err := a.decided(d)
	switch {
	case refused != nil:
		if err != nil {
			a.log.Error("record a refusal", "call", a.c.id, "error", err)
		}
		return refused
	case err != nil:
		return err
	}
	return a.unchanged(p)
}

// decision is what an answer makes of what was asked about. It allows it with this reason, or
// refused says why not.
func (a asking) decision(p *approval.Pending, r approval.Reply, reason string) (d *judge.Decision, refused *fault.Error) {
	j := *p.Judgement
	if r.Allows() {
		// A rule that denies is final, also one that has come since.
		if a.judge.Weigh(&j); j.Verdict.Action == policy.Deny {
			r = approval.Reply{How: approval.Reject, By: approval.ByRules, Message: j.Denied().Err.Error()}
		}
	}
	d = j.Decision(a.c.by, a.c.snapshot())
	d.Verdict, d.Approver, d.ApprovalID = p.Judgement.Verdict, r.By, p.Row.ID
	d.Verdict.Action, d.Verdict.Pending, d.Verdict.Reason = policy.Allow, nil, reason
	if refused = a.refusal(p, r); refused != nil {
		d.Verdict.Action, d.Verdict.Reason = policy.Deny, refused.Err.Error()
	}
	return d, refused
}

// refusal is the error of a call that was not approved; nil when it was.
func (a asking) refusal(p *approval.Pending, r approval.Reply) *fault.Error {
	kind, what, next := fault.Denied, "", "do something else, or ask the user what they want"
	switch r.How {
	case approval.Once, approval.Always:
		return nil
	case approval.Reject:
		what = rejected(p, r)
	case approval.Timeout:
		kind = fault.Unanswered
		what = fmt.Sprintf("denied: nobody answered approval %s for %s within %s", p.Row.ID, p.Judgement.What(), p.Row.Expires.Sub(p.Row.Created).Round(time.Second))
		next = "go on without it, or try again when somebody is there to answer: toolctl approvals watch"
	case approval.Stale:
		if r.Message != "" {
			return fault.Stale.Errorf("the tools of the session have changed while the call waited: it has no %s any more; %s", p.Judgement.Inv.Tool.Name, r.Message).
				Next("use one of the tools that it has now")
		}
		return staleError(p.Row.ID)
	default:
		kind, what = fault.Aborted, "the call ended before its approval was answered"
	}
	if p.Judgement.Loop != nil && kind == fault.Denied && p.Judgement.OnlyLoop() {
		kind = fault.Loop
		what += "; " + p.Judgement.Loop.Describe(p.Judgement.Inv.Tool.Name)
	}
	return kind.Errorf("%s", what).Next(next)
}

// rejected says who has rejected a call, and what they say.
func rejected(p *approval.Pending, r approval.Reply) string {
	if r.By == approval.ByRules {
		return r.Message
	}
	what := fmt.Sprintf("denied: %s was rejected", p.Judgement.What())
	if r.By != "" {
		what += " by " + r.By
	}
	if r.Message != "" {
		what += ": " + r.Message
	}
	return what
}

// unchanged prepares an approved call once more: it is allowed for what the
// approver was shown, and for nothing that has come into its place since.
func (a asking) unchanged(p *approval.Pending) error {
	a.c.approved = p.Row.ID
	if p.Judgement.Prep == nil {
		return nil
	}
	now := *p.Judgement
	var err error
	if now.Prep, err = a.prepare(a.c, now.Inv, now.Access); err != nil {
		return err
	}
	if !bytes.Equal(p.Row.State, stateOf(a.c, &now)) {
		return staleError(p.Row.ID)
	}
	return nil
}

// stateOf is a hash of everything that an approval is bound to: the tenant, the
// session and the call, its input and environment, and what these lead to now.
func stateOf(c *Call, j *judge.Judgement) []byte {
	h := sha256.New()
	part := func(b []byte) {
		_, _ = fmt.Fprintf(h, "%d:", len(b)) // a hash takes everything
		_, _ = h.Write(b)
	}
	for _, v := range []string{c.at.tenant.Name, c.at.id, c.id, j.Inv.Tool.Name, c.profile} {
		part([]byte(v))
	}
	part(j.Inv.JSON)
	for _, v := range environ.List(c.req.Env) {
		part([]byte(v))
	}
	if j.Prep == nil {
		return h.Sum(nil)
	}
	for _, t := range j.Prep.Targets {
		part([]byte(t.Asked))
		part([]byte(t.Path))
		part([]byte(t.SHA256))
		part(fmt.Appendf(nil, "%t %t", t.Write, t.Write && t.Exists))
	}
	part([]byte(j.Prep.Diff))
	part(j.Prep.State)
	return h.Sum(nil)
}

// startOfPerson is the start of the process that made the call for an admin, who may be at its terminal;
// 0 where an agent makes it.
func (c *Call) startOfPerson() uint64 {
	if !c.by.Admin || c.by.Session != "" || c.row.MessageID != "" || c.row.Agent != "" || c.row.Model != "" {
		return 0
	}
	maker, err := auth.ProcessOf(c.by.PID)
	if err != nil {
		return 0 // it has ended, or is of another namespace: others answer
	}
	return maker.Start
}

// approvalRow makes the row of an approval.
func (a asking) approvalRow(j *judge.Judgement) store.Approval {
	now := time.Now().UTC().Truncate(time.Millisecond)
	sum := sha256.Sum256(j.Inv.JSON)
	row := store.Approval{
		Approval: client.Approval{
			ID: a.daemon.Store.NewID("apr_"), Tenant: a.tenant.Name, SessionID: a.id, CallID: a.c.id,
			Profile: a.c.profile, Tool: j.Inv.Tool.Name, SHA256: hex.EncodeToString(sum[:]),
			Created: now, Expires: a.daemon.Approvals.Config().Expires(now),
		},
		UID: a.c.by.UID, GID: a.c.by.GID, PID: a.c.by.PID, Token: a.c.by.Session,
		Start: a.c.startOfPerson(), State: stateOf(a.c, j), TimeoutMillis: a.c.req.TimeoutMillis, Split: a.c.stream.Split, Hidden: a.c.hidden,
	}
	row.Until = steady.Now().In(row.Expires.Sub(row.Created))
	for k := range a.c.req.Env {
		row.Env = append(row.Env, k)
	}
	approval.Describe(&row, j)
	return row
}
