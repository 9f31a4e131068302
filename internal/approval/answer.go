package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/steady"
	"github.com/toold/toold/internal/store"
)

// maxShown is how much of what a client sent a message quotes, in bytes.
const maxShown = 80

// maxTTL bounds how long something may be saved for.
const maxTTL = 10 * 365 * 24 * time.Hour

// MaxMessage bounds what an approver may say, in bytes.
const MaxMessage = 4 << 10

// List gives the approvals that are pending and p may see, oldest first: those of one
// session, "" for all, after the id after, and no more than limit.
func (d *Desk) List(p auth.Principal, session, after string, limit int) (client.List[client.Approval], error) {
	list := client.List[client.Approval]{Items: []client.Approval{}}
	if after != "" && !store.ValidID("apr_", after) {
		return list, fault.Invalid.Errorf("after %q is not the id of an approval", plain.Cut(after, maxShown))
	}
	all := d.of(func(a *Pending) bool {
		return a.told.Load() && p.Sees(a.Row.Tenant, a.Row.SessionID) && (session == "" || a.Row.SessionID == session) && a.Row.ID > after
	})
	slices.SortFunc(all, func(a, b *Pending) int { return strings.Compare(a.Row.ID, b.Row.ID) })
	for i, a := range all {
		if i == limit {
			list.Next = list.Items[limit-1].ID
			break
		}
		v := *a.Shown(p.Session != "")
		v.SelfOnce = v.SelfOnce && AtTerminal(&a.Row) // who asked may have left
		list.Items = append(list.Items, v)
	}
	return list, nil
}

// Approver refuses the holder of a session's token, who is never an approver,
// unless sessions may approve their own calls.
func (d *Desk) Approver(p auth.Principal) error {
	if d.Config().SelfApprove {
		return nil
	}
	return p.Whole()
}

// Answer answers a pending approval for p. Errors that are no *fault.Error are of the
// store.
func (d *Desk) Answer(ctx context.Context, p auth.Principal, id string, a client.ApprovalAnswer) (*client.Approval, error) {
	if err := d.Approver(p); err != nil {
		return nil, err
	}
	w := d.get(p.Tenant, id)
	if w == nil || p.Session != "" && w.Row.SessionID != p.Session {
		return nil, d.notPending(ctx, p, id)
	}
	by, err := d.mayAnswer(p, w, a.Answer)
	if err != nil {
		return nil, err
	}
	v, err := d.answer(w, by, a)
	if errors.Is(err, ErrAnswered) {
		return nil, d.notPending(ctx, p, id)
	}
	return v, err
}

// notPending says why an approval cannot be answered.
func (d *Desk) notPending(ctx context.Context, p auth.Principal, id string) error {
	none := fault.NotFound.Errorf("there is no approval %q", plain.Cut(id, maxShown)).
		Next("toolctl approvals list shows the pending ones")
	if !store.ValidID("apr_", id) {
		return none
	}
	row, err := d.Store.Approval(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return none
	case err != nil:
		return fmt.Errorf("read approval %s: %w", id, err)
	case !p.Sees(row.Tenant, row.SessionID):
		return none
	}
	if row.Reply == "" { // it is not told yet, or not again since the daemon was restarted
		return fault.Overloaded.Errorf("approval %s cannot be answered yet", id).Next("try again in a moment")
	}
	by := ""
	if row.By != "" {
		by = " by " + row.By
	}
	return fault.Conflict.Errorf("approval %s is not pending any more: it ended with %s%s", id, row.Reply, by).
		Next("the call " + row.CallID + " shows what came of it")
}

// BySelf is who has answered for a call of their own at the terminal where they made it.
const BySelf = "self at terminal"

// AtTerminal reports whether the process that made the call may answer, since an admin can be asked at its
// terminal: it is there still, with what is typed there for it. A client's own word for it does not count.
func AtTerminal(row *store.Approval) bool {
	if row.Start == 0 {
		return false // most are of agents, and nothing is read for them
	}
	maker, err := auth.ProcessOf(row.PID)
	return err == nil && maker.Start == row.Start && maker.Terminal
}

// mayAnswer says as whom p answers. It refuses the credential that made the call.
func (d *Desk) mayAnswer(p auth.Principal, w *Pending, answer client.Answer) (by string, refused error) {
	maker := auth.Principal{UID: w.Row.UID, Session: w.Row.Token}
	if d.Config().SelfApprove || p.Credential() != maker.Credential() {
		return p.Credential(), nil
	}
	e := fault.Forbidden.Errorf("approval %s is for a call that you made yourself (%s)", w.Row.ID, maker.Credential())
	switch {
	case !p.Admin || p.PID != w.Row.PID || !AtTerminal(&w.Row):
		return "", e.Next("another user must answer it; or have the agent use a session token, or set self_approve in [approvals]")
	case answer == client.AnswerAlways:
		return "", e.Next("answer once; for always another user must answer it, or set self_approve in [approvals], or write a rule")
	}
	return BySelf, nil
}

// answer ends a pending approval as somebody has decided.
func (d *Desk) answer(w *Pending, by string, a client.ApprovalAnswer) (*client.Approval, error) {
	r, err := d.replyOf(w, by, a)
	if err != nil {
		return nil, err
	}
	if err := d.Settle(w, r); err != nil {
		return nil, err
	}
	switch {
	case r.How == Always:
		d.Rejudge(w.Row.Tenant)
	case r.How == Reject && r.Message == "":
		d.rejectOthers(w, by)
	}
	v := w.Row.Approval
	v.Reply = r.told(v.ID)
	return &v, nil
}

// rejectOthers rejects the other pending approvals of the session: whoever
// rejects without a word wants it to stop. One that is only being asked for is
// none of those that they have seen.
func (d *Desk) rejectOthers(w *Pending, by string) {
	for _, o := range d.of(func(o *Pending) bool { return o.Row.SessionID == w.Row.SessionID && o.told.Load() }) {
		err := d.Settle(o, Reply{How: Reject, By: by, Message: "another call of the session was rejected"})
		if err != nil && !errors.Is(err, ErrAnswered) {
			d.Log.Error("reject an approval", "approval", o.Row.ID, "error", err)
		}
	}
}

// replyOf checks an answer.
func (d *Desk) replyOf(w *Pending, by string, a client.ApprovalAnswer) (Reply, error) {
	r := Reply{How: string(a.Answer), By: by, Message: a.Message}
	switch {
	case a.SHA256 != "" && a.SHA256 != w.Row.SHA256:
		return r, fault.In(fault.Conflict.Errorf("the answer is for an input with SHA-256 %s; that of approval %s is %s", plain.Cut(a.SHA256, maxShown), w.Row.ID, w.Row.SHA256).
			Next("look at the approval again"), "sha256")
	case len(a.Message) > MaxMessage:
		return r, fault.In(fault.Invalid.Errorf("message has %d bytes; at most %d", len(a.Message), MaxMessage), "message")
	case a.Message != "" && a.Answer != client.AnswerReject:
		return r, fault.In(fault.Invalid.Errorf("message is for the answer reject alone"), "message")
	case a.Answer != client.AnswerAlways && (a.Scope != "" || a.Expires != ""):
		field := "scope"
		if a.Scope == "" {
			field = "expires"
		}
		return r, fault.In(fault.Invalid.Errorf("scope and expires are for the answer always alone"), field)
	}
	switch a.Answer {
	case client.AnswerOnce:
		return r, nil
	case client.AnswerReject:
		r.Message = strings.ToValidUTF8(r.Message, "\uFFFD")
		return r, nil
	case client.AnswerAlways:
		var err error
		r.saved, err = d.savedBy(w, by, a)
		return r, err
	}
	return r, fault.In(fault.Invalid.Errorf("answer %q: use once, always or reject", plain.Cut(string(a.Answer), maxShown)), "answer")
}

// savedBy makes the rules that an answer of always saves: one for each request of
// the call for which there is a pattern.
func (d *Desk) savedBy(w *Pending, by string, a client.ApprovalAnswer) ([]*store.SavedApproval, error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	v := store.SavedApproval{SavedApproval: client.SavedApproval{Tenant: w.Row.Tenant, Scope: a.Scope, By: by, Created: now}}
	switch a.Scope {
	case "", client.ScopeSession:
		v.Scope, v.SessionID = client.ScopeSession, w.Row.SessionID
	case client.ScopeProfile:
		v.Profile = w.Row.Profile
	case client.ScopeTenant:
	default:
		return nil, fault.In(fault.Invalid.Errorf("scope %q: use session, profile or tenant", plain.Cut(string(a.Scope), maxShown)), "scope")
	}
	if a.Expires != "" {
		d, err := client.ParseDuration(a.Expires)
		if err != nil {
			return nil, fault.In(fault.Invalid.Errorf("expires: %s", plain.Cut(err.Error(), maxShown)), "expires")
		}
		if d <= 0 || time.Duration(d) > maxTTL {
			return nil, fault.In(fault.Invalid.Errorf("expires %q: give a time such as 12h, up to %s", plain.Cut(a.Expires, maxShown), client.Duration(maxTTL)), "expires")
		}
		v.Expires, v.Until = new(now.Add(time.Duration(d))), steady.Now().In(time.Duration(d))
	}
	asked := shownOf(w.Judgement)
	if n := len(asked); n > MaxShownRequests {
		return nil, fault.In(fault.Invalid.Errorf("approval %s asks for %d things and shows %d of them: what is not shown is not saved", w.Row.ID, n, MaxShownRequests).
			Next("answer once, or write a rule"), "answer")
	}
	var all []*store.SavedApproval
	known := make(map[[2]string]bool)
	for _, r := range asked {
		key := [2]string{r.Request.Permission, r.Request.Save}
		if r.Request.Save == "" || known[key] {
			continue
		}
		known[key] = true
		one := v
		one.ID = fmt.Sprintf("%s.%d", w.Row.ID, len(all)+1)
		one.Permission, one.Pattern, one.Rule = r.Request.Permission, r.Request.Save, r.Rule
		all = append(all, &one)
	}
	if len(all) == 0 {
		return nil, fault.In(fault.Invalid.Errorf("nothing of approval %s can be saved: no pattern would allow this and nothing else", w.Row.ID).
			Next("answer once, or write a rule"), "answer")
	}
	if n := len(d.savedOf(w.Row.Tenant, now)); n+len(all) > maxSavedTenant {
		return nil, fault.Quota.Errorf("tenant %s has %d saved approvals; at most %d", w.Row.Tenant, n, maxSavedTenant).
			Next("revoke some (toolctl approvals saved rm), or write a rule; or answer once")
	}
	return all, nil
}

// Saved lists what approvers of the tenants that p asks about have saved: for one session
// alone, "" for all, after the id after, and no more than limit.
func (d *Desk) Saved(p auth.Principal, session, after string, limit int) client.List[client.SavedApproval] {
	list := client.List[client.SavedApproval]{Items: []client.SavedApproval{}}
	var all []*store.SavedApproval
	for _, tenant := range d.savers(p) {
		all = append(all, d.savedOf(tenant, time.Now())...)
	}
	slices.SortFunc(all, func(a, b *store.SavedApproval) int { return strings.Compare(a.ID, b.ID) })
	for _, v := range all {
		switch {
		case v.ID <= after || session != "" && v.SessionID != session:
		case len(list.Items) == limit:
			list.Next = list.Items[limit-1].ID
			return list
		default:
			list.Items = append(list.Items, v.SavedApproval)
		}
	}
	return list
}

// Revoke removes what was saved under id.
func (d *Desk) Revoke(p auth.Principal, id string) error {
	if err := p.Whole(); err != nil {
		return err
	}
	all := d.savedOf(p.Tenant, time.Now())
	if !slices.ContainsFunc(all, func(v *store.SavedApproval) bool { return v.ID == id }) {
		return fault.NotFound.Errorf("there is no saved approval %q", plain.Cut(id, maxShown)).
			Next("toolctl approvals saved list shows your saved approvals")
	}
	if err := d.Store.Write(func(tx *store.Tx) error { return tx.DropSaved(id) }); err != nil {
		return fmt.Errorf("revoke a saved approval: %w", err)
	}
	d.unsave(p.Tenant, func(v *store.SavedApproval) bool { return v.ID == id })
	return nil
}
