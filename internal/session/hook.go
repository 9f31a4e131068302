package session

import (
	"context"
	"errors"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/hook"
)

// hooksAtOnce bounds how many programs of hooks run at a time on the host. The
// others wait; each of them ends by its timeout.
const hooksAtOnce = 16

// hookEvent makes the event of a session.
func (s *Session) hookEvent(on string) *hook.Event {
	row := s.snapshotRow()
	return &hook.Event{
		Version: hook.Version, Event: on, Time: time.Now().UTC(),
		Session: hook.Session{
			ID: row.ID, Name: row.Name, Tenant: row.Tenant, Profile: row.Profile, OwnerUID: row.OwnerUID,
			State: row.State, Reason: row.Reason, Labels: row.Labels, Worktree: row.Worktree,
		},
	}
}

// hookEventOf makes the event of a call.
func (s *Session) hookEventOf(on string, c *call, row *client.Call) *hook.Event {
	e := s.hookEvent(on)
	e.Call = &hook.Call{
		ID: row.ID, Key: row.Key, Tool: row.Tool, Input: row.Input, MessageID: row.MessageID, Agent: row.Agent, Model: row.Model,
		Extra: row.Extra, Permission: row.Permission,
	}
	if c.profile != "" {
		e.Session.Profile = c.profile // what it was judged by
	}
	return e
}

// hooksFor gives the hooks of a moment that match, in the order of the
// configuration.
func (m *Manager) hooksFor(on string, a hook.About) []*hook.Hook {
	return hook.For(m.settings.Load().Hooks, on, a)
}

// runHook runs a hook's program on the host when there is room for one more, and
// reads its answer. An error means that it failed, or is the cause for which ctx ended.
func (m *Manager) runHook(ctx context.Context, h *hook.Hook, e *hook.Event) (*hook.Answer, error) {
	select {
	case m.hookSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-m.hookSlots }()
	begun := time.Now()
	a, err := h.Run(ctx, e)
	m.hooked(h, a, err, time.Since(begun))
	return a, err
}

// hooked tells how a hook ended.
func (m *Manager) hooked(h *hook.Hook, a *hook.Answer, err error, took time.Duration) {
	if err != nil {
		a = nil
		args := []any{"on", h.On, "hook", h.Name(), "error", err, "fail_open", h.FailOpen}
		if he, ok := errors.AsType[*hook.Error](err); ok && he.Stderr != "" {
			args = append(args, "stderr", he.Stderr)
		}
		m.log.Warn("a hook failed", args...)
	}
	m.observe(func(o Observer) { o.Hooked(h.On, a.Outcome(), took) })
}
