package session

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/store"
)

// adoptAtOnce bounds how many sessions are taken over at a time.
const adoptAtOnce = 16

// recover takes over what an earlier daemon left: it adopts the sessions whose
// sandbox is alive and goes on with their calls, ends the others, and removes
// what is nobody's.
func (m *Manager) recover(ctx context.Context) error {
	if err := m.countRecords(ctx); err != nil {
		return err
	}
	held, err := m.leases.Restore(ctx)
	if err != nil {
		return err
	}
	rows, err := m.store.Sessions(ctx, store.SessionFilter{Live: true})
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(adoptAtOnce)
	for _, row := range rows {
		g.Go(func() error {
			if err := m.adopt(ctx, *row); err != nil {
				return fmt.Errorf("session %s: %w", row.ID, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	garbage, err := m.collect(ctx, false)
	if err != nil {
		m.log.Error("look for leftovers", "error", err)
	}
	for _, x := range garbage {
		m.log.Warn("removed a leftover", "kind", x.Kind, "name", x.Name, "removed", x.Removed, "error", x.Error)
	}
	m.dropDeadLeases(held)
	return nil
}

// adopt takes over one session, or ends it. Its error is one of the store: the
// daemon cannot go on without it.
func (m *Manager) adopt(ctx context.Context, row store.Session) error {
	d, err := m.driver(row.Driver)
	if err != nil {
		return err // a session that cannot be reached must not be forgotten
	}
	s := newSession(m, row, d)
	m.adopted(s)
	if err := s.calls.Count(ctx); err != nil {
		return err
	}
	w, err := s.takeOver(ctx)
	if err != nil {
		return s.bury(ctx, err.Error())
	}
	s.Killed() // what was counted before is not held against later calls
	if err := s.calls.TakeUp(ctx, w.Calls); err != nil {
		return err
	}
	s.calls.ForgetUnknown(w.Calls)
	m.work.Go(s.supervise)
	return nil
}

// adopted puts a session of an earlier daemon into the tables; quotas do not
// apply to what exists.
func (m *Manager) adopted(s *Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[s.id] = s
	m.nameLocked(s)
	s.tenant.sessions++
	m.observe(func(o Observer) { o.SessionState(&s.row.Session, "") })
}

// takeOver adopts the parts and connects to the agent. Its error is why the session cannot
// go on.
func (s *Session) takeOver(ctx context.Context) (*agent.Welcome, error) {
	for _, part := range s.m.parts {
		if err := part.adopt(ctx, s); err != nil {
			return nil, err
		}
	}
	w, err := s.reach(ctx, min(s.patience(), adoptTime))
	if err != nil {
		return nil, fmt.Errorf("its agent does not answer: %w", err)
	}
	return w, nil
}

// bury ends a session that cannot go on, with its calls.
func (s *Session) bury(ctx context.Context, why string) error {
	e := ending{state: client.SessionLost, reason: why, force: true, keep: true}
	if s.row.State == client.SessionEnding {
		e.state, e.keep = client.SessionEnded, s.row.Keep
	}
	s.mu.Lock()
	s.row.Reason, s.fate = why, e.state
	s.mu.Unlock()
	return errors.Join(s.calls.Bury(ctx), s.end(ctx, e))
}
