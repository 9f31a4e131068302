package session

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/session/queue"
	"github.com/toold/toold/internal/store"
)

// roster are the sessions that are not over, and what each tenant has.
type roster struct {
	*daemon
	egress *egress.Share // of the networks of all sessions

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
		egress:  egress.NewShare("the sessions of this host", nil, func() egress.Limits { return egress.Limits{Connections: egress.Room()} }),
	}
}

// The calls find their sessions here.
var _ call.Sessions = (*roster)(nil)

// tenantName is the name or the key of a live session; both are a tenant's own.
type tenantName struct{ tenant, name string }

// live lists the sessions that are not over.
func (r *roster) live() []*Session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]*Session, 0, len(r.sessions))
	for _, s := range r.sessions {
		all = append(all, s)
	}
	return all
}

// liveByID gives a session that is not over; nil for others.
func (r *roster) liveByID(id string) *Session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.sessions[id]
}

// tenant gives the counters of a tenant.
func (r *roster) tenant(name string) *tenant {
	r.mu.RLock()
	t := r.tenants[name]
	r.mu.RUnlock()
	if t != nil {
		return t
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t = r.tenants[name]; t == nil {
		t = &tenant{
			Tenant: call.Tenant{Name: name}, places: queue.New(name, func() int { return r.settings.Load().Tenants[name].MaxSessions }),
			egress: egress.NewShare("the sessions of this tenant", r.egress, func() egress.Limits { return r.settings.Load().Tenants[name].NetworkInAll }),
		}
		r.tenants[name] = t
	}
	return t
}

// enter adds the session to the tables, if the tenant may have another one, nobody
// else is to have it first, and the name is free. Then it waits no more.
func (r *roster) enter(s *Session, w *queue.Turn, always bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.tenant.places.Take(w, always, func() error {
		n, k := tenantName{s.tenant.Name, s.row.Name}, tenantName{s.tenant.Name, s.row.Key}
		switch {
		case !always && r.drained.Load(): // since it was let in
			return errDrained
		case k.name != "" && r.keys[k] != nil:
			return errKeyTaken
		case n.name != "" && r.names[n] != nil:
			return nameTaken(n.name)
		}
		r.nameLocked(s)
		r.sessions[s.id] = s
		return nil
	})
}

// nameLocked makes the session known by its name and its key.
func (r *roster) nameLocked(s *Session) {
	if s.row.Name != "" {
		r.names[tenantName{s.tenant.Name, s.row.Name}] = s
	}
	if s.key = s.row.Key; s.key != "" {
		r.keys[tenantName{s.tenant.Name, s.key}] = s
	}
}

// errDrained refuses new sessions while the daemon is drained.
var errDrained = fault.Overloaded.Errorf("no new session now: an administrator drains this daemon").
	Next("sessions that are there go on; try again later, or have toolctl drain --off end it")

// errKeyTaken says that another request with the same key has come first; it never
// leaves the package.
var errKeyTaken = errors.New("another session has the key")

func nameTaken(name string) error {
	return fault.Conflict.Errorf("there is a live session called %q", name).
		Next("use it, end it, or choose another name")
}

// forget takes the session out of the tables of live ones.
func (r *roster) forget(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.sessions[s.id]; !ok {
		return
	}
	delete(r.sessions, s.id)
	row := s.Row()
	if n := (tenantName{row.Tenant, row.Name}); r.names[n] == s {
		delete(r.names, n)
	}
	if k := (tenantName{row.Tenant, s.key}); r.keys[k] == s {
		delete(r.keys, k)
	}
	s.tenant.places.Give()
}

// adopted puts a session of an earlier daemon into the tables; quotas do not
// apply to what exists.
func (r *roster) adopted(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[s.id] = s
	r.nameLocked(s)
	_ = s.tenant.places.Take(nil, true, func() error { return nil }) // which always succeeds
	r.observe(func(o Observer) { o.SessionState(&s.row.Session, "") })
}

// find gives a live session by its id or name. Sessions of other tenants do not
// exist for the asker.
func (r *roster) find(p auth.Principal, idOrName string) (*Session, error) {
	r.mu.RLock()
	s := r.sessions[idOrName]
	if s == nil {
		s = r.names[tenantName{p.Tenant, idOrName}]
	}
	r.mu.RUnlock()
	if s == nil || !p.Sees(s.tenant.Name, s.id) {
		return nil, noSession(idOrName)
	}
	return s, nil
}

// rowOf gives the row of a session, live or not.
func (r *roster) rowOf(ctx context.Context, p auth.Principal, idOrName string) (*store.Session, error) {
	if s, err := r.find(p, idOrName); err == nil {
		row := s.Row()
		return &row, nil
	}
	return r.stored(ctx, p, idOrName)
}

// SessionID checks that the asker may see a session, live or not.
func (r *roster) SessionID(ctx context.Context, p auth.Principal, idOrName string) (string, error) {
	row, err := r.rowOf(ctx, p, idOrName)
	if err != nil {
		return "", err
	}
	return row.ID, nil
}

// TokenSession implements server.Sessions.
func (r *roster) TokenSession(ctx context.Context, token string) (holder auth.Principal, err error) {
	id := auth.TokenSession(token)
	r.mu.RLock()
	s := r.sessions[id]
	r.mu.RUnlock()
	var row store.Session
	if s != nil {
		row = s.Row()
	} else if kept, err := r.store.Session(ctx, id); err == nil {
		row = *kept
	}
	switch {
	case !auth.TokenIs(token, row.TokenHash):
		return auth.Principal{}, fault.Forbidden.Errorf("the token belongs to no live session").Next("ask whoever made the session for a new one")
	case s == nil:
		return auth.Principal{}, cmp.Or(r.started(), overOnRecord(&row), call.OverError(&row))
	}
	return auth.Principal{Tenant: row.Tenant, Session: row.ID, SessionName: row.Name}, nil
}

// liveOrOver gives a session that lives, or else the row of one that is over, by its id. The
// store alone says that a session is over: one that the daemon has not taken over yet, or whose
// end it could not store, is refused for now. All that treats a session as over asks here.
func (r *roster) liveOrOver(ctx context.Context, p auth.Principal, idOrName string) (*Session, *store.Session, error) {
	if err := r.started(); err != nil {
		return nil, nil, err
	}
	if s, err := r.find(p, idOrName); err == nil {
		return s, nil, nil
	}
	row, err := r.stored(ctx, p, idOrName)
	if err == nil {
		err = overOnRecord(row)
	}
	return nil, row, err
}

// overOnRecord refuses to take a session for one that is over while the store does not say so.
func overOnRecord(row *store.Session) error {
	if row.Ended != nil {
		return nil
	}
	return fault.Overloaded.Errorf("session %s is not running, and its end is not on record", row.ID).
		Next("try again in a moment; when the daemon starts again it takes the session over or ends it")
}

// notOver is liveOrOver where one that is over is refused as such.
func (r *roster) notOver(ctx context.Context, p auth.Principal, idOrName string) (*Session, error) {
	s, row, err := r.liveOrOver(ctx, p, idOrName)
	if err == nil && s == nil {
		err = call.OverError(row)
	}
	return s, err
}

// Calls implements call.Sessions.
func (r *roster) Calls(ctx context.Context, p auth.Principal, idOrName string) (*call.Group, error) {
	s, err := r.notOver(ctx, p, idOrName)
	if err != nil {
		return nil, err
	}
	return s.calls, nil
}

// newCalls makes the calls of all sessions.
func (r *roster) newCalls(q call.Quota) *call.Service {
	c := call.Config{
		Store: r.store, Tools: r.tools, Hub: r.hub, Approvals: r.approvals, Hooks: r.hooks, Quota: q,
		Settings:  func() *call.Settings { return &r.settings.Load().Settings },
		OutputDir: r.cfg.OutputDir, Memory: cmp.Or(r.cfg.Memory, budget.New(budget.Total)),
		Work: &r.work, Context: r.ctx, Internal: r.internal,
	}
	for _, o := range r.cfg.Observers {
		c.Observers = append(c.Observers, o)
	}
	if r.cfg.Auditor != nil { // not a nil Auditor of ours in an interface
		c.Auditor = r.cfg.Auditor
	}
	return call.New(c, r)
}

// AwaitTold waits until the ends of calls that somebody has been told are in the
// store, for all sessions.
func (r *roster) AwaitTold() {
	for _, s := range r.live() {
		s.calls.AwaitTold()
	}
}

// pause reports whether the daemon still runs when it is over.
func (r *roster) pause(wait time.Duration) bool {
	select {
	case <-r.ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}
