package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/lease"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree/layers"
)

// createTime bounds the making of one sandbox.
const createTime = 60 * time.Second

// plan is a request that was checked, with all that it names held open.
type plan struct {
	p        auth.Principal // who asks
	set      *Settings
	req      client.SessionCreate
	disk     client.Size // limits.disk of one with a layer to write to; there is no default for nothing
	driver   sandbox.Driver
	spec     sandbox.Spec
	holdings        // until the session has taken it over
	start    uint64 // of the lease process
	token    string
	hash     []byte
	notes    []string // for the session's
	seed     seed
	layers   []*os.File // of a worktree of mode overlay

	keyHash []byte // of the request; nil without a key
}

// close lets go of the pinned directories: the sandbox has mounts of its own.
func (p *plan) close() {
	if p.spec.Worktree.Source != nil {
		_ = p.spec.Worktree.Source.Close()
	}
	for _, mt := range p.spec.Mounts {
		_ = mt.Source.Close()
	}
	layers.Close(p.layers)
	if p.image != nil {
		p.image.Release()
	}
	p.holder.Close()
}

// Create implements server.Sessions.
func (m *Manager) Create(ctx context.Context, p auth.Principal, r client.SessionCreate) (*client.Session, error) {
	return m.CreateQueued(ctx, p, r, nil)
}

// CreateQueued implements server.Sessions. Everything is checked before anything is done, and
// what is done is in the store before it is done.
func (m *Manager) CreateQueued(ctx context.Context, p auth.Principal, r client.SessionCreate, queued func(position int)) (*client.Session, error) {
	if err := p.Whole(); err != nil {
		return nil, err
	}
	if err := m.Accepting(); err != nil {
		return nil, err
	}
	if r.Key == "" {
		return m.createQueued(ctx, p, r, queued)
	}
	for {
		v, err := m.keyed(ctx, p, &r)
		if err != nil {
			return nil, m.internal("find a session by its key", err)
		}
		if v != nil {
			return v, nil
		}
		v, err = m.createQueued(ctx, p, r, queued)
		if !errors.Is(err, errKeyTaken) {
			return v, err
		}
	}
}

// create makes a session; w is its place in the queue, nil for none. Errors of its
// own are errKeyTaken and errFull.
func (m *Manager) create(ctx context.Context, p auth.Principal, r client.SessionCreate, w *place, from seed) (*client.Session, error) {
	pl, err := m.plan(ctx, p, r, from)
	if err != nil {
		return nil, m.internal("plan a session", err)
	}
	defer pl.close()
	s, err := m.reserve(pl, w)
	if err != nil {
		if errors.Is(err, errKeyTaken) || errors.Is(err, errFull) {
			return nil, err
		}
		return nil, m.internal("reserve a session", err)
	}
	if err := s.build(ctx, pl); err != nil {
		return nil, s.startFailed(err)
	}
	m.work.Go(s.supervise)
	v := s.snapshot(ctx)
	v.Token = pl.token
	return v, nil
}

// plan checks the request and pins what it names.
func (m *Manager) plan(ctx context.Context, p auth.Principal, r client.SessionCreate, from seed) (*plan, error) {
	set := m.settings.Load()
	ten := set.Tenants[p.Tenant]
	d, err := m.driver(m.cfg.Driver)
	if err != nil {
		return nil, err
	}
	var hash []byte
	if r.Key != "" { // before anything is filled in
		if hash, err = keyHash(p, &r); err != nil {
			return nil, err
		}
	}
	if err := m.checkImage(&r, set, p.Tenant); err != nil {
		return nil, err
	}
	disk := r.Limits.Disk
	if err := m.checkCreate(&r, d, set, ten, set.free(p)); err != nil {
		return nil, err
	}
	if err := m.checkRules(p.Tenant, &r); err != nil {
		return nil, err
	}
	pl := &plan{p: p, set: set, req: r, disk: r.Limits.Disk, driver: d, keyHash: hash, seed: from}
	pl.req.Limits.Disk = disk
	for _, part := range m.parts {
		if err := part.claim(ctx, pl); err != nil {
			pl.close()
			return nil, err
		}
	}
	return pl, nil
}

// reserve takes a place for the session: quota, name and uid range. When it
// returns, the store knows of all that start is going to make.
func (m *Manager) reserve(pl *plan, w *place) (*Session, error) {
	row := m.newRow(pl)
	s := newSession(m, row, pl.driver)
	s.making = make(chan struct{})
	if err := m.enter(s, w); err != nil {
		return nil, err
	}
	base, err := m.leases.Take()
	if err != nil {
		if errors.Is(err, lease.ErrNone) {
			err = fault.Overloaded.Errorf("%w", err).
				Next("end sessions; an administrator sees leftovers with: toolctl gc --dry-run")
		}
		m.forget(s)
		close(s.making)
		return nil, err
	}
	s.row.UIDBase = base
	err = m.store.Write(func(tx *store.Tx) error {
		return errors.Join(tx.PutSession(&s.row), tx.TakeLease(base, s.id))
	})
	if err != nil {
		m.leases.Drop(base)
		m.forget(s)
		close(s.making)
		if errors.Is(err, store.ErrExists) {
			return nil, nameTaken(row.Name)
		}
		return nil, err
	}
	m.observe(func(o Observer) { o.SessionState(&row.Session, "") })
	s.mu.Lock()
	s.holdings, pl.holdings = pl.holdings, holdings{}
	s.mu.Unlock()
	pl.spec.ID, pl.spec.Nonce = sandboxID(m.cfg.Owner, &s.row), row.Nonce
	pl.spec.Runtime, pl.spec.Limits = row.Runtime, row.Limits
	pl.spec.OutputDir = s.outDir
	return s, nil
}

// newRow makes the row of a session that is about to be made.
func (m *Manager) newRow(pl *plan) store.Session {
	p, r := pl.p, pl.req
	var random [48]byte
	// rand.Read does not return without randomness: the process ends instead.
	_, _ = rand.Read(random[:])
	id := m.store.NewID("ses_")
	if r.Token {
		pl.token, pl.hash = auth.NewToken(id)
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	v := client.Session{
		ID: id, Key: r.Key, Name: r.Name, State: client.SessionCreating, Tenant: p.Tenant, Profile: r.Profile,
		Driver: pl.driver.Name(), Runtime: cmp.Or(r.Runtime, m.cfg.Runtime), Worktree: r.Worktree, Mounts: r.Mounts, Network: r.Network,
		Limits: r.Limits, Labels: maps.Clone(r.Labels), TTL: r.TTL, IdleTimeout: r.IdleTimeout, LeasePID: r.LeasePID,
		Created: now, Expires: expiry(now, r.TTL),
	}
	v.Image = r.Image
	if pl.image != nil {
		v.Image = imageRef(pl.image)
	}
	r.Env = namesOnly(r.Env)
	return store.Session{
		Session: v, Request: r, OwnerUID: p.UID, Incarnation: hex.EncodeToString(random[:16]), Nonce: random[16:],
		LeaseStart: pl.start, TokenHash: pl.hash, KeyHash: pl.keyHash, Shell: m.settings.Load().Shell,
	}
}

func expiry(from time.Time, ttl client.Duration) *time.Time {
	if ttl <= 0 {
		return nil
	}
	t := from.Add(time.Duration(ttl))
	return &t
}

// namesOnly drops the values of an environment: they may be secrets.
func namesOnly(env map[string]string) map[string]string {
	if len(env) == 0 {
		return nil
	}
	names := make(map[string]string, len(env))
	for k := range env {
		names[k] = ""
	}
	return names
}

// enter adds the session to the tables, if the tenant may have another one, nobody
// else is to have it first, and the name is free. Then it waits no more.
func (m *Manager) enter(s *Session, w *place) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fullLocked(s.tenant, w) {
		return errFull
	}
	n, k := tenantName{s.tenant.Name, s.row.Name}, tenantName{s.tenant.Name, s.row.Key}
	switch {
	case k.name != "" && m.keys[k] != nil:
		return errKeyTaken
	case n.name != "" && m.names[n] != nil:
		return nameTaken(n.name)
	}
	m.nameLocked(s)
	m.sessions[s.id] = s
	s.tenant.sessions++
	s.tenant.queue.remove(w)
	return nil
}

// errKeyTaken says that another request with the same key has come first; it never
// leaves the package.
var errKeyTaken = errors.New("another session has the key")

// nameLocked makes the session known by its name and its key.
func (m *Manager) nameLocked(s *Session) {
	if s.row.Name != "" {
		m.names[tenantName{s.tenant.Name, s.row.Name}] = s
	}
	if s.key = s.row.Key; s.key != "" {
		m.keys[tenantName{s.tenant.Name, s.key}] = s
	}
}

func nameTaken(name string) error {
	return fault.Conflict.Errorf("there is a live session called %q", name).
		Next("use it, end it, or choose another name")
}

// build is start, bounded in time. It ends early with the session, whose end waits
// for it: what would be made after that nobody would remove.
func (s *Session) build(ctx context.Context, pl *plan) error {
	defer close(s.making)
	ctx, cancel := context.WithTimeout(ctx, createTime)
	defer cancel()
	defer context.AfterFunc(s.ctx, func() {
		if errors.Is(context.Cause(s.ctx), agent.ErrOver) { // and not call.ErrLeaving: the next daemon sees what there is
			cancel()
		}
	})()
	return s.start(ctx, pl)
}

// start makes the sandbox and connects to its agent.
func (s *Session) start(ctx context.Context, pl *plan) error {
	begun := time.Now()
	for _, part := range s.m.parts {
		if err := part.open(ctx, s, pl); err != nil {
			return err
		}
	}
	w, err := s.dial(ctx, pl.req.Env)
	if err != nil {
		return err
	}
	if err := s.sb.Attach(ctx, w.ForkTID); err != nil {
		return fmt.Errorf("put the tools under their limits: %w", err)
	}
	if err := s.readWorktreeRules(ctx); err != nil {
		return err
	}
	// A hook has its own timeout, which is not that of making a sandbox.
	if err := s.hooksCreated(s.ctx); err != nil {
		return err
	}
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	err = s.write(client.EventSessionCreated, func(r *store.Session) error {
		if r.State != client.SessionCreating {
			return agent.ErrOver
		}
		r.State, r.Worktree.IDMap = client.SessionReady, s.sb.IDMap()
		r.Notes = slices.Concat(pl.notes, s.sb.Notes(), w.Notes)
		return nil
	})
	if err != nil {
		return err
	}
	s.m.observe(func(o Observer) { o.SandboxCreated(s.Row().Runtime, false, time.Since(begun)) })
	return nil
}

// startFailed removes what start made and says what went wrong.
func (s *Session) startFailed(cause error) error {
	ended := s.isEnding() // by somebody else, and that is why
	err := s.end(context.Background(), ending{state: client.SessionLost, reason: "it could not be made: " + cause.Error(), force: true})
	if err != nil {
		s.log.Error("clean up after a failed creation", "error", err)
	}
	var fe *fault.Error
	var ce *client.Error
	switch {
	case ended:
		row := s.Row()
		return call.OverError(&row)
	case errors.As(cause, &fe):
		return fe
	case errors.As(cause, &ce): // a hook's
		return ce
	case errors.Is(cause, sandbox.ErrUnsupported):
		return fault.Invalid.Errorf("%s", errors.Unwrap(cause))
	case errors.Is(cause, sandbox.ErrMountTarget):
		return fault.Invalid.Errorf("%s", plain.Cut(errors.Unwrap(cause).Error(), call.MaxNote)).
			Next("it must be a plain directory (of git's config, a file), not a link; put that right, or leave the mount out")
	case errors.Is(cause, store.ErrFull), errors.Is(cause, context.Canceled):
		return s.m.internal("create session "+s.id, cause)
	}
	ref := s.m.store.NewID("err_")
	s.log.Error("create a session", "reference", ref, "error", cause)
	if he, ok := errors.AsType[*sandbox.HostError](cause); ok {
		return fault.Sandbox.Errorf("no sandbox can be made here: %s; %s", he.Cause, he.Hint)
	}
	if s.m.settings.Load().Private {
		// Its log ends with it.
		return fault.Sandbox.Errorf("the sandbox of session %s could not be made: %s", s.id, plain.Cut(cause.Error(), call.MaxNote)).
			Next("toolctl doctor shows what is wrong with this host")
	}
	return fault.Sandbox.Errorf("the sandbox of session %s could not be made (%s)", s.id, ref).
		Next("toolctl doctor shows what is wrong with this host; the daemon's log has the cause under the reference")
}
