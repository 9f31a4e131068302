package session

import (
	"context"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/errand"
)

// A Session is the place of its calls.
var _ call.Place = (*Session)(nil)

// Takes implements call.Place.
func (s *Session) Takes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ending && s.row.State == client.SessionReady
}

// Fate implements call.Place.
func (s *Session) Fate() (client.SessionState, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fate, s.row.Reason
}

// Before implements call.Place.
func (s *Session) Before(ctx context.Context, call, message string) string {
	s.mu.Lock()
	mode := s.row.Worktree.Mode
	s.mu.Unlock()
	if mode != client.WorktreeOverlay {
		return ""
	}
	row := s.Row()
	return s.daemon.trees.Before(ctx, &row, s, s.daemon.settings.Load().Worktrees.Checkpoint, call, message)
}

// Errand implements call.Place.
func (s *Session) Errand() (errand.Errand, error) {
	l, err := s.agent.Link()
	if err != nil {
		return errand.Errand{}, err
	}
	return s.errand(l), nil
}

// errand is what the daemon has the agent do for itself.
func (s *Session) errand(l *agent.Link) errand.Errand {
	return errand.Errand{Conn: l, NewID: func() string { return s.daemon.store.NewID("call_") }}
}
