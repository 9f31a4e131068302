package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
)

// hooksAtOnce bounds how many programs of hooks run at a time on the host. The
// others wait; each of them ends by its timeout.
const hooksAtOnce = 16

// hookVersion is the version of hookEvent's form: it changes when a program that
// was written for it would have to change.
const hookVersion = 1

// hookEvent is what a hook reads on its standard input.
type hookEvent struct {
	Version int         `json:"version"`
	Event   string      `json:"event"`
	Time    time.Time   `json:"time"`
	Session hookSession `json:"session"`
	Call    *hookCall   `json:"call,omitempty"`
	Result  *hookResult `json:"result,omitempty"` // call.after
}

type hookSession struct {
	ID       string              `json:"id"`
	Name     string              `json:"name,omitempty"`
	Tenant   string              `json:"tenant"`
	Profile  string              `json:"profile"`
	OwnerUID uint32              `json:"owner_uid"`
	State    client.SessionState `json:"state"`
	Reason   string              `json:"reason,omitempty"`
	Labels   map[string]string   `json:"labels,omitempty"`
	Worktree client.Worktree     `json:"worktree"`
}

type hookCall struct {
	ID         string                 `json:"id"`
	Key        string                 `json:"key,omitempty"`
	Tool       string                 `json:"tool"`
	Input      json.RawMessage        `json:"input"` // normalised
	MessageID  string                 `json:"message_id,omitempty"`
	Agent      string                 `json:"agent,omitempty"`
	Model      string                 `json:"model,omitempty"`
	Extra      json.RawMessage        `json:"extra,omitempty"`
	Permission *client.CallPermission `json:"permission,omitempty"`
}

type hookResult struct {
	Status   client.CallStatus `json:"status"`
	Title    string            `json:"title"`
	Output   string            `json:"output"`
	IsError  bool              `json:"is_error"`
	Error    *client.Error     `json:"error,omitempty"`
	Metadata map[string]any    `json:"metadata,omitempty"`
	Usage    client.CallUsage  `json:"usage"`
}

// hookEvent makes the event of a session.
func (s *Session) hookEvent(on string) *hookEvent {
	row := s.snapshotRow()
	return &hookEvent{
		Version: hookVersion, Event: on, Time: time.Now().UTC(),
		Session: hookSession{
			ID: row.ID, Name: row.Name, Tenant: row.Tenant, Profile: row.Profile, OwnerUID: row.OwnerUID,
			State: row.State, Reason: row.Reason, Labels: row.Labels, Worktree: row.Worktree,
		},
	}
}

// hookEventOf makes the event of a call.
func (s *Session) hookEventOf(on string, c *call, row *client.Call) *hookEvent {
	e := s.hookEvent(on)
	e.Call = &hookCall{
		ID: row.ID, Key: row.Key, Tool: row.Tool, Input: row.Input, MessageID: row.MessageID, Agent: row.Agent, Model: row.Model,
		Extra: row.Extra, Permission: row.Permission,
	}
	if c.profile != "" {
		e.Session.Profile = c.profile // what it was judged by
	}
	return e
}

// about is what a hook's match is compared with; "" where there is none.
type about struct{ tool, tenant, profile, path, relative string }

// aboutOf is about for an event.
func aboutOf(e *hookEvent) about {
	a := about{tenant: e.Session.Tenant, profile: e.Session.Profile}
	if e.Call != nil {
		a.tool = e.Call.Tool
	}
	return a
}

// hooksFor gives the hooks of a moment that match, in the order of the
// configuration.
func (m *Manager) hooksFor(on string, a about) []*Hook {
	all := m.settings.Load().Hooks
	var found []*Hook
	for i := range all {
		if all[i].On == on && all[i].matches(a) {
			found = append(found, &all[i])
		}
	}
	return found
}

// matches reports whether all that the hook names is so. What it names and
// nobody knows is taken to be so: a hook that should have run must run.
func (h *Hook) matches(a about) bool {
	for key, pattern := range h.Match {
		switch key {
		case "tool":
			if !policy.Match(pattern, a.tool) {
				return false
			}
		case "tenant":
			if !policy.Match(pattern, a.tenant) {
				return false
			}
		case "profile":
			if !policy.Match(pattern, a.profile) {
				return false
			}
		case "path":
			if !policy.MatchPath(pattern, a.path) && (a.relative == "" || !policy.MatchPath(pattern, a.relative)) {
				return false
			}
		}
	}
	return true
}

// name is what the hook is called in messages and in the audit log.
func (h *Hook) name() string { return programName(h.Command) }

// What came of a hook, for metrics.
const (
	hookOK       = "ok"
	hookDenied   = "denied"
	hookReplaced = "replaced"
	hookFailed   = "failed"
)

// runHook runs a hook's program on the host and reads its answer. An error means
// that it failed, or is the cause for which ctx ended.
func (m *Manager) runHook(ctx context.Context, h *Hook, e *hookEvent) (*hookAnswer, error) {
	stdin, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event for hook %s: %w", h.name(), err)
	}
	select {
	case m.hookSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-m.hookSlots }()
	begun := time.Now()
	out, err := runProgram(ctx, h.Command, stdin, h.Timeout)
	var answer *hookAnswer
	if err == nil {
		if answer, err = readAnswer(h.On, out); err != nil {
			err = &programError{program: h.name(), what: "gave an answer that is none: " + err.Error()}
		}
	}
	m.hooked(h, answer, err, time.Since(begun))
	return answer, err
}

// hooked tells how a hook ended.
func (m *Manager) hooked(h *Hook, a *hookAnswer, err error, took time.Duration) {
	outcome := hookOK
	switch {
	case err != nil:
		outcome = hookFailed
		args := []any{"on", h.On, "hook", h.name(), "error", err, "fail_open", h.FailOpen}
		if pe, ok := errors.AsType[*programError](err); ok && pe.stderr != "" {
			args = append(args, "stderr", pe.stderr)
		}
		m.log.Warn("a hook failed", args...)
	case a.deny:
		outcome = hookDenied
	case a.input != nil || a.output != nil:
		outcome = hookReplaced
	}
	m.observe(func(o Observer) { o.Hooked(h.On, outcome, took) })
}
