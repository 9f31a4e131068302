package call

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"time"

	"github.com/toold/toold/client"
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
	Log     *slog.Logger
	Context context.Context //nolint:containedctx // the life of the session
}

// Group makes the calls of a session: there are none yet.
func (s *Service) Group(in In) *Group {
	g := &Group{steps{
		site: &site{
			daemon: &s.Config, place: in.Place, runners: map[tool.By]Runner{}, id: in.ID, tenant: in.Tenant, judge: in.Judge, limits: in.Limits,
			outDir: filepath.Join(s.OutputDir, in.ID), log: in.Log, ctx: in.Context,
		},
		slots: slots{session: in.ID, tenant: in.Tenant, quota: s.Quota, free: make(chan struct{}, max(1, in.Limits.Calls))},
		live:  &s.live, results: &s.results,
	}}
	maps.Copy(g.runners, in.Runners)
	g.runners[tool.ByDaemon] = local.New(local.Of(g.prepareFormat, g.format))
	g.slots.touch()
	return g
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
func (g *Group) Close() { g.work.Close() }

// begin starts the call's goroutine, unless the session is ending or not made.
func (g *Group) begin(c *Call) bool {
	return g.place.Takes() && g.work.Go(func() { growStack(); g.do(c) })
}

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

// Room is agent.Hello.Room: it takes memory for a result on behalf of its call.
func (g *Group) Room(ctx context.Context, gone <-chan struct{}, id string, bytes int64) error {
	c, ok := g.live.find(id)
	if !ok {
		return fmt.Errorf("result of call %s, which is over", id)
	}
	c.watch.stop() // its tool has ended; what is slow now is not the tool
	return c.held.take(ctx, gone, g.id, bytes)
}
