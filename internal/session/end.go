package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/store"
)

// teardown does the work of end, in the order in which a daemon that dies in
// between can take it up again: say so, end the calls, close the parts, say that it
// is done.
func (l *life) teardown(s *Session, e ending) {
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
	_ = s.calls.Close(context.Background()) // which does not end
	l.approvals.SessionOver(s.tenant.Name, s.id)
	changed := sensitive(s, e, ready, busy)
	notes, left := l.closeParts(s, e)
	l.recordEnd(s, e, changed, notes, left)
	l.forget(s) // after that, so that a session that is not found is over on record
	l.hooksEnded(s.Row(), s.log)
}

// closeParts closes all parts, the last one first. It says what could not be removed, and
// in notes what did not come back.
func (l *life) closeParts(s *Session, e ending) (notes []string, left error) {
	for _, part := range slices.Backward(l.parts) {
		n, err := part.close(s, e, left)
		notes, left = append(notes, n...), errors.Join(left, err)
	}
	return notes, left
}

// recordEnd stores the end. Without room on the disk the row stays `ending`, and
// the next daemon finishes it.
func (l *life) recordEnd(s *Session, e ending, changed *client.SensitiveChanges, notes []string, left error) {
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
