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
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/environ"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
)

// Session is a session that is not over: its sandbox, the connection to its
// agent, and its calls. Calls run in goroutines of their own; one more
// goroutine, supervise, watches over the whole.
type Session struct {
	m      *daemon
	id     string
	tenant *tenant
	driver sandbox.Driver
	log    *slog.Logger
	limits client.Limits
	outDir string // of the host
	key    string // of its request, while it is known by that; guarded by roster.mu

	teardown func(*Session, ending)

	calls   *call.Group
	meter   meter        // what its sandbox has used
	starved atomic.Int64 // programs that the agent has ended for memory
	judge   *judge.Judge
	heart   heart // watches over its agent
	agent   agent.Runner

	losses []time.Time // of the connection to the agent, the last ones; only for supervise

	// ctx ends with agent.ErrOver when the session is over, or with call.ErrLeaving.
	ctx    context.Context //nolint:containedctx // the life of the session itself
	cancel context.CancelCauseFunc
	over   chan struct{} // closed when its end is in the store
	making chan struct{} // closed when nothing of it is being made any more; nil for one of an earlier daemon

	writing sync.Mutex // held from the reading of row to its change; before mu

	mu  sync.Mutex // guards the fields below
	row store.Session
	sb  sandbox.Sandbox
	holdings
	ending  bool
	fate    client.SessionState // what it ends as, once ending
	counted kills               // by the kernel, when it was last asked
	changed chan struct{}       // tells supervise that TTL or lease changed; capacity 1
}

// newSession makes one of a row. When it ends, teardown does the work.
func newSession(m *daemon, t *tenant, row store.Session, d sandbox.Driver, teardown func(*Session, ending)) *Session {
	s := &Session{
		m: m, id: row.ID, tenant: t, driver: d, row: row, limits: row.Limits, teardown: teardown,
		log:    m.log.With("session", row.ID, "tenant", row.Tenant),
		outDir: filepath.Join(m.cfg.OutputDir, row.ID),
		over:   make(chan struct{}), changed: make(chan struct{}, 1),
	}
	s.judge = m.court.New(s.Row)
	s.ctx, s.cancel = context.WithCancelCause(m.ctx)
	s.calls = m.calls.Group(call.In{
		Place: s, Runner: &s.agent, ID: s.id, Tenant: &s.tenant.Tenant, Judge: s.judge, Limits: s.limits, Log: s.log, Context: s.ctx,
	})
	return s
}

// hello is what the agent is told. The environment is not stored, so a daemon
// that reconnects has none to send; the agent keeps the one of the first time.
func (s *Session) hello(env map[string]string, cgroup *os.File) agent.Hello {
	set := s.m.settings.Load()
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
		Env: environ.Tools(s.row.Network.Mode == call.NoNetwork, base, env), Shell: set.ShellOf(&s.row),
		OpenFiles: s.limits.OpenFiles, FileSize: int64(s.limits.FileSize),
		UnackedBytes: output.Unacked,
		OrphanMillis: s.m.cfg.Orphan.Milliseconds(),
		CallCgroup:   cgroup,
		Room:         s.calls.Room,
	}
	if sl, ok := s.sb.(sandbox.SelfLimiting); ok && sl.SelfLimiting() {
		h.Memory, h.PIDs = int64(s.limits.Memory), s.limits.PIDs
	}
	return h
}

// dial makes the first connection, or another one after a loss.
func (s *Session) dial(ctx context.Context, env map[string]string) (*agent.Welcome, error) {
	c, err := s.sb.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial the agent: %w", err)
	}
	cgroup, err := s.sb.CallCgroup()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup of calls: %w", err), closeConn(c))
	}
	if cgroup != nil {
		defer func() { _ = cgroup.Close() }()
	}
	conn, w, err := s.m.connect(ctx, c, s.hello(env, cgroup))
	if err != nil {
		return nil, fmt.Errorf("connect to the agent: %w", err)
	}
	if !s.agent.Replace(conn) {
		return nil, errors.Join(agent.ErrOver, conn.Close())
	}
	return w, nil
}

// closeConn closes a connection that may be nil.
func closeConn[T interface {
	comparable
	Close() error
}](c T) error {
	var none T
	if c == none {
		return nil
	}
	return c.Close()
}

func (s *Session) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// write changes the row, and stores it with an event of this type ("" for none).
// An error of change leaves it as it is.
func (s *Session) write(event string, change func(*store.Session) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	row := s.Row()
	old := row.State
	if err := change(&row); err != nil {
		return err
	}
	err := s.m.store.Write(func(tx *store.Tx) error {
		if err := tx.PutSession(&row); err != nil || event == "" {
			return err
		}
		tx.AddEvent(s.event(event, sessionSummary(&row)))
		return nil
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.row = row
	s.mu.Unlock()
	if old != row.State {
		s.m.observe(func(o Observer) { o.SessionState(&row.Session, old) })
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
	v.Notes = append(slices.Clip(v.Notes), s.foreignNote()...)
	return &v
}

// foreignNote says in the session's notes that calls failed for files of other owners.
func (s *Session) foreignNote() []string {
	switch n := s.calls.Foreign.Load(); n {
	case 0:
		return nil
	case 1:
		return []string{"1 call failed for a file of a user who is not in the session; give access on the host (chmod, chown)"}
	default:
		return []string{fmt.Sprintf("%d calls failed for files of users who are not in the session; give access on the host (chmod, chown)", n)}
	}
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

// An agent that welcomes every connection and drops it at once would have the
// daemon reconnect for ever: more than maxLosses within lossTime end the session.
const (
	maxLosses = 5
	lossTime  = 10 * time.Second
)

// tooMany counts a loss of the connection to the agent and reports whether there
// were too many in a short time.
func (s *Session) tooMany(now time.Time) bool {
	s.losses = append(s.losses, now)
	if len(s.losses) <= maxLosses {
		return false
	}
	first := s.losses[0]
	s.losses = s.losses[1:]
	return now.Sub(first) < lossTime
}

// pause waits for d, or less when the session is over or its agent is dead.
func (s *Session) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.sb.Done():
	case <-s.ctx.Done():
	}
}

// supervise watches over the session until it is over or the daemon leaves.
func (s *Session) supervise() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		l, err := s.agent.Link()
		if err != nil || s.isEnding() {
			return
		}
		timer.Reset(s.untilTimeout())
		select {
		case <-s.ctx.Done():
			return
		case <-l.Done():
			if s.ctx.Err() != nil || s.relink(l) {
				continue
			}
			return
		case <-s.sb.Done():
			s.Lose(s.death())
			return
		case <-s.leaseGone():
			s.expire(fmt.Sprintf("process %d, which held its lease, ended", s.Row().LeasePID))
			return
		case <-s.changed:
		case <-timer.C:
			if why := s.timedOut(); why != "" {
				s.expire(why)
				return
			}
		}
	}
}

func (s *Session) Row() store.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.row
}

// causeTime bounds the question why an agent has died: calls end with the answer. An
// Engine learns of it a moment later than we do, and on a busy host that takes seconds.
const causeTime = 10 * time.Second

// death says that the agent has died, and why, if anybody knows.
func (s *Session) death() string {
	const died = "its agent died"
	w, ok := s.sb.(sandbox.Witness)
	if !ok {
		return died
	}
	ctx, cancel := context.WithTimeout(s.m.ctx, causeTime)
	defer cancel()
	if why := w.Cause(ctx); why != "" {
		return died + ": " + why
	}
	return died
}

// relink makes a new connection after l was lost. It reports whether the
// session lives on.
func (s *Session) relink(l *agent.Link) bool {
	if err := l.Err(); errors.Is(err, agent.ErrViolation) {
		s.Lose("its agent broke the control protocol: " + err.Error())
		return false
	}
	if s.tooMany(time.Now()) {
		s.Lose(fmt.Sprintf("the connection to its agent was lost more than %d times within %s", maxLosses, client.Duration(lossTime)))
		return false
	}
	s.pause(reconnectFirst << len(s.losses))
	w, err := s.reach(s.ctx, s.patience())
	switch {
	case err == nil:
		s.log.Warn("connected to the agent again")
		s.calls.ForgetUnknown(w.Calls)
		return true
	case s.ctx.Err() != nil || s.isEnding():
		return true // supervise sees why
	case errors.Is(err, sandbox.ErrGone):
		s.Lose(s.death())
	default:
		s.Lose("the connection to its agent was lost: " + err.Error())
	}
	return false
}

// untilTimeout is how long supervise may sleep.
func (s *Session) untilTimeout() time.Duration {
	row := s.Row()
	d := 24 * time.Hour
	if row.Expires != nil {
		d = min(d, time.Until(*row.Expires))
	}
	if idle := time.Duration(row.IdleTimeout); idle > 0 {
		d = min(d, idle-s.calls.Idle())
	}
	return max(d, 10*time.Millisecond)
}

// timedOut says why the session has lived long enough, "" when it has not.
func (s *Session) timedOut() string {
	row := s.Row()
	if row.Expires != nil && !time.Now().Before(*row.Expires) {
		return fmt.Sprintf("its ttl of %s ended", row.TTL)
	}
	if idle := time.Duration(row.IdleTimeout); idle > 0 && s.calls.Idle() >= idle {
		return fmt.Sprintf("no call for %s (idle_timeout)", row.IdleTimeout)
	}
	return ""
}

// expire ends the session from inside supervise.
func (s *Session) expire(reason string) {
	if err := s.end(s.m.ctx, ending{state: client.SessionEnded, reason: reason}); err != nil {
		s.log.Error("end an expired session", "error", err)
	}
}

// lose ends the session because it cannot go on.
func (s *Session) Lose(reason string) {
	if err := s.end(s.m.ctx, ending{state: client.SessionLost, reason: reason, force: true, keep: true}); err != nil {
		s.log.Error("clean up after a lost session", "error", err)
	}
}

// detach lets go of the session for a daemon that leaves; it lives on.
func (s *Session) detach() {
	s.calls.Close()
	s.mu.Lock()
	sb, fd := s.sb, s.holder
	s.mu.Unlock()
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
	if first && !s.m.work.Go(func() { s.teardown(s, e) }) {
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
