package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/store"
)

// maxMessage bounds what an approver may say, in bytes.
const maxMessage = 4 << 10

// Approvals implements API: it lists those that are pending, oldest first.
func (m *Manager) Approvals(ctx context.Context, p auth.Principal, f ApprovalFilter) (client.List[client.Approval], error) {
	list := client.List[client.Approval]{Items: []client.Approval{}}
	if err := m.approver(p); err != nil {
		return list, err
	}
	if f.After != "" && !store.ValidID("apr_", f.After) {
		return list, invalidRequest("after %q is not the id of an approval", shown(f.After))
	}
	session, err := m.filterSession(ctx, p, f.Session)
	if err != nil {
		return list, err
	}
	all := m.approvals.of(func(a *pending) bool {
		return a.told.Load() && a.row.Tenant == p.Tenant && (session == "" || a.row.SessionID == session) && a.row.ID > f.After
	})
	slices.SortFunc(all, func(a, b *pending) int { return strings.Compare(a.row.ID, b.row.ID) })
	limit := listLimit(f.Limit)
	for i, a := range all {
		if i == limit {
			list.Next = list.Items[limit-1].ID
			break
		}
		list.Items = append(list.Items, a.row.Approval)
	}
	return list, nil
}

// filterSession gives the id of the session that a list is about, "" for all.
func (m *Manager) filterSession(ctx context.Context, p auth.Principal, idOrName string) (string, error) {
	if p.Session != "" {
		return p.Session, nil
	}
	if idOrName == "" {
		return "", nil
	}
	return m.sessionID(ctx, p, idOrName)
}

// approver refuses the holder of a session's token, who is never an approver,
// unless sessions may approve their own calls.
func (m *Manager) approver(p auth.Principal) error {
	if m.settings.Load().Approvals.SelfApprove {
		return nil
	}
	return p.Whole()
}

// Answer implements API.
func (m *Manager) Answer(ctx context.Context, p auth.Principal, id string, a client.ApprovalAnswer) (*client.Approval, error) {
	if err := m.approver(p); err != nil {
		return nil, err
	}
	w := m.approvals.get(p.Tenant, id)
	if w == nil || p.Session != "" && w.row.SessionID != p.Session {
		return nil, m.notPending(ctx, p, id)
	}
	if err := m.mayAnswer(p, w); err != nil {
		return nil, err
	}
	v, err := m.answer(w, p.Credential(), a)
	if errors.Is(err, errAnswered) {
		return nil, m.notPending(ctx, p, id)
	}
	if err != nil {
		return nil, m.internal("answer approval "+id, err)
	}
	return v, nil
}

// notPending says why an approval cannot be answered.
func (m *Manager) notPending(ctx context.Context, p auth.Principal, id string) error {
	none := &client.Error{
		Code:    client.CodeNotFound,
		Message: fmt.Sprintf("there is no approval %q", shown(id)),
		Hint:    "toolctl approvals list shows those that are pending",
	}
	if !store.ValidID("apr_", id) {
		return none
	}
	row, err := m.store.Approval(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return none
	case err != nil:
		return m.internal("read approval "+id, err)
	case !p.Sees(row.Tenant, row.SessionID):
		return none
	}
	if row.Reply == "" { // it is not told yet, or not again since the daemon was restarted
		return &client.Error{Code: client.CodeOverloaded, Message: "approval " + id + " cannot be answered yet", Hint: "try again in a moment"}
	}
	e := &client.Error{Code: client.CodeConflict, Message: "approval " + id + " is not pending any more", Hint: "the call " + row.CallID + " shows what came of it"}
	e.Message += ": it ended with " + row.Reply
	if row.By != "" {
		e.Message += " by " + row.By
	}
	return e
}

// mayAnswer refuses the credential that made the call.
func (m *Manager) mayAnswer(p auth.Principal, w *pending) error {
	if m.settings.Load().Approvals.SelfApprove {
		return nil
	}
	maker := auth.Principal{UID: w.row.UID, Session: w.row.Token}
	if p.Credential() != maker.Credential() {
		return nil
	}
	return &client.Error{
		Code:    client.CodeForbidden,
		Message: fmt.Sprintf("approval %s is for a call that you made yourself (%s)", w.row.ID, maker.Credential()),
		Hint:    "another user must answer it; or have the agent use a session token, or set self_approve in [approvals]",
	}
}

// answer ends a pending approval as somebody has decided.
func (m *Manager) answer(w *pending, by string, a client.ApprovalAnswer) (*client.Approval, error) {
	r, err := m.replyOf(w, by, a)
	if err != nil {
		return nil, err
	}
	if err := m.approvals.settle(w, r); err != nil {
		return nil, err
	}
	switch {
	case r.how == replyAlways:
		m.approvals.rejudge(w.row.Tenant)
	case r.how == replyReject && r.message == "":
		m.rejectOthers(w, by)
	}
	v := w.row.Approval
	v.Reply = &client.ApprovalReply{ID: v.ID, Answer: r.how, By: r.by, Message: r.message}
	return &v, nil
}

// rejectOthers rejects the other pending approvals of the session: whoever
// rejects without a word wants it to stop. One that is only being asked for is
// none of those that they have seen.
func (m *Manager) rejectOthers(w *pending, by string) {
	for _, o := range m.approvals.of(func(o *pending) bool { return o.c.s == w.c.s && o.told.Load() }) {
		err := m.approvals.settle(o, reply{how: replyReject, by: by, message: "another call of the session was rejected"})
		if err != nil && !errors.Is(err, errAnswered) {
			m.log.Error("reject an approval", "approval", o.row.ID, "error", err)
		}
	}
}

// replyOf checks an answer.
func (m *Manager) replyOf(w *pending, by string, a client.ApprovalAnswer) (reply, error) {
	r := reply{how: string(a.Answer), by: by, message: a.Message}
	switch {
	case a.SHA256 != "" && a.SHA256 != w.row.SHA256:
		return r, &client.Error{
			Code:    client.CodeConflict,
			Message: fmt.Sprintf("the answer is for an input with SHA-256 %s; that of approval %s is %s", shown(a.SHA256), w.row.ID, w.row.SHA256),
			Hint:    "look at the approval again",
		}
	case len(a.Message) > maxMessage:
		return r, invalidRequest("message has %d bytes; at most %d", len(a.Message), maxMessage)
	case a.Message != "" && a.Answer != client.AnswerReject:
		return r, invalidRequest("message is for the answer reject alone")
	case a.Answer != client.AnswerAlways && (a.Scope != "" || a.Expires != ""):
		return r, invalidRequest("scope and expires are for the answer always alone")
	}
	switch a.Answer {
	case client.AnswerOnce:
		return r, nil
	case client.AnswerReject:
		r.message = strings.ToValidUTF8(r.message, "\uFFFD")
		return r, nil
	case client.AnswerAlways:
		var err error
		r.saved, err = m.savedBy(w, by, a)
		return r, err
	}
	return r, invalidRequest("answer %q: use once, always or reject", shown(string(a.Answer)))
}

// savedBy makes the rules that an answer of always saves: one for each request of
// the call for which there is a pattern.
func (m *Manager) savedBy(w *pending, by string, a client.ApprovalAnswer) ([]*client.SavedApproval, error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	v := client.SavedApproval{Tenant: w.row.Tenant, Scope: a.Scope, By: by, Created: now}
	switch a.Scope {
	case "", client.ScopeSession:
		v.Scope, v.SessionID = client.ScopeSession, w.row.SessionID
	case client.ScopeProfile:
		v.Profile = w.row.Profile
	case client.ScopeTenant:
	default:
		return nil, invalidRequest("scope %q: use session, profile or tenant", shown(string(a.Scope)))
	}
	if a.Expires != "" {
		d, err := client.ParseDuration(a.Expires)
		if err != nil {
			return nil, invalidRequest("expires: %s", shown(err.Error()))
		}
		if d <= 0 || time.Duration(d) > maxTTL {
			return nil, invalidRequest("expires %q: give a time such as 12h, up to %s", shown(a.Expires), client.Duration(maxTTL))
		}
		v.Expires = new(now.Add(time.Duration(d)))
	}
	asked := shownOf(w.j)
	if n := len(asked); n > maxShownRequests {
		return nil, &client.Error{
			Code:    client.CodeInvalidRequest,
			Message: fmt.Sprintf("approval %s asks for %d things and shows %d of them: what is not shown is not saved", w.row.ID, n, maxShownRequests),
			Hint:    "answer once, or write a rule",
		}
	}
	var all []*client.SavedApproval
	known := make(map[[2]string]bool)
	for _, r := range asked {
		key := [2]string{r.Request.Permission, r.Request.Save}
		if r.Request.Save == "" || known[key] {
			continue
		}
		known[key] = true
		one := v
		one.ID = fmt.Sprintf("%s.%d", w.row.ID, len(all)+1)
		one.Permission, one.Pattern, one.Rule = r.Request.Permission, r.Request.Save, r.Rule
		all = append(all, &one)
	}
	if len(all) == 0 {
		return nil, &client.Error{
			Code:    client.CodeInvalidRequest,
			Message: fmt.Sprintf("nothing of approval %s can be saved: no pattern would allow this and nothing else", w.row.ID),
			Hint:    "answer once, or write a rule",
		}
	}
	if n := len(m.approvals.savedOf(w.row.Tenant, now)); n+len(all) > maxSavedTenant {
		return nil, &client.Error{
			Code:    client.CodeQuotaExceeded,
			Message: fmt.Sprintf("tenant %s has %d saved approvals; at most %d", w.row.Tenant, n, maxSavedTenant),
			Hint:    "revoke some (toolctl approvals saved rm), or write a rule; or answer once",
		}
	}
	return all, nil
}

// SavedApprovals implements API.
func (m *Manager) SavedApprovals(ctx context.Context, p auth.Principal, f ApprovalFilter) (client.List[client.SavedApproval], error) {
	list := client.List[client.SavedApproval]{Items: []client.SavedApproval{}}
	if err := p.Whole(); err != nil {
		return list, err
	}
	session, err := m.filterSession(ctx, p, f.Session)
	if err != nil {
		return list, err
	}
	limit := listLimit(f.Limit)
	all := m.approvals.savedOf(p.Tenant, time.Now())
	slices.SortFunc(all, func(a, b *client.SavedApproval) int { return strings.Compare(a.ID, b.ID) })
	for _, v := range all {
		switch {
		case v.ID <= f.After || session != "" && v.SessionID != session:
		case len(list.Items) == limit:
			list.Next = list.Items[limit-1].ID
			return list, nil
		default:
			list.Items = append(list.Items, *v)
		}
	}
	return list, nil
}

// Revoke implements API.
func (m *Manager) Revoke(_ context.Context, p auth.Principal, id string) error {
	if err := p.Whole(); err != nil {
		return err
	}
	all := m.approvals.savedOf(p.Tenant, time.Now())
	if !slices.ContainsFunc(all, func(v *client.SavedApproval) bool { return v.ID == id }) {
		return &client.Error{
			Code:    client.CodeNotFound,
			Message: fmt.Sprintf("there is no saved approval %q", shown(id)),
			Hint:    "toolctl approvals saved list shows those that there are",
		}
	}
	if err := m.store.Write(func(tx *store.Tx) error { return tx.DropSaved(id) }); err != nil {
		return m.internal("revoke a saved approval", err)
	}
	m.approvals.unsave(p.Tenant, func(v *client.SavedApproval) bool { return v.ID == id })
	return nil
}
