package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/environ"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool/run"
)

// Session is a session that is not over: its sandbox, the connection to its
// agent, and its calls. Calls run in goroutines of their own; one more
// goroutine, supervise, watches over the whole.
type Session struct {
	daemon *daemon
	id     string
	tenant *tenant
	driver sandbox.Driver
	log    *slog.Logger
	limits client.Limits
	outDir string // of the host
	key    string // of its request, while it is known by that; guarded by roster.mu

	teardown func(*Session, ending)

	calls *call.Group
	judge *judge.Judge
	agent agent.Runner
	// promised is the size of the disk that it may still get.
	promised atomic.Int64
	// unlaid is why it does not have the worktree that it was to have when the daemon began; nil where it has.
	unlaid atomic.Pointer[trees.UnlaidError]
	heart  // watches over the agent
	gauges // look at the tools

	// ctx ends with agent.ErrOver when the session is over, or with call.ErrLeaving.
	ctx    context.Context //nolint:containedctx // the life of the session itself
	cancel context.CancelCauseFunc
	over   chan struct{} // closed when its end is in the store
	making chan struct{} // closed when nothing of it is being made any more; nil for one of an earlier daemon

	writing sync.Mutex // held from the reading of row to its change; before mu

	mu  sync.Mutex // guards the fields below
	row store.Session
	sb  sandbox.Sandbox
	way *wayOut // out of its network; nil for none
	holdings
	ending  bool
	fate    client.SessionState // what it ends as, once ending
	changed chan struct{}       // tells supervise that TTL or lease changed; capacity 1
}

// newSession makes one of a row. When it ends, teardown does the work.
func newSession(dm *daemon, t *tenant, row store.Session, d sandbox.Driver, teardown func(*Session, ending)) *Session {
	s := &Session{
		daemon: dm, id: row.ID, tenant: t, driver: d, row: row, limits: row.Limits, teardown: teardown,
		log:    dm.log.With("session", row.ID, "tenant", row.Tenant),
		outDir: filepath.Join(dm.cfg.OutputDir, row.ID),
		over:   make(chan struct{}), changed: make(chan struct{}, 1),
	}
	s.judge = dm.court.New(s.Row)
	s.ctx, s.cancel = context.WithCancelCause(dm.ctx)
	s.heart = heart{beat: &dm.beat, sandbox: s.sandbox, agent: &s.agent, lose: s.Lose, begun: func() { lookAtBudget(s) }, work: &dm.work, ctx: s.ctx}
	s.gauges = gauges{sandbox: s.sandbox, agent: &s.agent, used: &t.used, limit: int64(s.limits.Memory), log: s.log, ctx: s.ctx}
	s.calls = dm.calls.Group(call.In{
		Place: s, Runners: dm.runners(s), ID: s.id, Tenant: &s.tenant.Tenant, Judge: s.judge, Limits: s.limits, Log: s.log, Context: s.ctx,
		Tools: slices.Concat(tasks{s}.tools(), skills{dm.skills, s.treePlace()}.tools()), Budget: s.budget(), Left: func() *client.BudgetLeft { return s.left(s.ctx) },
	})
	return s
}

// Errand implements call.Place.
func (s *Session) Errand() (errand.Errand, error) {
	l, err := s.agent.Link()
	if err != nil {
		return errand.Errand{}, err
	}
	return errand.Errand{Conn: l, NewID: func() string { return s.daemon.store.NewID("call_") }}, nil
}

// treePlace is where its worktree has skills.
func (s *Session) treePlace() treePlace {
	row := s.Row()
	return treePlace{errand: s.Errand, target: row.Worktree.Target, log: s.log, mayRead: func(path string) policy.Verdict {
		return s.judge.MayRead(s.Row().Profile, path)
	}}
}

// hello is what the agent is told. The environment is not stored, so a daemon
// that reconnects has none to send; the agent keeps the one of the first time.
func (s *Session) hello(env map[string]string, cgroup *os.File) agent.Hello {
	set := s.daemon.settings.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	base := map[string]string{"PATH": set.Path}
	if s.image != nil {
		base = environ.OfImage(s.image.Env)
	}
	h := agent.Hello{
		Nonce:    s.row.Nonce,
		Worktree: s.row.Worktree.Target, Home: sandbox.Home, Tmp: "/tmp", OutputDir: sandbox.OutputDir,
		ToolUID: sandbox.ToolUID, ToolGID: sandbox.ToolGID,
		Env: environ.Tools(s.tellNetwork(), base, env), Shell: set.ShellOf(&s.row),
		OpenFiles: s.limits.OpenFiles, FileSize: int64(s.limits.FileSize),
		UnackedBytes: output.Unacked,
		OrphanMillis: s.daemon.cfg.Orphan.Milliseconds(),
		CallCgroup:   cgroup,
		Room:         s.calls.Room,
	}
	for _, c := range s.row.CachePlaces {
		h.Bounded = append(h.Bounded, c.Target)
	}
	if s.way != nil {
		h.Network, h.Held, h.Relay = true, s.way.net.Held(), s.way.relay
	}
	if sl, ok := s.sb.(sandbox.SelfLimiting); ok && sl.SelfLimiting() {
		h.Memory, h.PIDs = int64(s.limits.Memory), s.limits.PIDs
	}
	return h
}

// tellNetwork is what programs have to be told of the network. The caller holds mu.
func (s *Session) tellNetwork() environ.Network {
	switch {
	case s.row.Network.Mode == client.NetworkNone:
		return environ.None
	case s.way != nil && s.way.relay:
		return environ.Relayed
	}
	return environ.Transparent
}

// wake has supervise look anew.
func wake(s *Session) {
	select {
	case s.changed <- struct{}{}:
	default: // it is about to look anyway
	}
}

// dial makes the first connection, or another one after a loss.
func (s *Session) dial(ctx context.Context, env map[string]string) (*agent.Welcome, error) {
	cgroup, err := s.sb.CallCgroup()
	if err != nil {
		return nil, fmt.Errorf("cgroup of calls: %w", err)
	}
	if cgroup != nil {
		defer func() { _ = cgroup.Close() }()
	}
	c, err := s.sb.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial the agent: %w", err)
	}
	conn, w, err := s.daemon.connect(ctx, c, s.hello(env, cgroup))
	if err != nil {
		return nil, fmt.Errorf("connect to the agent: %w", err)
	}
	if !s.agent.Replace(conn) {
		return nil, errors.Join(agent.ErrOver, conn.Close())
	}
	return w, nil
}

func (s *Session) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// write changes the row, and stores it with an event of this type ("" for none).
// An error of change leaves it as it is.
func (s *Session) write(event string, change func(*store.Session) error) error {
	return s.writeTelling(change, func(row *store.Session) []client.Event {
		if event == "" {
			return nil
		}
		return []client.Event{s.event(event, sessionSummary(row))}
	})
}

// writeTelling is write with events made of the row as it is then.
func (s *Session) writeTelling(change func(*store.Session) error, events func(*store.Session) []client.Event) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	row := s.Row()
	old := row.State
	if err := change(&row); err != nil {
		return err
	}
	err := s.daemon.store.Write(func(tx *store.Tx) error {
		for _, e := range events(&row) {
			tx.AddEvent(e)
		}
		return tx.PutSession(&row)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.row = row
	s.mu.Unlock()
	if old != row.State {
		s.daemon.observe(func(o Observer) { o.SessionState(&row.Session, old) })
	}
	return nil
}

func (s *Session) event(typ string, data any) client.Event {
	return event.New(typ, s.tenant.Name, s.id, "", data)
}

// sessionSummary is the data of a session's events.
func sessionSummary(row *store.Session) any {
	return struct {
		Name   string              `json:"name,omitempty"`
		State  client.SessionState `json:"state"`
		Reason string              `json:"reason,omitempty"`
		Labels map[string]string   `json:"labels,omitempty"`
		// Of the worktree, at its end.
		Sensitive *client.SensitiveChanges `json:"sensitive,omitempty"`
	}{row.Name, row.State, row.Reason, row.Labels, row.Worktree.Sensitive}
}

// snapshot is what clients see, with the usage of the moment.
func (s *Session) snapshot(ctx context.Context) *client.Session {
	s.mu.Lock()
	v, sb := s.row.Session, s.sb
	s.mu.Unlock()
	if sb != nil && v.State == client.SessionReady {
		if u, err := sb.Usage(ctx); err == nil {
			v.Usage = u
		}
	}
	v.Usage.Calls = s.calls.Total()
	v.BudgetLeft = s.left(ctx)
	v.Notes = append(slices.Clip(v.Notes), s.foreignNote()...)
	v.Notes = append(v.Notes, cutOff(s.daemon.trees, &v)...)
	if why := diskFails(s); v.State == client.SessionReady && why != nil {
		v.Reason, v.Notes = string(run.ReasonDisk), append(v.Notes, why.Error()+diskNote)
	}
	if why := s.unlaid.Load(); v.State == client.SessionReady && why != nil {
		v.Notes = append(v.Notes, unlaidNote(why))
		if errors.Is(why, fault.Quota) {
			v.Reason = string(run.ReasonDisk)
		}
	}
	return &v
}

// foreignNote says in the session's notes that calls failed for files of other owners.
func (s *Session) foreignNote() []string {
	n := s.calls.Foreign.Load()
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("calls failed for files of users who are not in the session: %d; give access on the host (chmod, chown)", n)}
}

// Reconnecting: a sandbox that is alive has a listening agent, so a loss of the
// connection alone heals at the first try. A session that does not answer for
// so long is as good as dead, unless there is a network in between (see
// sandbox.Distant); a daemon's start waits for that no longer than adoptTime. On a
// busy host, where many sessions are taken over at once, it may be seconds.
const (
	reconnectFirst = 5 * time.Millisecond
	reconnectMax   = 200 * time.Millisecond
	reconnectTime  = 5 * time.Second
	adoptTime      = 10 * time.Second
)

// patience is how long the agent may be out of reach.
func (s *Session) patience() time.Duration {
	if d, ok := s.sb.(sandbox.Distant); ok {
		return d.Patience()
	}
	return reconnectTime
}

// reach dials until the agent answers, is dead, or limit is over.
func (s *Session) reach(ctx context.Context, limit time.Duration) (*agent.Welcome, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for wait := reconnectFirst; ; wait = min(2*wait, reconnectMax) {
		select {
		case <-s.sb.Done():
			return nil, sandbox.ErrGone
		default:
		}
		w, err := s.dial(ctx, nil)
		if err == nil || s.ctx.Err() != nil || s.isEnding() {
			return w, err
		}
		select {
		case <-time.After(wait):
		case <-s.sb.Done():
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Row implements call.Place.
func (s *Session) Row() store.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.row
}

// Lose implements call.Place: it ends the session because it cannot go on.
func (s *Session) Lose(reason string) {
	if err := s.end(s.daemon.ctx, ending{state: client.SessionLost, reason: reason, force: true, keep: true}); err != nil {
		s.log.Error("clean up after a lost session", "error", err)
	}
}

// sandbox gives the session's, nil while there is none.
func (s *Session) sandbox() sandbox.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sb
}

// heldImage gives the session's, nil for none.
func (s *Session) heldImage() *sandbox.HeldImage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.image
}

// detach lets go of the session for a daemon that leaves; it lives on.
func (s *Session) detach(ctx context.Context) {
	if err := s.calls.Close(ctx); err != nil {
		s.log.Error("calls are left to the next daemon", "error", err)
	}
	s.mu.Lock()
	sb, fd := s.sb, s.holder
	s.mu.Unlock()
	if err := s.closeWay(); err != nil {
		s.log.Warn("close the way out", "error", err)
	}
	s.agent.Detach()
	fd.Close()
	if sb != nil {
		_ = sb.Close()
	}
}

// ending says how a session ends.
type ending struct {
	state  client.SessionState // ended or lost
	reason string
	force  bool // do not wait for calls
	keep   bool // keep the outputs until retention
}

// end ends the session and returns when its end is in the store. The first to
// call it decides how; later ones wait.
func (s *Session) end(ctx context.Context, e ending) error {
	s.mu.Lock()
	first := !s.ending
	if first {
		s.ending, s.fate = true, e.state
		s.agent.Seal()
	}
	s.mu.Unlock()
	// The work is done to its end also when whoever asked goes away; or by the next
	// daemon, where this one is about to go.
	if first && !s.daemon.work.Go("end of "+s.id, func() { s.teardown(s, e) }) {
		return call.ErrLeaving
	}
	select {
	case <-s.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leaseGone is closed when the process that holds the session's lease has
// ended; nil, which never is, without a lease.
func (s *Session) leaseGone() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holder.Gone()
}
