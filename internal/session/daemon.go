package session

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/approval"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/lease"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree"
)

// daemon is what sessions find in their daemon. It knows no session.
type daemon struct {
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
	trees     *trees.Service // nil where there are no worktrees of mode overlay

	// What the tests replace.
	connect func(ctx context.Context, c *net.UnixConn, h agent.Hello) (agent.Peer, *agent.Welcome, error)
	beat    beat // how agents are watched over

	ctx   context.Context //nolint:containedctx // the life of the daemon itself
	leave context.CancelCauseFunc
	work  crew.Crew    // supervisors, teardowns, the sweeper
	state atomic.Int32 // managerState
}

// destroysAtOnce bounds how many sandboxes are removed at the same time. With
// each die the filters of its processes, which Linux frees in work items that
// wait for each other: thousands at once stop it.
const destroysAtOnce = 16

func newDaemon(cfg Config) *daemon {
	m := &daemon{
		cfg: cfg, log: cfg.Log, store: cfg.Store, tools: cfg.Tools,
		hub:      event.NewHub(cfg.Store),
		destroys: make(chan struct{}, destroysAtOnce),
		beat:     beat{beatEvery, beatTime},
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
	return m
}

type managerState int32

const (
	managerStarting managerState = iota
	managerReady
	managerDraining
)

// Accepting refuses new work while the daemon starts or stops.
func (m *daemon) Accepting() error {
	switch managerState(m.state.Load()) {
	case managerStarting:
		return fault.Overloaded.Errorf("the daemon is still starting").Next("try again in a moment")
	case managerDraining:
		return fault.Overloaded.Errorf("the daemon is stopping").Next("try again when it is back; sessions and running calls go on")
	}
	return nil
}

// driver gives the driver that a session was made with.
func (m *daemon) driver(name string) (sandbox.Driver, error) {
	d, ok := m.cfg.Drivers[name]
	if !ok {
		return nil, fmt.Errorf("no driver %q in this daemon", name)
	}
	return d, nil
}

// observe tells every observer.
func (m *daemon) observe(fn func(Observer)) {
	for _, o := range m.cfg.Observers {
		fn(o)
	}
}

// freeBytes is the room on the file system of the state directory.
func (m *daemon) freeBytes() (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(m.cfg.OutputDir, &fs); err != nil {
		return 0, fmt.Errorf("look at the disk of the state directory: %w", err)
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// room says whether records have as much room as must stay free, and how much they
// have: what is free inside of the database is as good as what is free beside it.
func (m *daemon) room(ctx context.Context) (free int64, enough bool, err error) {
	least := m.settings.Load().MinFree
	if free, err = m.freeBytes(); err != nil || free >= least {
		return free, err == nil, err
	}
	inside, err := m.store.FreeBytes(ctx)
	return free + inside, err == nil && free+inside >= least, err
}
