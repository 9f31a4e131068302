package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
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
	"github.com/toold/toold/internal/session/queue"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/steady"
	"github.com/toold/toold/internal/store"
)

// createTime bounds the making of one sandbox.
const createTime = 60 * time.Second

// Create implements server.Sessions.
func (l *life) Create(ctx context.Context, p auth.Principal, r client.SessionCreate) (*client.Session, error) {
	return l.CreateQueued(ctx, p, r, nil)
}

// CreateQueued implements server.Sessions. Everything is checked before anything is done, and
// what is done is in the store before it is done.
func (l *life) CreateQueued(ctx context.Context, p auth.Principal, r client.SessionCreate, queued func(position int)) (*client.Session, error) {
	if err := p.Whole(); err != nil {
		return nil, err
	}
	if err := l.Accepting(); err != nil {
		return nil, err
	}
	if r.Key == "" {
		return l.createQueued(ctx, p, r, queued)
	}
	for {
		v, err := l.keyed(ctx, p, &r)
		if err != nil {
			return nil, l.internal("find a session by its key", err)
		}
		if v != nil {
			return v, nil
		}
		v, err = l.createQueued(ctx, p, r, queued)
		if !errors.Is(err, errKeyTaken) {
			return v, err
		}
	}
}

// maxQueue is how long a request may wait for a place.
const maxQueue = 24 * time.Hour

// createQueued is create for a request that may wait for a place. What is wrong
// with the request it says before it waits. While it waits it holds nothing: all
// that the request names is looked at again when it has a place.
func (l *life) createQueued(ctx context.Context, p auth.Principal, r client.SessionCreate, queued func(position int)) (*client.Session, error) {
	if err := l.mayBegin(); err != nil {
		return nil, err
	}
	if r.Queue < 0 || time.Duration(r.Queue) > maxQueue {
		return nil, fault.In(fault.Invalid.Errorf("queue %s: give a time up to %s, or 0 to wait for nothing", r.Queue, client.Duration(maxQueue)), "queue")
	}
	v, err := l.create(ctx, p, r, nil, trees.Seed{})
	if !errors.Is(err, queue.ErrFull) {
		return v, err
	}
	places := l.tenant(p.Tenant).places
	if r.Queue == 0 {
		return nil, places.None()
	}
	w, err := places.Join()
	if err != nil {
		return nil, err
	}
	defer places.Leave(w)
	late := time.NewTimer(time.Duration(r.Queue))
	defer late.Stop()
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() {
		cancel(fault.Overloaded.Errorf("the daemon is stopping").Next("try again when it is back"))
	})()
	for {
		if err := places.Await(waiting, w, late.C, queued, l.mayBegin); err != nil {
			return nil, l.internal("wait for a place", err)
		}
		if v, err = l.create(ctx, p, r, w, trees.Seed{}); !errors.Is(err, queue.ErrFull) {
			return v, err
		}
	}
}

// create makes a session; w is its place in the queue, nil for none. Errors of its
// own are errKeyTaken and queue.ErrFull.
func (l *life) create(ctx context.Context, p auth.Principal, r client.SessionCreate, w *queue.Turn, from trees.Seed) (*client.Session, error) {
	pl, err := l.plan(ctx, p, r, from)
	if err != nil {
		return nil, l.internal("plan a session", err)
	}
	defer pl.close()
	s, err := l.reserve(pl, w)
	if err != nil {
		if errors.Is(err, errKeyTaken) || errors.Is(err, queue.ErrFull) {
			return nil, err
		}
		return nil, l.internal("reserve a session", err)
	}
	if err := l.build(ctx, s, pl); err != nil {
		return nil, l.startFailed(s, err)
	}
	l.work.Go(s.id, (&supervisor{Session: s}).run)
	v := s.snapshot(ctx)
	v.Token = pl.token
	return v, nil
}

// plan checks the request and pins what it names.
func (l *life) plan(ctx context.Context, p auth.Principal, r client.SessionCreate, from trees.Seed) (*plan, error) {
	set := l.settings.Load()
	ten := set.Tenants[p.Tenant]
	d, err := l.driver(l.cfg.Driver)
	if err != nil {
		return nil, err
	}
	var hash []byte
	if r.Key != "" { // before anything is filled in
		if hash, err = keyHash(p, &r); err != nil {
			return nil, err
		}
	}
	if err := l.checkImage(&r, set, p.Tenant); err != nil {
		return nil, err
	}
	if !from.Internal {
		if err := set.settleMode(&r, p.Tenant); err != nil {
			return nil, err
		}
		if err := set.settleIdentity(&r.Worktree); err != nil {
			return nil, err
		}
	}
	asked := r.Limits
	bounds := l.bounds(p, set, from)
	bounds.AtMost = r.AtMost
	notes, err := l.checkCreate(ctx, &r, d, set, ten, bounds)
	if err != nil {
		return nil, err
	}
	if err := l.checkRules(p.Tenant, &r); err != nil {
		return nil, err
	}
	r.Mounts = slices.Clone(r.Mounts) // which changes here
	pl := &plan{p: p, set: set, req: r, asked: asked, disk: r.Limits.Disk, driver: d, keyHash: hash, notes: notes, seed: from}
	pl.req.Limits.Disk = asked.Disk
	if from.Internal { // it looks at what another one has
		pl.req.Budget = client.Budget{}
	}
	for _, part := range l.parts {
		if err := part.claim(ctx, pl); err != nil {
			pl.close()
			return nil, err
		}
	}
	return pl, nil
}

// reserve takes a place for the session: quota, name and uid range. When it
// returns, the store knows of all that start is going to make.
func (l *life) reserve(pl *plan, w *queue.Turn) (*Session, error) {
	row := l.newRow(pl)
	s := newSession(l.daemon, l.tenant(row.Tenant), row, pl.driver, l.teardown)
	s.making = make(chan struct{})
	if err := l.enter(s, w, pl.seed.Internal); err != nil {
		return nil, err
	}
	base, err := l.leases.Take()
	if err != nil {
		if errors.Is(err, lease.ErrNone) {
			err = fault.Overloaded.Errorf("%w", err).
				Next("end sessions; an administrator sees leftovers with: toolctl gc --dry-run")
		}
		l.forget(s)
		close(s.making)
		return nil, err
	}
	s.row.UIDBase = base
	err = l.store.Write(func(tx *store.Tx) error {
		return errors.Join(tx.PutSession(&s.row), tx.TakeLease(base, s.id))
	})
	if err != nil {
		l.leases.Drop(base)
		l.forget(s)
		close(s.making)
		if errors.Is(err, store.ErrExists) {
			return nil, nameTaken(row.Name)
		}
		return nil, err
	}
	l.observe(func(o Observer) { o.SessionState(&row.Session, "") })
	s.mu.Lock()
	s.holdings, pl.holdings = pl.holdings, holdings{}
	s.mu.Unlock()
	pl.spec.ID, pl.spec.Nonce = sandboxID(l.cfg.Owner, &s.row), row.Nonce
	pl.spec.Runtime, pl.spec.Limits = row.Runtime, row.Limits
	pl.spec.OutputDir = s.outDir
	return s, nil
}

// newRow makes the row of a session that is about to be made.
func (l *life) newRow(pl *plan) store.Session {
	p, r := pl.p, pl.req
	var random [48]byte
	// rand.Read does not return without randomness: the process ends instead.
	_, _ = rand.Read(random[:])
	id := l.store.NewID("ses_")
	if r.Token {
		pl.token, pl.hash = auth.NewToken(id)
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	v := client.Session{
		ID: id, Key: r.Key, Name: r.Name, State: client.SessionCreating, Tenant: p.Tenant, Profile: r.Profile,
		Driver: pl.driver.Name(), Runtime: cmp.Or(r.Runtime, l.cfg.Runtime), Worktree: r.Worktree, Mounts: r.Mounts, Caches: r.Caches, Network: r.Network,
		Limits: r.Limits, Budget: budgetOf(r.Budget), Labels: maps.Clone(r.Labels), TTL: r.TTL, IdleTimeout: r.IdleTimeout, LeasePID: r.LeasePID,
		Created: now,
	}
	var until *steady.Deadline
	v.Expires, until = expiry(now, r.TTL)
	v.Image = r.Image
	if pl.image != nil {
		v.Image = imageRef(pl.image)
	}
	r.Env, r.Limits = namesOnly(r.Env), pl.asked // what was filled in is nobody's wish
	return store.Session{
		Session: v, Request: r, OwnerUID: p.UID, Incarnation: hex.EncodeToString(random[:16]), Nonce: random[16:],
		Until: until, Born: steady.Now().In(0), Internal: pl.seed.Internal, HomeDisk: pl.homeDisk, CachePlaces: pl.caches.places, Sources: pl.sources, LeaseStart: pl.start, TokenHash: pl.hash, KeyHash: pl.keyHash, Shell: l.settings.Load().Shell,
	}
}

// expiry is when a session ends that lives so long from now on; nil is never.
func expiry(now time.Time, ttl client.Duration) (*time.Time, *steady.Deadline) {
	if ttl <= 0 {
		return nil, nil
	}
	t := now.Add(time.Duration(ttl))
	return &t, steady.Now().In(time.Duration(ttl))
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

// build is start, bounded in time. It ends early with the session, whose end waits
// for it: what would be made after that nobody would remove.
func (l *life) build(ctx context.Context, s *Session, pl *plan) error {
	defer close(s.making)
	ctx, cancel := context.WithTimeout(ctx, createTime)
	defer cancel()
	defer context.AfterFunc(s.ctx, func() {
		if errors.Is(context.Cause(s.ctx), agent.ErrOver) { // and not call.ErrLeaving: the next daemon sees what there is
			cancel()
		}
	})()
	return l.start(ctx, s, pl)
}

// start makes the sandbox and connects to its agent.
func (l *life) start(ctx context.Context, s *Session, pl *plan) error {
	begun := time.Now()
	for _, part := range l.parts {
		if err := part.open(ctx, s, pl); err != nil {
			return err
		}
	}
	env := overlayEnv(pl) // what was asked for goes before it
	maps.Copy(env, pl.caches.env)
	maps.Copy(env, pl.req.Env)
	maps.Copy(env, pl.git.Env())
	w, err := s.dial(ctx, env)
	if err != nil {
		return err
	}
	if err := s.sb.Attach(ctx, w.ForkTID); err != nil {
		return fmt.Errorf("put the tools under their limits: %w", err)
	}
	if err := l.enclose(ctx, s, pl.seed.Internal); err != nil {
		return err
	}
	if err := configureGit(ctx, s, pl.git.Config()+gitConfig(pl.req.Worktree.Identity)); err != nil {
		return err
	}
	// A hook has its own timeout, which is not that of making a sandbox.
	if err := l.hooksCreated(s.ctx, s.Row(), s.log); err != nil {
		return err
	}
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	s.judge.Fresh()
	var closed []string
	if row := s.Row(); w.Hides && !row.Granted && len(row.Mounts) > 0 {
		closed = closable(&row, pl.git, s.hello(env, nil).Env)
	}
	err = s.write(client.EventSessionCreated, func(r *store.Session) error {
		if r.State != client.SessionCreating {
			return agent.ErrOver
		}
		r.State, r.Worktree.IDMap, r.Closed = client.SessionReady, s.sb.IDMap(), closed
		if pl.git != nil && pl.git.Note != "" {
			pl.notes = append(pl.notes, pl.git.Note)
		}
		r.Notes = slices.Concat(pl.notes, doubtsOf(r), checkpointNote(s), s.sb.Notes(), w.Notes)
		return nil
	})
	if err != nil {
		return err
	}
	s.toolSet() // so that the first call finds it, and the rules
	l.observe(func(o Observer) { o.SandboxCreated(s.Row().Runtime, false, time.Since(begun)) })
	return nil
}

// configureGit writes git's configuration of the user where git has to be told something.
func configureGit(ctx context.Context, s *Session, config string) error {
	if config == "" {
		return nil
	}
	if err := s.furnish(); err != nil {
		return err
	}
	e, err := s.Errand()
	if err == nil {
		err = e.Make(ctx, sandbox.Home+"/.gitconfig", config, worktreeRulesTime)
	}
	if err != nil {
		return fmt.Errorf("write git's configuration: %w", err)
	}
	return nil
}

// checkpointNote says that the checkpoints which the configuration makes by itself are not to be
// had of this sandbox.
func checkpointNote(s *Session) []string {
	every := s.daemon.settings.Load().Worktrees.Checkpoint
	if s.row.Worktree.Mode != client.WorktreeOverlay || every == "" || every == trees.Never {
		return nil
	}
	if err := s.Relays(); err != nil {
		return []string{fmt.Sprintf("no checkpoints are made before calls ([worktrees] checkpoint): %v", err)}
	}
	return nil
}

// startFailed removes what start made and says what went wrong.
func (l *life) startFailed(s *Session, cause error) error {
	ended := s.isEnding() // by somebody else, and that is why
	err := s.end(context.Background(), ending{state: client.SessionLost, reason: "it could not be made: " + cause.Error(), force: true})
	if err != nil {
		s.log.Error("clean up after a failed creation", "error", err)
	}
	var fe *fault.Error
	var ce *client.Error
	var he *sandbox.HostError
	switch {
	case ended:
		row := s.Row()
		return call.OverError(&row)
	case errors.As(cause, &he):
		s.log.Error("create a session", "error", cause)
		return fault.Sandbox.Errorf("no sandbox can be made here: %s; %s", he.Cause, he.Hint)
	case errors.As(cause, &fe):
		return fe
	case errors.As(cause, &ce): // a hook's
		return ce
	case errors.Is(cause, sandbox.ErrUnsupported):
		return fault.Invalid.Errorf("%s", plain.Cut(sandbox.Wrong(cause), call.MaxNote)).Next("leave out what is not enforceable here, or ask for another runtime; toolctl doctor shows what this host can")
	case errors.Is(cause, sandbox.ErrMountTarget):
		return fault.Invalid.Errorf("%s", plain.Cut(sandbox.Wrong(cause), call.MaxNote)).
			Next("it must be a plain directory (of git's config, a file), not a link; put that right, or leave the mount out")
	case errors.Is(cause, store.ErrFull), errors.Is(cause, context.Canceled):
		return l.internal("create session "+s.id, cause)
	}
	ref := l.store.NewID("err_")
	s.log.Error("create a session", "reference", ref, "error", cause)
	if l.settings.Load().Private {
		// Its log ends with it.
		return fault.Sandbox.Errorf("the sandbox of session %s could not be made: %s", s.id, plain.Cut(cause.Error(), call.MaxNote)).
			Next("toolctl doctor shows what is wrong with this host")
	}
	return fault.Sandbox.Errorf("the sandbox of session %s could not be made (%s)", s.id, ref).
		Next("toolctl doctor shows what is wrong with this host; the daemon's log has the cause under the reference")
}
