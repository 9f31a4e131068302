package session

import (
	"context"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
)

// Approvals are those of all calls, for people who answer them.
type Approvals struct{ *roster }

// Approvals implements server.Approvals: it lists those that are pending, oldest first.
func (m *Approvals) Approvals(ctx context.Context, p auth.Principal, f ApprovalFilter) (client.List[client.Approval], error) {
	if err := m.approvals.Approver(p); err != nil {
		return client.List[client.Approval]{Items: []client.Approval{}}, err
	}
	session, err := m.filterSession(ctx, p, f.Session)
	if err != nil {
		return client.List[client.Approval]{Items: []client.Approval{}}, err
	}
	return m.approvals.List(p, session, f.After, call.ListLimit(f.Limit))
}

// Answer implements server.Approvals.
func (m *Approvals) Answer(ctx context.Context, p auth.Principal, id string, a client.ApprovalAnswer) (*client.Approval, error) {
	v, err := m.approvals.Answer(ctx, p, id, a)
	if err != nil {
		return nil, m.internal("answer an approval", err)
	}
	return v, nil
}

// SavedApprovals implements server.Approvals.
func (m *Approvals) SavedApprovals(ctx context.Context, p auth.Principal, f ApprovalFilter) (client.List[client.SavedApproval], error) {
	none := client.List[client.SavedApproval]{Items: []client.SavedApproval{}}
	if err := p.Whole(); err != nil {
		return none, err
	}
	session, err := m.filterSession(ctx, p, f.Session)
	if err != nil {
		return none, err
	}
	return m.approvals.Saved(p, session, f.After, call.ListLimit(f.Limit)), nil
}

// Revoke implements server.Approvals.
func (m *Approvals) Revoke(_ context.Context, p auth.Principal, id string) error {
	if err := p.Whole(); err != nil {
		return err
	}
	if err := m.approvals.Revoke(p, id); err != nil {
		return m.internal("revoke a saved approval", err)
	}
	return nil
}

// filterSession gives the id of the session that a list is about, "" for all.
func (m *Approvals) filterSession(ctx context.Context, p auth.Principal, idOrName string) (string, error) {
	if p.Session != "" {
		return p.Session, nil
	}
	if idOrName == "" {
		return "", nil
	}
	return m.SessionID(ctx, p, idOrName)
}
