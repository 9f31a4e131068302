package session

import (
	"context"

	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/session/holder"
)

// leaseProcess is the part of a session that watches the process which holds its lease.
type leaseProcess struct{ nothing }

// claim opens the process. It must belong to the user who asks, unless that is an
// administrator: else a session would tell when the processes of others end.
func (leaseProcess) claim(_ context.Context, pl *plan) error {
	pid := pl.req.LeasePID
	if pid <= 0 {
		return nil
	}
	p, owner, start, err := holder.Watch(pid)
	if err != nil {
		return fault.In(fault.Invalid.Errorf("lease_pid %d: %s", pid, plain.Cause(err)).
			Next("give the id of a process that runs"), "lease_pid")
	}
	pl.holder, pl.start = p, start
	if owner != pl.p.UID && !pl.p.Admin {
		return fault.Forbidden.Errorf("lease_pid %d is not a process of yours", pid).
			Next("give the id of a process that runs with your uid")
	}
	return nil
}

// adopt watches the process again, if it is still the one that it was when the session was
// made.
func (leaseProcess) adopt(_ context.Context, s *Session) error {
	row := s.Row()
	if row.LeasePID == 0 {
		return nil
	}
	p := holder.Again(row.LeasePID, row.LeaseStart)
	s.mu.Lock()
	s.holder = p
	s.mu.Unlock()
	return nil
}

func (leaseProcess) close(s *Session, _ ending, _ error) ([]string, error) {
	s.mu.Lock()
	p := s.holder
	s.mu.Unlock()
	p.Close()
	return nil, nil
}
