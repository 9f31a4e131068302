package session

import (
	"context"
	"fmt"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// askedOf finds the approvals that calls of an earlier daemon waited for, by
// their calls.
func (s *Session) askedOf(ctx context.Context) (map[string]*store.Approval, error) {
	rows, err := s.m.store.OpenApprovals(ctx, s.id)
	if err != nil {
		return nil, fmt.Errorf("read approvals: %w", err)
	}
	asked := make(map[string]*store.Approval, len(rows))
	for _, row := range rows {
		asked[row.CallID] = row
	}
	return asked, nil
}

// waitOn goes on with a call that waited for its approval when an earlier daemon
// ended, and reports whether it can. It cannot where a part of the call is gone:
// the values of its environment are not stored, and what is uploaded or downloaded
// ends with the request for it.
func (s *Session) waitOn(c *call, inv *tool.Invocation, asked *store.Approval) bool {
	if len(asked.Env) > 0 || asked.Hidden || inv == nil || inv.Tool.Hidden {
		return false
	}
	c.req = client.CallCreate{Key: c.row.Key, TimeoutMillis: asked.TimeoutMillis}
	var err error
	if c.timeout, c.wanted, err = s.deadline(&c.req, inv); err != nil {
		return false
	}
	c.asked, c.profile = asked, asked.Profile
	c.by = auth.Principal{UID: asked.UID, GID: asked.GID, PID: asked.PID, Tenant: asked.Tenant, Session: asked.Token}
	if asked.Split {
		c.stream.Split = true
		c.out = s.outputOf(c.id, inv.Tool, true)
	}
	s.open.Add(1)
	s.tenant.calls.Add(1)
	c.counted = true
	return s.work.Go(func() {
		s.attend()
		defer s.left(c)
		s.proceed(c, inv)
	})
}
