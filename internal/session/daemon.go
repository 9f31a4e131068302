package session

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

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
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/skill"
	"github.com/toold/toold/internal/steady"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
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
	mounts    worktree.Mounts
	hooks     *hook.Programs
	calls     *call.Service
	destroys  chan struct{} // one for each sandbox that is being removed
	approvals *approval.Desk
	court     *judge.Court
	trees     *trees.Service
	disk      *hostDisk
	memory    *hostMemory
	clock     *steady.Slow // of what goes when it is old

	// What the tests replace.
	connect func(ctx context.Context, c *net.UnixConn, h agent.Hello) (agent.Peer, *agent.Welcome, error)
	beat    beat // how agents are watched over
	// runners are those of the calls of a session, beside the daemon's own.
	runners func(*Session) map[tool.By]call.Runner

	ctx     context.Context //nolint:containedctx // the life of the daemon itself
	leave   context.CancelCauseFunc
	work    crew.Crew             // supervisors, teardowns, the sweeper
	state   atomic.Int32          // managerState
	shows   atomic.Pointer[error] // why only what is on record is shown; nil where all is done
	drained atomic.Bool           // no new session begins
}

// destroysAtOnce bounds how many sandboxes are removed at the same time. With
// each die the filters of its processes, which Linux frees in work items that
// wait for each other: thousands at once stop it.
const destroysAtOnce = 16

func newDaemon(cfg Config) *daemon {
	dm := &daemon{
		cfg: cfg, log: cfg.Log, store: cfg.Store, tools: cfg.Tools,
		hub:      event.NewHub(cfg.Store),
		disk:     newHostDisk(filepath.Dir(cfg.OutputDir)),
		memory:   &hostMemory{look: room.Memory, patience: memoryTime},
		destroys: make(chan struct{}, destroysAtOnce),
		beat:     beat{beatEvery, beatIdle, beatTime},
		runners:  runnersOf,
	}
	dm.approvals = approval.New(approval.Setup{
		Store: cfg.Store, Log: cfg.Log,
		Config: func() *approval.Config { return &dm.settings.Load().Approvals },
		Replied: func(a *client.Approval, reply string, waited time.Duration) {
			dm.observe(func(o Observer) { o.ApprovalReplied(a, reply, waited) })
		},
		Programs: make(chan struct{}, approval.ProgramsAtOnce),
	})
	dm.court = judge.NewCourt(cfg.Settings.court(), dm.approvals, cfg.Store, dm.tools)
	dm.connect = func(ctx context.Context, c *net.UnixConn, h agent.Hello) (agent.Peer, *agent.Welcome, error) {
		conn, w, err := agent.Connect(ctx, c, h)
		if err != nil {
			return nil, nil, err // not a nil *agent.Conn in an interface
		}
		return conn, w, nil
	}
	mark, err := cfg.Store.Clock(context.Background())
	if err != nil {
		dm.log.Error("go on with the clock of sweeps", "error", err) // from now on, then
	}
	dm.clock = steady.NewSlow(mark, steady.Now)
	dm.ctx, dm.leave = context.WithCancelCause(context.Background())
	dm.settings.Store(&cfg.Settings)
	warnOfSkills(dm.log, cfg.Settings.Skills)
	dm.hooks = hook.NewPrograms(func() []hook.Hook { return dm.settings.Load().Hooks }, dm.log, func(on, outcome string, took time.Duration) {
		dm.observe(func(o Observer) { o.Hooked(on, outcome, took) })
	})
	return dm
}

// keepClock stores the clock of sweeps, for the next daemon.
func (dm *daemon) keepClock() {
	dm.clock.Now() // which notices that somebody has set the wall clock
	mark := dm.clock.Mark()
	if err := dm.store.Write(func(tx *store.Tx) error { return tx.SetClock(mark) }); err != nil {
		dm.log.Error("store the clock of sweeps", "error", err)
	}
}

// skills are those of the host that models can load now, and whether worktrees add theirs.
func (dm *daemon) skills() (host *skill.Library, trees bool) {
	set := dm.settings.Load()
	return set.Skills, set.Worktrees.Skills
}

// runnersOf run the calls of a session.
func runnersOf(s *Session) map[tool.By]call.Runner {
	return map[tool.By]call.Runner{tool.ByAgent: &s.agent}
}

type managerState int32

const (
	managerStarting managerState = iota
	managerReady
	managerDraining
)

// Accepting refuses new work while the daemon starts or stops.
func (dm *daemon) Accepting() error {
	if managerState(dm.state.Load()) == managerDraining {
		return fault.Overloaded.Errorf("the daemon is stopping").Next("try again when it is back; sessions and running calls go on")
	}
	return dm.started()
}

// started refuses what is about a session while the daemon starts. Until it has taken over the
// sessions of the last run it does not know which of them live: taking one that lives for one
// that is over would give its worktree away under its tools.
func (dm *daemon) started() error {
	if err := dm.showing(); err != nil {
		return err
	}
	if managerState(dm.state.Load()) == managerStarting {
		return fault.Overloaded.Errorf("the daemon is still starting").Next("try again in a moment: toolctl ready --wait 1m waits for that")
	}
	return nil
}

// goesOn is what to do for a daemon that only shows.
const goesOn = "have space freed on the disk of its state directory, or have it made writable; toold goes on by itself then"

// showing refuses what a daemon that only shows (Manager.Show) cannot do.
func (dm *daemon) showing() error {
	why := dm.shows.Load()
	if why == nil {
		return nil
	}
	return fault.Overloaded.Errorf("toold only shows what is on record: %w", *why).
		Next(goesOn + ", and sessions have gone on meanwhile")
}

// driver gives the driver that a session was made with.
func (dm *daemon) driver(name string) (sandbox.Driver, error) {
	d, ok := dm.cfg.Drivers[name]
	if !ok {
		return nil, fmt.Errorf("no driver %q in this daemon", name)
	}
	return d, nil
}

// Reader reads the commands of a session, live or not.
func (dm *daemon) Reader(row *store.Session) *tool.Reader {
	return judge.Reader(dm.settings.Load().ShellOf(row), row.Request.Env)
}

// Court makes rules those of sessions.
func (dm *daemon) Court() *judge.Court { return dm.court }

// publish stores an event. One that cannot be is told in the log alone.
func (dm *daemon) publish(e client.Event) {
	if err := dm.store.Write(func(tx *store.Tx) error { tx.AddEvent(e); return nil }); err != nil {
		dm.log.Error("store an event", "type", e.Type, "session", e.Session, "error", err)
	}
}

// observe tells every observer.
func (dm *daemon) observe(fn func(Observer)) {
	for _, o := range dm.cfg.Observers {
		fn(o)
	}
}

// room says whether records have as much room as must stay free on the disk of the state directory,
// and how much is free there. Records have what is free inside of the database, too, whose file does
// not shrink; nothing else has.
func (dm *daemon) room(ctx context.Context) (free int64, enough bool, err error) {
	least := dm.settings.Load().MinFree
	v, err := room.At(dm.cfg.OutputDir)
	if err != nil || v.Free >= least {
		return v.Free, err == nil, err
	}
	inside, err := dm.store.FreeBytes(ctx)
	return v.Free, err == nil && v.Free+inside >= least, err
}

// keepRoom refuses to keep more of what calls print, where that would touch what must stay free.
func (dm *daemon) keepRoom() error {
	set := dm.settings.Load()
	v, err := room.At(dm.cfg.OutputDir)
	if err != nil {
		return err
	}
	least := max(set.MinFree, set.HostFree.Of(v.Size)*3/2) // as for new calls, see room.Floor.Low
	if v.Free >= least {
		return nil
	}
	return fault.Overloaded.Errorf("only %s are free on the disk of the state directory, and %s must stay", client.Size(v.Free), client.Size(least)).Next(freesSpace)
}

// diskRoom refuses so many bytes that the daemon itself is about to write to the state directory.
func (dm *daemon) diskRoom(bytes int64) error { return dm.disk.room(dm.settings.Load(), bytes) }

// diskWork is diskRoom for work of an unknown size, see hostDisk.begin.
func (dm *daemon) diskWork(ctx context.Context, bytes int64) (context.Context, func(), error) {
	return dm.disk.begin(ctx, dm.settings.Load(), bytes)
}
