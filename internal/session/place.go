package session

import (
	"context"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/call/errand"
)

// A Session is the place of its calls, and the Manager finds it for them.
var (
	_ call.Place    = (*Session)(nil)
	_ call.Sessions = (*Manager)(nil)
	_ call.Quota    = (*Manager)(nil)
)

// newCalls makes the calls of all sessions.
func (m *Manager) newCalls() *call.Service {
	c := call.Config{
		Store: m.store, Tools: m.tools, Hub: m.hub, Approvals: m.approvals, Hooks: m.hooks, Quota: m,
		Log: m.log, Settings: func() *call.Settings { return &m.settings.Load().Settings },
		OutputDir: m.cfg.OutputDir, Memory: budget.New(m.cfg.ResultMemory),
		Work: &m.work, Context: m.ctx, CheckEnv: checkEnv, Internal: m.internal,
	}
	for _, o := range m.cfg.Observers {
		c.Observers = append(c.Observers, o)
	}
	if m.cfg.Auditor != nil { // not a nil Auditor of ours in an interface
		c.Auditor = m.cfg.Auditor
	}
	return call.New(c, m)
}

// AwaitTold waits until the ends of calls that somebody has been told are in the
// store, for all sessions.
func (m *Manager) AwaitTold() {
	for _, s := range m.live() {
		s.calls.AwaitTold()
	}
}

// AllCalls are the calls of all sessions.
func (m *Manager) AllCalls() *call.Service { return m.calls }

// Calls implements call.Sessions.
func (m *Manager) Calls(ctx context.Context, p auth.Principal, idOrName string) (*call.Group, error) {
	s, err := m.find(p, idOrName)
	if err != nil {
		if row, e := m.stored(ctx, p, idOrName); e == nil {
			return nil, call.OverError(row)
		}
		return nil, err
	}
	return s.calls, nil
}

// MostCalls implements call.Quota.
func (m *Manager) MostCalls(tenant string) int { return m.settings.Load().Tenants[tenant].MaxCalls }

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

// Starved implements call.Place.
func (s *Session) Starved() { s.starved.Add(1) }

// Errand implements call.Place.
func (s *Session) Errand() (errand.Errand, error) {
	l, err := s.agent.Link()
	if err != nil {
		return errand.Errand{}, err
	}
	return s.errand(l), nil
}
