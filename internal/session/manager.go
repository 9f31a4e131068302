package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/internal/approval"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/hook"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/lease"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree"
)

// Manager holds all sessions of a daemon.
type Manager struct {
	cfg       Config
	log       *slog.Logger
	store     *store.Store
	tools     call.Tools
	settings  atomic.Pointer[Settings]
	hub       *event.Hub
	leases    *lease.Ranges
	pins      worktree.Pinner
	hooks     *hook.Programs
	calls     *call.Service
	destroys  chan struct{} // one for each sandbox that is being removed
	approvals *approval.Desk
	court     *judge.Court
	usage     usageCache
	drives    drives
	parts     []part // of every session

	// What the tests replace.
	connect func(ctx context.Context, c *net.UnixConn, h agent.Hello) (agent.Peer, *agent.Welcome, error)
	drain   time.Duration // how long Close waits: drainTime
	beat    beat          // how agents are watched over

	ctx   context.Context //nolint:containedctx // the life of the manager itself
	leave context.CancelCauseFunc
	work  crew.Crew    // supervisors, teardowns, the sweeper
	state atomic.Int32 // managerState

	mu       sync.RWMutex // guards the fields below
	sessions map[string]*Session
	names    map[tenantName]*Session
	keys     map[tenantName]*Session // by what their requests called them
	tenants  map[string]*tenant
}

type managerState int32

const (
	managerStarting managerState = iota
	managerReady
	managerDraining
)

// tenantName is the name or the key of a live session; both are a tenant's own.
type tenantName struct{ tenant, name string }

// tenant counts what one tenant has.
type tenant struct {
	call.Tenant
	sessions int        // live or being made; guarded by Manager.mu
	queue    queue      // for a place among them; guarded by Manager.mu
	used     used       // by all its sessions, those that are over included
	making   sync.Mutex // held while room is made for them
}

// New makes a Manager. Start must be called before anything else.
func New(cfg Config) (*Manager, error) {
	if _, ok := cfg.Drivers[cfg.Driver]; !ok {
		return nil, fmt.Errorf("default driver %q is none of the given ones", cfg.Driver)
	}
	m := &Manager{
		cfg: cfg, log: cfg.Log, store: cfg.Store, tools: cfg.Tools,
		hub:      event.NewHub(cfg.Store),
		destroys: make(chan struct{}, destroysAtOnce),
		drain:    drainTime,
		beat:     beat{beatEvery, beatTime},
		sessions: make(map[string]*Session), names: make(map[tenantName]*Session), keys: make(map[tenantName]*Session), tenants: make(map[string]*tenant),
	}
	m.approvals = approval.New(approval.Setup{
		Store: cfg.Store, Log: cfg.Log,
		Config: func() *approval.Config { return &m.settings.Load().Approvals },
		Replied: func(a *client.Approval, reply string, waited time.Duration) {
			m.observe(func(o Observer) { o.ApprovalReplied(a, reply, waited) })
		},
		Programs: make(chan struct{}, approval.ProgramsAtOnce),
	})
	m.court = judge.NewCourt(cfg.Settings.court(), m.approvals, cfg.Store, m.tools)
	m.connect = func(ctx context.Context, c *net.UnixConn, h agent.Hello) (agent.Peer, *agent.Welcome, error) {
		conn, w, err := agent.Connect(ctx, c, h)
		if err != nil {
			return nil, nil, err // not a nil *agent.Conn in an interface
		}
		return conn, w, nil
	}
	m.ctx, m.leave = context.WithCancelCause(context.Background())
	m.settings.Store(&cfg.Settings)
	m.hooks = hook.NewPrograms(func() []hook.Hook { return m.settings.Load().Hooks }, m.log, func(on, outcome string, took time.Duration) {
		m.observe(func(o Observer) { o.Hooked(on, outcome, took) })
	})
	m.calls = m.newCalls()
	if err := os.MkdirAll(cfg.OutputDir, 0o700); err != nil {
		return nil, fmt.Errorf("output directory: %w", err)
	}
	// Only the daemon may list or enter it: the directories of the sessions in
	// it are readable for all, because they are mounted into sandboxes.
	if err := os.Chmod(cfg.OutputDir, 0o700); err != nil {
		return nil, fmt.Errorf("output directory: %w", err)
	}
	m.parts = partsOf(m)
	var err error
	if m.leases, err = lease.Open(cfg.UIDClaims, cfg.UIDBase, cfg.Store); err != nil {
		return nil, fmt.Errorf("ranges of host uids are shared with other daemons by a file, which cannot be used: %w", err)
	}
	return m, nil
}

// Start takes over what an earlier daemon left (see recover.go) and then lets
// sessions and calls begin.
func (m *Manager) Start(ctx context.Context) error {
	m.store.OnEvents(m.hub.Publish)
	if err := m.approvals.Load(ctx); err != nil {
		return fmt.Errorf("read saved approvals: %w", err)
	}
	if err := m.recover(ctx); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	if err := m.approvals.EndLost(ctx); err != nil {
		return fmt.Errorf("end approvals that nothing waits for: %w", err)
	}
	m.work.Go(m.sweeper)
	m.state.CompareAndSwap(int32(managerStarting), int32(managerReady))
	return nil
}

// Reload replaces the settings for sessions and calls that begin afterwards. Calls
// that wait for approval are judged again.
func (m *Manager) Reload(s Settings) {
	m.settings.Store(&s)
	m.court.Configure(s.court())
	m.approvals.Rejudge("")
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tenants {
		t.queue.move() // there may be more places
	}
}

// drainTime is how long Close waits for calls that are about to end anyway.
const drainTime = 2 * time.Second

// Close lets go of everything and leaves the sessions and their calls running,
// for the next daemon. New work is refused at once; short calls may end first.
func (m *Manager) Close(ctx context.Context) error {
	m.state.Store(int32(managerDraining))
	idle, cancel := context.WithTimeout(ctx, m.drain)
	m.calls.AwaitIdle(idle)
	cancel()
	m.leave(call.ErrLeaving)
	m.hub.Close()
	for _, s := range m.live() {
		s.detach()
	}
	m.work.Close()
	// The ranges of what goes on stay marked, for the next daemon to claim.
	if err := m.leases.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// EndAll ends every session, for daemons that live no longer than one command.
// It refuses new ones from then on.
func (m *Manager) EndAll(ctx context.Context) error {
	m.state.Store(int32(managerDraining))
	var errs []error
	var wg sync.WaitGroup
	var mu sync.Mutex // guards errs
	for _, s := range m.live() {
		wg.Go(func() {
			if err := s.end(ctx, ending{state: client.SessionEnded, reason: "the daemon ended", force: true}); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// live lists the sessions that are not over.
func (m *Manager) live() []*Session {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*Session, 0, len(m.sessions))
	for _, s := range m.sessions {
		all = append(all, s)
	}
	return all
}

// liveByID gives a session that is not over; nil for others.
func (m *Manager) liveByID(id string) *Session {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.sessions[id]
}

// Ready implements server.Daemon.
func (m *Manager) Ready(ctx context.Context) client.Health {
	switch managerState(m.state.Load()) {
	case managerStarting:
		return client.Health{Status: "starting", Reasons: []string{"sessions of the last run are being taken over"}}
	case managerDraining:
		return client.Health{Status: "draining", Reasons: []string{"the daemon is stopping"}}
	}
	if reasons := m.failing(ctx); len(reasons) > 0 {
		return client.Health{Status: "failing", Reasons: reasons}
	}
	return client.Health{Status: "ok"}
}

// failing says what keeps sessions and calls from being made.
func (m *Manager) failing(ctx context.Context) (reasons []string) {
	free, enough, err := m.room(ctx)
	switch {
	case err != nil:
		reasons = append(reasons, err.Error())
	case !enough:
		reasons = append(reasons, fmt.Sprintf("only %s are free on the disk of the state directory, and %s must stay: large inputs are refused and outputs not kept",
			client.Size(free), client.Size(m.settings.Load().MinFree)))
	}
	if err := m.store.Ready(); err != nil {
		reasons = append(reasons, "records cannot be stored: "+err.Error())
	}
	if m.cfg.Auditor != nil {
		if err := m.cfg.Auditor.Ready(); err != nil {
			reasons = append(reasons, "the audit log refuses calls: "+err.Error())
		}
	}
	if err := m.drives.ask(ctx, m); err != nil {
		reasons = append(reasons, fmt.Sprintf("the driver %s does not answer: %v", m.cfg.Driver, err))
	}
	return reasons
}

// driverFresh is how old the answer of a driver may be, and driverTime how long it
// may take: a Docker Engine may be far away.
const (
	driverFresh = 5 * time.Second
	driverTime  = 5 * time.Second
)

// drives keeps the last answer of the default driver.
type drives struct {
	mu  sync.Mutex // held while it is asked; guards the fields below
	at  time.Time
	err error
}

func (d *drives) ask(ctx context.Context, m *Manager) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || time.Since(d.at) >= driverFresh {
		// For whoever asks next, too: it does not end with this request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), driverTime)
		defer cancel()
		_, d.err = m.cfg.Drivers[m.cfg.Driver].List(ctx, m.cfg.Owner)
		d.at = time.Now()
	}
	return d.err
}

// Accepting refuses new work while the daemon starts or stops.
func (m *Manager) Accepting() error {
	switch managerState(m.state.Load()) {
	case managerStarting:
		return &client.Error{Code: client.CodeOverloaded, Message: "the daemon is still starting", Hint: "try again in a moment"}
	case managerDraining:
		return &client.Error{Code: client.CodeOverloaded, Message: "the daemon is stopping", Hint: "try again when it is back; sessions and running calls go on"}
	}
	return nil
}

// driver gives the driver that a session was made with.
func (m *Manager) driver(name string) (sandbox.Driver, error) {
	d, ok := m.cfg.Drivers[name]
	if !ok {
		return nil, fmt.Errorf("no driver %q in this daemon", name)
	}
	return d, nil
}

// tenant gives the counters of a tenant.
func (m *Manager) tenant(name string) *tenant {
	m.mu.RLock()
	t := m.tenants[name]
	m.mu.RUnlock()
	if t != nil {
		return t
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t = m.tenants[name]; t == nil {
		t = &tenant{Tenant: call.Tenant{Name: name}}
		m.tenants[name] = t
	}
	return t
}

// observe tells every observer.
func (m *Manager) observe(fn func(Observer)) {
	for _, o := range m.cfg.Observers {
		fn(o)
	}
}
