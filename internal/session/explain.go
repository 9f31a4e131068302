package session

import (
	"context"

	"github.com/toold/toold/client"
)

// Explain implements API.
func (m *Manager) Explain(context.Context, Principal, client.PolicyExplain) (*client.PolicyVerdict, error) {
	return nil, notYet("policy explain", "", "")
}

// Replay implements API.
func (m *Manager) Replay(context.Context, Principal, client.PolicyReplay) (*client.PolicyReplayed, error) {
	return nil, notYet("policy replay", "", "")
}
