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
func (desk *Approvals) Approvals(ctx context.Context, p auth.Principal, f client.ApprovalQuery) (client.List[client.Approval], error) {
	if err := desk.approvals.Approver(p); err != nil {
		return client.List[client.Approval]{Items: []client.Approval{}}, err
	}
	session, err := desk.filterSession(ctx, p, f.Session)
	if err != nil {
		return client.List[client.Approval]{Items: []client.Approval{}}, err
	}
	return desk.approvals.List(p, session, f.After, call.ListLimit(f.Limit))
}

// Answer implements server.Approvals.
func (desk *Approvals) Answer(ctx context.Context, p auth.Principal, id string, a client.ApprovalAnswer) (*client.Approval, error) {
	v, err := desk.approvals.Answer(ctx, p, id, a)
	if err != nil {
		return nil, desk.internal("answer an approval", err)
	}
	return v, nil
}

// SavedApprovals implements server.Approvals.
func (desk *Approvals) SavedApprovals(ctx context.Context, p auth.Principal, f client.ApprovalQuery) (client.List[client.SavedApproval], error) {
	none := client.List[client.SavedApproval]{Items: []client.SavedApproval{}}
	if err := p.Whole(); err != nil {
		return none, err
	}
	session, err := desk.filterSession(ctx, p, f.Session)
	if err != nil {
		return none, err
	}
	return desk.approvals.Saved(p, session, f.After, call.ListLimit(f.Limit)), nil
}

// Revoke implements server.Approvals.
func (desk *Approvals) Revoke(_ context.Context, p auth.Principal, id string) error {
	if err := p.Whole(); err != nil {
		return err
	}
	if err := desk.approvals.Revoke(p, id); err != nil {
		return desk.internal("revoke a saved approval", err)
	}
	return nil
}

// filterSession gives the id of the session that a list is about, "" for all.
func (desk *Approvals) filterSession(ctx context.Context, p auth.Principal, idOrName string) (string, error) {
	if p.Session != "" {
		return p.Session, nil
	}
	if idOrName == "" {
		return "", nil
	}
	return desk.SessionID(ctx, p, idOrName)
}
