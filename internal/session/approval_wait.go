package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
)

// approvalTime is how long an approval may stay pending where the configuration
// does not say.
const approvalTime = 10 * time.Minute

// errWaits says that the daemon leaves while a call waits for its approval: the
// next one takes both up again.
var errWaits = errors.New("the call waits for its approval")

// permit ends step 6: it tells how the call was judged and lets it pass, or says
// why not. What the rules ask about waits here, without a slot and without a
// lock, until somebody has answered.
func (s *Session) permit(c *call, j *judge.Judgement) error {
	c.approved = ""
	if c.probe {
		j.Verdict = policy.Verdict{Action: policy.Allow, Rule: judge.RuleProbe, Reason: "a probe of the daemon's own"}
	}
	if j.Loop != nil {
		action := j.Each[len(j.Each)-1].Action
		s.m.observe(func(o Observer) { o.DoomLoop(j.Inv.Tool.Name, j.Loop.Period, action) })
	}
	c.judged(j.Verdict.Action, j.Verdict.Rule, "")
	err := s.decided(j.Decision(c.by, c.snapshot()))
	switch asked := c.asked; {
	case asked != nil:
		c.asked = nil
		return s.askedBefore(c, j, asked)
	case j.Verdict.Action == policy.Allow, err != nil && j.Verdict.Action == policy.Ask:
		return err
	case j.Verdict.Action == policy.Ask:
		return s.ask(c, j)
	}
	if err != nil {
		s.log.Error("record a denial", "call", c.id, "error", err)
	}
	return j.Denied()
}

// ask makes a pending approval for the whole call and waits for its answer.
func (s *Session) ask(c *call, j *judge.Judgement) error {
	p := newPending(c, j, s.approvalRow(c, j))
	if err := s.m.approvals.add(p); err != nil {
		return err
	}
	asked := s.event(client.EventApprovalAsked, &p.row.Approval)
	asked.Call = c.id
	err := c.flush() // the call first: an approval is of something
	if err == nil {
		err = s.m.store.Write(func(tx *store.Tx) error {
			tx.AddEvent(asked)
			return tx.InsertApproval(&p.row)
		})
	}
	if err != nil {
		s.m.approvals.drop(p)
		return fmt.Errorf("store an approval: %w", err)
	}
	return s.await(c, p)
}

// askedBefore goes on with an approval that an earlier daemon asked for.
func (s *Session) askedBefore(c *call, j *judge.Judgement, row *store.Approval) error {
	p := newPending(c, j, *row)
	same := bytes.Equal(row.State, stateOf(c, j))
	if row.Reply != "" { // that daemon died between the answer and the call
		r := reply{how: row.Reply, by: row.By, message: row.Message}
		if !same && (r.how == replyOnce || r.how == replyAlways) {
			r = reply{how: replyStale} // it may be another input, by a hook
		}
		return s.replied(c, p, r)
	}
	if !same {
		if err := s.m.approvals.settle(p, reply{how: replyStale}); err != nil {
			return err
		}
		return s.replied(c, p, <-p.reply)
	}
	p.again <- struct{}{} // the rules may be others
	if err := s.m.approvals.add(p); err != nil {
		return err
	}
	return s.await(c, p)
}

func newPending(c *call, j *judge.Judgement, row store.Approval) *pending {
	row.SelfApprove = c.s.m.settings.Load().Approvals.SelfApprove
	return &pending{c: c, j: j, row: row, reply: make(chan reply, 1), again: make(chan struct{}, 1)}
}

// await tells that the call waits, and waits.
func (s *Session) await(c *call, p *pending) error {
	c.waiting.Store(true)
	defer c.waiting.Store(false)
	c.judged(policy.Ask, p.j.Verdict.Rule, p.row.ID)
	// Before anybody can answer it: who counts must not hear of its end first.
	s.m.observe(func(o Observer) { o.ApprovalAsked(&p.row.Approval) })
	p.told.Store(true)
	c.tell(client.EventApprovalAsked, &p.row.Approval)
	if s.judge.Rules(c.profile) != p.j.Rules {
		select {
		case p.again <- struct{}{}:
		default:
		}
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	if len(s.m.settings.Load().Approvals.Command) > 0 {
		s.work.Go(func() { s.askProgram(ctx, p) })
	}
	r, err := s.answerTo(c, p)
	if err != nil {
		return err
	}
	return s.replied(c, p, r)
}

// answerTo waits until the approval has ended, in whatever way.
func (s *Session) answerTo(c *call, p *pending) (reply, error) {
	deadline := time.NewTimer(time.Until(p.row.Expires))
	defer deadline.Stop()
	for {
		var r reply
		select {
		case r := <-p.reply:
			return r, nil
		case <-p.again:
			if r = s.judgedAgain(c, p); r.how == "" {
				continue
			}
		case <-deadline.C:
			r = reply{how: replyTimeout}
		case <-c.ctx.Done():
			cause := context.Cause(c.ctx)
			if errors.Is(cause, errLeaving) {
				s.m.approvals.drop(p)
				return r, errWaits
			}
			if err := s.m.approvals.settle(p, reply{how: replyGone}); err != nil && !errors.Is(err, errAnswered) {
				s.m.approvals.drop(p)
				s.log.Error("end an approval", "approval", p.row.ID, "error", err)
			}
			return r, cause
		}
		if err := s.m.approvals.settle(p, r); err != nil && !errors.Is(err, errAnswered) {
			s.m.approvals.drop(p)
			return r, err
		}
	}
}

// judgedAgain judges a pending call by the rules of this moment; the zero reply
// says that they still ask.
func (s *Session) judgedAgain(c *call, p *pending) reply {
	j := *p.j
	s.judge.Weigh(&j)
	switch j.Verdict.Action {
	case policy.Ask:
		return reply{}
	case policy.Allow:
		return reply{how: replyAlways, by: byRules, message: "allowed now by " + j.Verdict.Rule}
	}
	return reply{how: replyReject, by: byRules, message: j.Denied().Message}
}

// replied lets the call pass as its approval has ended, or says why not.
func (s *Session) replied(c *call, p *pending, r reply) error {
	j := *p.j
	if r.how == replyOnce || r.how == replyAlways {
		// A rule that denies is final, also one that has come since.
		if s.judge.Weigh(&j); j.Verdict.Action == policy.Deny {
			r = reply{how: replyReject, by: byRules, message: j.Denied().Message}
		}
	}
	d := j.Decision(c.by, c.snapshot())
	d.Verdict = p.j.Verdict
	d.Verdict.Pending, d.Verdict.Action = nil, policy.Deny
	d.Approver, d.ApprovalID = r.by, p.row.ID
	refused := s.refusal(p, r)
	if refused == nil {
		d.Verdict.Action = policy.Allow
		d.Verdict.Reason = cmp.Or(r.message, d.Verdict.Reason)
	} else {
		d.Verdict.Reason = refused.Message
	}
	c.judged(d.Verdict.Action, d.Verdict.Rule, p.row.ID)
	err := s.decided(d)
	switch {
	case refused != nil:
		if err != nil {
			s.log.Error("record a refusal", "call", c.id, "error", err)
		}
		return refused
	case err != nil:
		return err
	}
	return s.unchanged(c, p)
}

// refusal is the error of a call that was not approved; nil when it was.
func (s *Session) refusal(p *pending, r reply) *client.Error {
	e := &client.Error{Code: client.CodeDenied, Hint: "do something else, or ask the user what they want"}
	switch r.how {
	case replyOnce, replyAlways:
		return nil
	case replyReject:
		e.Message = fmt.Sprintf("denied: %s was rejected", p.j.What())
		if r.by != "" && r.by != byRules {
			e.Message += " by " + r.by
		}
		if r.by == byRules {
			e.Message = r.message
		} else if r.message != "" {
			e.Message += ": " + r.message
		}
	case replyTimeout:
		e.Code = client.CodeApprovalTimeout
		e.Message = fmt.Sprintf("denied: nobody answered approval %s for %s within %s", p.row.ID, p.j.What(), p.row.Expires.Sub(p.row.Created).Round(time.Second))
		e.Hint = "go on without it, or try again when somebody is there to answer: toolctl approvals watch"
	case replyStale:
		return staleError(p.row.ID)
	default:
		e.Code, e.Message = client.CodeAborted, "the call ended before its approval was answered"
	}
	if p.j.Loop != nil && e.Code == client.CodeDenied && p.j.OnlyLoop() {
		e.Code = client.CodeDoomLoop
		e.Message += "; " + p.j.Loop.Describe(p.j.Inv.Tool.Name)
	}
	return e
}

func staleError(id string) *client.Error {
	return &client.Error{
		Code:    client.CodeStaleApproval,
		Message: fmt.Sprintf("what approval %s was asked for has changed since: a path leads elsewhere, or a file has other content", id),
		Hint:    "look at the file again and make the call again; it will be asked for again",
	}
}

// unchanged prepares an approved call once more: it is allowed for what the
// approver was shown, and for nothing that has come into its place since.
func (s *Session) unchanged(c *call, p *pending) error {
	c.approved = p.row.ID
	if p.j.Prep == nil {
		return nil
	}
	now := *p.j
	var err error
	if now.Prep, err = s.prepare(c, now.Inv, now.Access); err != nil {
		return err
	}
	if !bytes.Equal(p.row.State, stateOf(c, &now)) {
		return staleError(p.row.ID)
	}
	return nil
}

// stateOf is a hash of everything that an approval is bound to: the tenant, the
// session and the call, its input and environment, and what these lead to now.
func stateOf(c *call, j *judge.Judgement) []byte {
	h := sha256.New()
	part := func(b []byte) {
		_, _ = fmt.Fprintf(h, "%d:", len(b)) // a hash takes everything
		_, _ = h.Write(b)
	}
	for _, v := range []string{c.s.tenant.name, c.s.id, c.id, j.Inv.Tool.Name, c.profile} {
		part([]byte(v))
	}
	part(j.Inv.JSON)
	for _, v := range envList(c.req.Env) {
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

// approvalRow makes the row of an approval.
func (s *Session) approvalRow(c *call, j *judge.Judgement) store.Approval {
	now := time.Now().UTC().Truncate(time.Millisecond)
	sum := sha256.Sum256(j.Inv.JSON)
	row := store.Approval{
		Approval: client.Approval{
			ID: s.m.store.NewID("apr_"), Tenant: s.tenant.name, SessionID: s.id, CallID: c.id,
			Profile: c.profile, Tool: j.Inv.Tool.Name, SHA256: hex.EncodeToString(sum[:]),
			Created: now, Expires: now.Add(cmp.Or(s.m.settings.Load().Approvals.Timeout, approvalTime)),
		},
		UID: c.by.UID, GID: c.by.GID, PID: c.by.PID, Token: c.by.Session,
		State: stateOf(c, j), TimeoutMillis: c.req.TimeoutMillis, Split: c.split, Hidden: c.hidden,
	}
	for k := range c.req.Env {
		row.Env = append(row.Env, k)
	}
	describe(&row, j)
	return row
}

// askProgram has the configured program answer. Whatever goes wrong is a
// rejection.
func (s *Session) askProgram(ctx context.Context, p *pending) {
	const by = "command"
	question, err := json.Marshal(&p.row.Approval)
	if err != nil {
		s.log.Error("ask the approval program", "approval", p.row.ID, "error", err)
		return // only our own struct comes here; the deadline ends it
	}
	select {
	case s.m.approvals.programs <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-s.m.approvals.programs }()
	// It may take until the deadline, which ends the approval and this with it.
	out, err := hook.Run(ctx, s.m.settings.Load().Approvals.Command, question, time.Until(p.row.Expires)+time.Second)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		var a client.ApprovalAnswer
		if a, err = decodeAnswer(out); err == nil {
			_, err = s.m.answer(p, by, a)
		}
	}
	if err == nil || errors.Is(err, errAnswered) {
		return
	}
	s.log.Error("the approval program gave no answer: the call is rejected", "approval", p.row.ID, "error", err)
	_, err = s.m.answer(p, by, client.ApprovalAnswer{Answer: client.AnswerReject, Message: "the approval program failed"})
	if err != nil && !errors.Is(err, errAnswered) {
		s.log.Error("reject an approval", "approval", p.row.ID, "error", err)
	}
}

// decodeAnswer reads what the approval program said: one JSON object with no
// field that is not known.
func decodeAnswer(out []byte) (client.ApprovalAnswer, error) {
	var a client.ApprovalAnswer
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, fmt.Errorf("its answer is not the JSON expected: %w", err)
	}
	if len(bytes.TrimSpace(out[d.InputOffset():])) > 0 {
		return a, errors.New("its answer is more than one JSON value")
	}
	return a, nil
}
