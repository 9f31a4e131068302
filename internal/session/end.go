package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/store"
)

// ending says how a session ends.
type ending struct {
	state  client.SessionState // ended or lost
	reason string
	force  bool // do not wait for calls
	keep   bool // keep the outputs until retention
}

// end ends the session and returns when its end is in the store. The first to
// call it decides how; later ones wait.
func (s *Session) end(ctx context.Context, e ending) error {
	s.mu.Lock()
	first := !s.ending
	if first {
		s.ending, s.fate = true, e.state
		s.agent.Seal()
	}
	s.mu.Unlock()
	// The work is done to its end also when whoever asked goes away; or by the next
	// daemon, where this one is about to go.
	if first && !s.m.work.Go(func() { s.teardown(e) }) {
		return call.ErrLeaving
	}
	select {
	case <-s.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// teardown does the work of end, in the order in which a daemon that dies in
// between can take it up again: say so, end the calls, close the parts, say that it
// is done.
func (s *Session) teardown(e ending) {
	defer close(s.over)
	ready := s.Row().State != client.SessionCreating
	err := s.write("", func(r *store.Session) error {
		if r.State == client.SessionCreating {
			r.Key = "" // the request has failed, and may be made again
		}
		r.State, r.Reason, r.Keep = client.SessionEnding, e.reason, e.keep
		return nil
	})
	if err != nil {
		s.log.Error("store that the session is ending", "error", err)
	}
	if !e.force {
		s.calls.AbortAll()
	}
	busy := s.calls.Open() > 0
	s.cancel(agent.ErrOver)
	if s.making != nil {
		<-s.making
	}
	s.calls.Close()
	s.m.approvals.SessionOver(s.tenant.Name, s.id)
	changed := s.sensitive(e, ready, busy)
	notes, left := s.closeParts(e)
	s.m.forget(s)
	s.recordEnd(e, changed, notes, left)
	s.hooksEnded()
}

// closeParts closes all parts, the last one first. It says what could not be removed, and
// in notes what did not come back.
func (s *Session) closeParts(e ending) (notes []string, left error) {
	for _, part := range slices.Backward(s.m.parts) {
		n, err := part.close(s, e, left)
		notes, left = append(notes, n...), errors.Join(left, err)
	}
	return notes, left
}

// forget takes the session out of the tables of live ones.
func (m *Manager) forget(s *Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.sessions[s.id]; !ok {
		return
	}
	delete(m.sessions, s.id)
	row := s.Row()
	if n := (tenantName{row.Tenant, row.Name}); m.names[n] == s {
		delete(m.names, n)
	}
	if k := (tenantName{row.Tenant, s.key}); m.keys[k] == s {
		delete(m.keys, k)
	}
	s.tenant.sessions--
	s.tenant.queue.move()
}

// recordEnd stores the end. Without room on the disk the row stays `ending`, and
// the next daemon finishes it.
func (s *Session) recordEnd(e ending, changed *client.SensitiveChanges, notes []string, left error) {
	typ := client.EventSessionEnded
	if e.state == client.SessionLost {
		typ = client.EventSessionLost
	}
	err := s.write(typ, func(r *store.Session) error {
		now := time.Now().UTC().Truncate(time.Millisecond)
		r.State, r.Reason, r.Keep, r.Ended = e.state, e.reason, e.keep, &now
		r.Notes, r.Worktree.Sensitive = slices.Concat(r.Notes, s.foreignNote(), notes), changed
		if left != nil {
			r.Notes = append(r.Notes, "not everything of it could be removed from the host; see: toolctl gc --dry-run")
		}
		return nil
	})
	s.calls.Foreign.Store(0) // its note is in the row now
	if err != nil {
		s.log.Error("store the end of the session", "error", err)
	}
	s.log.Info("session is over", "state", e.state, "reason", e.reason)
}

// End implements server.Sessions.
func (m *Manager) End(ctx context.Context, p auth.Principal, id string, o EndOptions) (*client.Session, error) {
	if err := p.Whole(); err != nil {
		return nil, err
	}
	s, err := m.find(p, id)
	if err != nil {
		return m.ended(ctx, p, id, err)
	}
	if err := s.end(ctx, ending{state: client.SessionEnded, reason: "ended by request", force: o.Force, keep: o.Keep}); err != nil {
		return nil, m.internal(fmt.Sprintf("end session %s", s.id), err)
	}
	v := s.Row().Session
	v.Usage.Calls = s.calls.Total()
	return &v, nil
}

// ended answers for a session that is over already: ending it again changes
// nothing.
func (m *Manager) ended(ctx context.Context, p auth.Principal, id string, notFound error) (*client.Session, error) {
	row, err := m.stored(ctx, p, id)
	if err != nil {
		return nil, notFound
	}
	return &row.Session, nil
}
