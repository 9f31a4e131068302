package call

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/call/stream"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// Group is the calls of one session. Each runs in a goroutine of its own.
type Group struct {
	svc    *Service
	place  Place
	runner Runner
	id     string // of the session
	tenant *Tenant
	judge  *judge.Judge
	limits client.Limits
	outDir string // of the host
	log    *slog.Logger

	slots  chan struct{} // one for each call that runs
	open   atomic.Int64  // calls that have begun and not ended
	total  atomic.Int64  // calls ever
	active atomic.Int64  // when a call last began or ended, in time since boot
	// Foreign counts calls that failed for a file of a user who is not in the session.
	Foreign atomic.Int64
	// Spilled is how many bytes the files of outputs have.
	Spilled atomic.Int64

	// telling is held, shared, from when the end of a call can be seen until it is
	// in the store. Nobody waits for a client under it.
	telling sync.RWMutex
	work    crew.Crew

	// ctx ends with agent.ErrOver when the session is over, or with ErrLeaving.
	ctx context.Context //nolint:containedctx // the life of the session
}

// Tenant counts what the calls of one tenant have.
type Tenant struct {
	Name  string
	Calls atomic.Int64 // that have begun and not ended
	Kept  atomic.Int64 // bytes of their records
}

// In is what a Group needs of its session.
type In struct {
	Place   Place
	Runner  Runner
	ID      string
	Tenant  *Tenant
	Judge   *judge.Judge
	Limits  client.Limits
	Log     *slog.Logger
	Context context.Context //nolint:containedctx // the life of the session
}

// boot is what times of activity are measured from: the monotonic clock, which
// nobody can set back.
var boot = time.Now()

// Group makes the calls of a session: there are none yet.
func (s *Service) Group(in In) *Group {
	g := &Group{
		svc: s, place: in.Place, runner: in.Runner, id: in.ID, tenant: in.Tenant, judge: in.Judge, limits: in.Limits,
		outDir: filepath.Join(s.OutputDir, in.ID), log: in.Log, ctx: in.Context,
		slots: make(chan struct{}, max(1, in.Limits.Calls)),
	}
	g.touch()
	return g
}

func (g *Group) touch() { g.active.Store(int64(time.Since(boot))) }

// Idle is how long no call has run.
func (g *Group) Idle() time.Duration {
	if g.Open() > 0 {
		return 0
	}
	return time.Since(boot) - time.Duration(g.active.Load())
}

// Open is how many calls have begun and not ended.
func (g *Group) Open() int64 { return g.open.Load() }

// Total is how many calls there ever were.
func (g *Group) Total() int64 { return g.total.Load() }

// AwaitTold waits until the ends of calls that somebody has been told are in the
// store.
func (g *Group) AwaitTold() {
	g.telling.Lock()
	g.telling.Unlock() //nolint:staticcheck // to wait is all
}

// Close lets no call begin any more, and waits for those whose context has ended.
func (g *Group) Close() { g.work.Close() }

// begin starts the call's goroutine, unless the session is ending or not made.
func (g *Group) begin(c *Call) bool {
	return g.place.Takes() && g.work.Go(func() { growStack(); g.do(c) })
}

// notReady says why a session takes no calls.
func (g *Group) notReady() error {
	row := g.place.Row()
	if row.State == client.SessionCreating {
		return fault.Conflict.Errorf("session %s is still being made", g.id).Next("try again in a moment")
	}
	return OverError(&row)
}

// OverError says that a session is over.
func OverError(row *store.Session) error {
	why := ""
	if row.Reason != "" {
		why = ": " + row.Reason
	}
	return fault.Over.Errorf("session %s is over%s", row.ID, why).Next("create another session")
}

func (g *Group) profile() string { return g.place.Row().Profile }

// shell runs the session's commands of bash.
func (g *Group) shell() []string {
	row := g.place.Row()
	return g.svc.Settings().ShellOf(&row)
}

// ShellOf is the shell of a session: the one that was configured when it began,
// since a reload does not reach its sandbox.
func (s *Settings) ShellOf(row *store.Session) []string {
	if len(row.Shell) > 0 {
		return row.Shell
	}
	return s.Shell
}

// AbortAll ends the calls as a user would see it, with what they printed, and waits for
// that; no longer than they have for it.
func (g *Group) AbortAll() {
	g.svc.live.Range(func(_, v any) bool {
		if c := v.(*Call); c.g == g {
			c.abort(run.ReasonSessionEnded)
		}
		return true
	})
	select {
	case <-g.work.None():
	case <-time.After(overdue):
	}
}

func (g *Group) newCall(r client.CallCreate, hidden, split bool) *Call {
	c := &Call{
		g: g, id: g.svc.Store.NewID("call_"), req: r, hidden: hidden,
		maxOutput: int64(g.limits.Output),
		known:     make(chan struct{}), done: make(chan struct{}),
		held: held{n: 1},
	}
	c.stream = stream.Sender{Event: c.bare, Hub: g.svc.Hub, Split: split}
	c.ctx, c.cancel = context.WithCancelCause(g.ctx)
	return c
}

// pagedBytes is how many times as long as other outputs one may be that its tool
// has cut to size itself.
const pagedBytes = 4

// outputOf makes the keeper of a call's output.
func (g *Group) outputOf(id string, def *tool.Definition, split bool) *output.Output {
	set := g.svc.Settings()
	t, ok := set.ProfileTruncate[g.profile()]
	if !ok {
		t = set.Truncate
	}
	t.Direction = cmp.Or(t.Direction, def.Truncate)
	if def.Paged {
		// A page is left alone; what claims to be one and is far too long is not.
		t.MaxBytes *= pagedBytes
		t.MaxLines = t.MaxBytes
	}
	return output.New(output.Config{Limits: t, Path: filepath.Join(g.outDir, id), Used: &g.Spilled, MinFree: set.MinFree, Split: split})
}

// QueueLen is how many calls may wait for a slot of their session. Each may
// hold an input of several MiB.
const QueueLen = 64

// enter counts the call, if session and tenant may have another one.
func (g *Group) enter(c *Call) error {
	most := int64(g.svc.Quota.MostCalls(g.tenant.Name))
	if n := g.tenant.Calls.Add(1); most > 0 && n > most {
		g.tenant.Calls.Add(-1)
		return fault.Overloaded.Errorf("tenant %s has %d calls that have not ended, which is all that it may have", g.tenant.Name, most).
			Next("wait for one to end, then try again")
	}
	if n := g.open.Add(1); n > int64(cap(g.slots)+QueueLen) {
		g.open.Add(-1)
		g.tenant.Calls.Add(-1)
		return fault.Overloaded.Errorf("session %s has %d calls running and %d waiting", g.id, cap(g.slots), QueueLen).
			Next("wait for one to end, then try again; limits.calls says how many run at once")
	}
	g.touch()
	c.counted = true
	return nil
}

// uncount undoes enter and admit. It comes before the call is known to have ended:
// whoever waited for that may make the next one, which then finds a slot free and
// has nothing to store before it gets one.
func (g *Group) uncount(c *Call) {
	g.leaveSlot(c)
	if !c.counted {
		return
	}
	c.counted = false
	g.touch()
	g.open.Add(-1)
	g.tenant.Calls.Add(-1)
}

// left lets go of what the call's goroutine held.
func (g *Group) left(c *Call) {
	g.place.Leave()
	g.uncount(c)
	if c.out != nil {
		c.out.Release()
	}
	c.cancel(nil)
	c.release()
}

// admit does step 8: it waits for a slot of the session and stores the call as
// running. leaveSlot gives the slot back.
func (g *Group) admit(c *Call) error {
	select {
	case g.slots <- struct{}{}:
	default:
		if err := c.flush(); err != nil {
			return err
		}
		select {
		case g.slots <- struct{}{}:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	c.slot = true
	err := context.Cause(c.ctx) // it may have ended at the same time
	if err == nil {
		err = c.start()
	}
	if err != nil {
		g.leaveSlot(c)
	}
	return err
}

// leaveSlot lets another call run in the place of c, if c has one.
func (g *Group) leaveSlot(c *Call) {
	if c.slot {
		c.slot = false
		<-g.slots
	}
}

// Running is how many calls run at the moment.
func (g *Group) Running() int { return len(g.slots) }
