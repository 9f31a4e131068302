package call

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/call/local"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// Group is the calls of one session. Each runs in a goroutine of its own.
type Group struct{ steps }

// In is what a Group needs of its session.
type In struct {
	Place   Place
	Runners map[tool.By]Runner // beside the daemon's own
	ID      string
	Tenant  *Tenant
	Judge   *judge.Judge
	Limits  client.Limits
	Budget  client.Budget
	// Left is what is left of the budget, for the metadata of calls; it gives nil where there is none.
	Left    func() *client.BudgetLeft
	Log     *slog.Logger
	Context context.Context //nolint:containedctx // the life of the session
	Tools   []local.Tool    // of the daemon, that are about more of the session than its calls
}

// Group makes the calls of a session: there are none yet.
func (s *Service) Group(in In) *Group {
	g := &Group{steps{
		site: &site{
			daemon: &s.Config, place: in.Place, runners: map[tool.By]Runner{}, id: in.ID, tenant: in.Tenant, judge: in.Judge, limits: in.Limits,
			outDir: filepath.Join(s.OutputDir, in.ID), log: in.Log, ctx: in.Context, turn: budget.NewTurn(),
		},
		slots: slots{session: in.ID, tenant: in.Tenant, quota: s.Quota, free: make(chan struct{}, max(1, in.Limits.Calls))},
		live:  &s.live,
	}}
	g.spending.most, g.spending.left = in.Budget.Calls, in.Left
	maps.Copy(g.runners, in.Runners)
	g.runners[tool.ByDaemon] = local.New(append(in.Tools, local.Of(g.prepareFormat, g.format), local.Of(nil, g.batch))...)
	g.slots.touch()
	return g
}

// Spent is how many calls of tools there were, and how much all calls have printed, in
// bytes; of calls of earlier daemons as much as was kept.
func (g *Group) Spent() (calls, printed int64) {
	printed = g.spending.printed.Load()
	g.live.each(func(c *Call) bool {
		select {
		case <-c.done: // it is counted
		default:
			if c.at == g.site && c.out != nil {
				printed += c.out.Offset()
			}
		}
		return true
	})
	return g.spending.claimed.Load(), printed
}

// Idle is how long no call has run.
func (g *Group) Idle() time.Duration { return g.slots.idle() }

// Open is how many calls have begun and not ended.
func (g *Group) Open() int64 { return g.slots.open.Load() }

// Total is how many calls there ever were.
func (g *Group) Total() int64 { return g.slots.total.Load() }

// Running is how many calls run at the moment.
func (g *Group) Running() int { return len(g.slots.free) }

// Still waits until no call runs, and lets none run until release is called. It gives up
// when ctx ends. There is one at a time.
func (g *Group) Still(ctx context.Context) (release func(), err error) { return g.slots.still(ctx) }

// AwaitTold waits until the ends of calls that somebody has been told are in the
// store.
func (g *Group) AwaitTold() {
	g.telling.Lock()
	g.telling.Unlock() //nolint:staticcheck // to wait is all
}

// Close lets no call begin any more, and waits for those whose context has ended.
func (g *Group) Close(ctx context.Context) error { return g.work.Close(ctx) }

// AbortAll ends the calls as a user would see it, with what they printed, and waits for
// that; no longer than they have for it.
func (g *Group) AbortAll() {
	g.live.each(func(c *Call) bool {
		if c.at == g.site {
			c.abort(run.ReasonSessionEnded)
		}
		return true
	})
	select {
	case <-g.work.None():
	case <-time.After(overdue):
	}
}

// Writing reports whether a call runs, or is about to, that may write.
func (g *Group) Writing() (yes bool) {
	g.live.each(func(c *Call) bool {
		yes = c.at == g.site && c.mayWrite()
		return !yes
	})
	return yes
}

// StopWriting ends the calls that may write, because they take too much of the host, and says how
// many. why is ReasonDisk, its disk being nearly full, or ReasonMemory, of which note tells more.
func (g *Group) StopWriting(why run.Reason, note string) (n int) {
	g.live.each(func(c *Call) bool {
		if c.at == g.site && !c.def.ReadOnly && c.stop(why, note) {
			n++
		}
		return true
	})
	return n
}

// Room is agent.Hello.Room: it takes memory for a result on behalf of its call.
func (g *Group) Room(ctx context.Context, gone <-chan struct{}, id string, bytes int64) error {
	c, ok := g.live.find(id)
	if !ok {
		return fmt.Errorf("result of call %s, which is over", id)
	}
	c.watch.stop() // its tool has ended; what is slow now is not the tool
	return c.held.take(ctx, gone, g.turn, bytes)
}
