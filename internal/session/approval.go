package session

import (
	"context"

	"github.com/toold/toold/client"
)

// Approvals implements API.
func (m *Manager) Approvals(context.Context, Principal, ApprovalFilter) (client.List[client.Approval], error) {
	return client.List[client.Approval]{}, nil
}

// Answer implements API.
func (m *Manager) Answer(context.Context, Principal, string, client.ApprovalAnswer) (*client.Approval, error) {
	return nil, notYet("approvals", "", "")
}

// SavedApprovals implements API.
func (m *Manager) SavedApprovals(context.Context, Principal, ApprovalFilter) (client.List[client.SavedApproval], error) {
	return client.List[client.SavedApproval]{}, nil
}

// Revoke implements API.
func (m *Manager) Revoke(context.Context, Principal, string) error {
	return notYet("approvals", "", "")
}
