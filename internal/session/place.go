package session

import (
	"cmp"
	"context"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/fault"
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

// Attend implements call.Place. A look takes a tenth of a millisecond, so the call goes on meanwhile.
func (s *Session) Attend() (seen func()) {
	s.heart.Attend()
	done := make(chan struct{})
	go func() {
		defer close(done)
		lookAtSources(s, seeSources)
	}()
	return func() { <-done }
}

// Leave implements call.Place.
func (s *Session) Leave() {
	s.heart.Leave()
	lookAtBudget(s)
	s.mu.Lock()
	mode := s.row.Worktree.Mode
	s.mu.Unlock()
	if mode == client.WorktreeOverlay {
		row := s.Row()
		s.daemon.trees.Keep(&row)
	}
}

// Before implements call.Place.
func (s *Session) Before(ctx context.Context, id, message string) (made call.Checkpoint, err error) {
	if err := cmp.Or(s.daemon.disk.admits(), s.daemon.memory.admits()); err != nil {
		return made, err
	}
	if why := diskFails(s); why != nil {
		return made, fault.Sandbox.Errorf("session %s: %w; the call did not run", s.id, why).
			Next("read what is left of it with calls that do not write; then free space on the host, end it and go on in a new session, for mode overlay with toolctl fork " + s.id)
	}
	layAgain(ctx, s)
	if why := s.unlaid.Load(); why != nil {
		kind, next := hintOf(why)
		return made, kind.Errorf("session %s: %w; the call did not run", s.id, why).Next(next)
	}
	if err := s.furnish(); err != nil {
		return made, err
	}
	s.mu.Lock()
	mode := s.row.Worktree.Mode
	s.mu.Unlock()
	if mode != client.WorktreeOverlay {
		return made, nil
	}
	row := s.Row()
	return call.Checkpoint(s.daemon.trees.Before(ctx, &row, s, s.daemon.settings.Load().Worktrees.Checkpoint, id, message)), nil
}
