package session

import (
	"context"
	"errors"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/plain"
)

// sensitive asks what of the worktree has changed that a host runs on sight (see
// errand.Changes); nil is nothing.
func sensitive(s *Session, e ending, ready, busy bool) *client.SensitiveChanges {
	if !ready || s.Row().Worktree.Mode != client.WorktreeBind || s.calls.Total() == 0 {
		return nil
	}
	var c *client.SensitiveChanges
	err := errors.New("the session is lost")
	switch {
	case busy:
		err = errors.New("calls were still running when the session was ended by force")
	case e.state == client.SessionEnded:
		c, err = askSensitive(s)
	}
	if err != nil {
		return &client.SensitiveChanges{Unchecked: plain.Cut(err.Error(), call.MaxNote)}
	}
	if len(c.Changed) == 0 && len(c.Build) == 0 && c.More == 0 && c.Unchecked == "" {
		return nil
	}
	return c
}

func askSensitive(s *Session) (*client.SensitiveChanges, error) {
	e, err := s.Errand()
	if err != nil {
		return nil, errors.New("the agent is gone")
	}
	return e.Changes(context.Background(), s.daemon.settings.Load().Worktrees.Sensitive)
}
