package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree/layers"
)

// adopt takes over one session, or ends it. Its error is one of the store, or of the disk that
// it is on: the daemon cannot go on without it.
func (l *life) adopt(ctx context.Context, row store.Session) error {
	d, err := l.driver(row.Driver)
	if err != nil {
		return err // a session that cannot be reached must not be forgotten
	}
	s := newSession(l.daemon, l.tenant(row.Tenant), row, d, l.teardown)
	l.adopted(s)
	if err := s.calls.Count(ctx); err != nil {
		return err
	}
	w, err := l.takeOver(ctx, s)
	if trees.Unwritten(err) {
		return err // a daemon that has room goes on with it
	}
	if err != nil {
		err := l.bury(ctx, s, err.Error())
		if row.Internal { // what it has written is nobody's
			if ferr := l.trees.Forget(ctx, s.id); !errors.Is(ferr, layers.ErrNone) {
				err = errors.Join(err, ferr)
			}
		}
		return err
	}
	s.Killed() // what was counted before is not held against later calls
	if err := s.calls.TakeUp(ctx, w.Calls); err != nil {
		return err
	}
	s.calls.ForgetUnknown(&s.agent, w.Calls)
	l.work.Go(s.id, (&supervisor{Session: s}).run)
	return nil
}

// takeOver adopts the parts and connects to the agent. Its error is why the session cannot
// go on.
func (l *life) takeOver(ctx context.Context, s *Session) (*agent.Welcome, error) {
	for _, part := range l.parts {
		if err := part.adopt(ctx, s); err != nil {
			return nil, err
		}
	}
	w, err := s.reach(ctx, min(s.patience(), adoptTime))
	if err != nil {
		return nil, fmt.Errorf("its agent does not answer: %w", err)
	}
	// What it lacks is offered then, and refused by the agent. That is no reason to lose a session.
	if err := askForTools(ctx, s, w); err != nil {
		s.log.Warn("which tools the session's agent has is not known", "error", err)
	}
	if row := s.Row(); row.Worktree.Mode == client.WorktreeOverlay {
		err := l.trees.Recover(ctx, &row, s)
		if e, unlaid := errors.AsType[*trees.UnlaidError](err); unlaid {
			s.log.Warn("a session goes on with the worktree that it has, to be read", "error", err)
			s.unlaid.Store(e)
			err = nil
		}
		return w, err
	}
	return w, nil
}

// bury ends a session that cannot go on, with its calls.
func (l *life) bury(ctx context.Context, s *Session, why string) error {
	e := ending{state: client.SessionLost, reason: why, force: true, keep: true}
	if s.row.State == client.SessionEnding || s.row.Internal {
		e.state, e.keep = client.SessionEnded, s.row.Keep
	}
	s.mu.Lock()
	s.row.Reason, s.fate = why, e.state
	s.mu.Unlock()
	return errors.Join(s.calls.Bury(ctx), s.end(ctx, e))
}
