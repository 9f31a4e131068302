package session

import (
	"context"
	"errors"
	"sync"

	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/session/queue"
	"github.com/toold/toold/internal/store"
)

// roster are the sessions that are not over, and what each tenant has.
type roster struct {
	*daemon

	mu       sync.RWMutex // guards the fields below
	sessions map[string]*Session
	names    map[tenantName]*Session
	keys     map[tenantName]*Session // by what their requests called them
	tenants  map[string]*tenant
}

func newRoster(d *daemon) *roster {
	return &roster{
		daemon: d, sessions: make(map[string]*Session), names: make(map[tenantName]*Session), keys: make(map[tenantName]*Session),
		tenants: make(map[string]*tenant),
	}
}

// The calls find their sessions here.
var _ call.Sessions = (*roster)(nil)

// tenantName is the name or the key of a live session; both are a tenant's own.
type tenantName struct{ tenant, name string }

// live lists the sessions that are not over.
func (m *roster) live() []*Session {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*Session, 0, len(m.sessions))
	for _, s := range m.sessions {
		all = append(all, s)
	}
	return all
}

// liveByID gives a session that is not over; nil for others.
func (m *roster) liveByID(id string) *Session {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.sessions[id]
}

// tenant gives the counters of a tenant.
func (m *roster) tenant(name string) *tenant {
	m.mu.RLock()
	t := m.tenants[name]
	m.mu.RUnlock()
	if t != nil {
		return t
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t = m.tenants[name]; t == nil {
		t = &tenant{Tenant: call.Tenant{Name: name}, places: queue.New(name, func() int { return m.settings.Load().maxSessions(name) })}
		m.tenants[name] = t
	}
	return t
}

// enter adds the session to the tables, if the tenant may have another one, nobody
// else is to have it first, and the name is free. Then it waits no more.
func (m *roster) enter(s *Session, w *queue.Turn, always bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.tenant.places.Take(w, always, func() error {
		n, k := tenantName{s.tenant.Name, s.row.Name}, tenantName{s.tenant.Name, s.row.Key}
		switch {
		case k.name != "" && m.keys[k] != nil:
			return errKeyTaken
		case n.name != "" && m.names[n] != nil:
			return nameTaken(n.name)
		}
		m.nameLocked(s)
		m.sessions[s.id] = s
		return nil
	})
}

// nameLocked makes the session known by its name and its key.
func (m *roster) nameLocked(s *Session) {
	if s.row.Name != "" {
		m.names[tenantName{s.tenant.Name, s.row.Name}] = s
	}
	if s.key = s.row.Key; s.key != "" {
		m.keys[tenantName{s.tenant.Name, s.key}] = s
	}
}

// errKeyTaken says that another request with the same key has come first; it never
// leaves the package.
var errKeyTaken = errors.New("another session has the key")

func nameTaken(name string) error {
	return fault.Conflict.Errorf("there is a live session called %q", name).
		Next("use it, end it, or choose another name")
}

// forget takes the session out of the tables of live ones.
func (m *roster) forget(s *Session) {
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
	s.tenant.places.Give()
}

// adopted puts a session of an earlier daemon into the tables; quotas do not
// apply to what exists.
func (m *roster) adopted(s *Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[s.id] = s
	m.nameLocked(s)
	_ = s.tenant.places.Take(nil, true, func() error { return nil }) // which always succeeds
	m.observe(func(o Observer) { o.SessionState(&s.row.Session, "") })
}

// find gives a live session by its id or name. Sessions of other tenants do not
// exist for the asker.
func (m *roster) find(p auth.Principal, idOrName string) (*Session, error) {
	m.mu.RLock()
	s := m.sessions[idOrName]
	if s == nil {
		s = m.names[tenantName{p.Tenant, idOrName}]
	}
	m.mu.RUnlock()
	if s == nil || !p.Sees(s.tenant.Name, s.id) {
		return nil, noSession(idOrName)
	}
	return s, nil
}

// rowOf gives the row of a session, live or not.
func (m *roster) rowOf(ctx context.Context, p auth.Principal, idOrName string) (*store.Session, error) {
	if s, err := m.find(p, idOrName); err == nil {
		row := s.Row()
		return &row, nil
	}
	return m.stored(ctx, p, idOrName)
}

// SessionID checks that the asker may see a session, live or not.
func (m *roster) SessionID(ctx context.Context, p auth.Principal, idOrName string) (string, error) {
	row, err := m.rowOf(ctx, p, idOrName)
	if err != nil {
		return "", err
	}
	return row.ID, nil
}

// TokenSession implements server.Sessions.
func (m *roster) TokenSession(token string) (holder auth.Principal, ok bool) {
	m.mu.RLock()
	s := m.sessions[auth.TokenSession(token)]
	m.mu.RUnlock()
	var row store.Session
	if s != nil {
		row = s.Row()
	}
	if !auth.TokenIs(token, row.TokenHash) {
		return auth.Principal{}, false
	}
	return auth.Principal{Tenant: row.Tenant, Session: row.ID, SessionName: row.Name}, true
}

// Calls implements call.Sessions.
func (m *roster) Calls(ctx context.Context, p auth.Principal, idOrName string) (*call.Group, error) {
	s, err := m.find(p, idOrName)
	if err != nil {
		if row, e := m.stored(ctx, p, idOrName); e == nil {
			return nil, call.OverError(row)
		}
		return nil, err
	}
	return s.calls, nil
}

// newCalls makes the calls of all sessions.
func (m *roster) newCalls(q call.Quota) *call.Service {
	c := call.Config{
		Store: m.store, Tools: m.tools, Hub: m.hub, Approvals: m.approvals, Hooks: m.hooks, Quota: q,
		Log: m.log, Settings: func() *call.Settings { return &m.settings.Load().Settings },
		OutputDir: m.cfg.OutputDir, Memory: budget.New(m.cfg.ResultMemory),
		Work: &m.work, Context: m.ctx, Internal: m.internal,
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
func (m *roster) AwaitTold() {
	for _, s := range m.live() {
		s.calls.AwaitTold()
	}
}
