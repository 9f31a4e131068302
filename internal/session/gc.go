package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/steady"
	"github.com/toold/toold/internal/worktree/layers"
)

// Collector removes what belongs to no session, and what is too old.
type Collector struct {
	*life
	records *records
	strays  strays
	turn    sync.Mutex // held by who removes: what one has listed another may have removed
	// swept is closed when the daemon has swept for the first time, for tests that make what is swept.
	swept chan struct{}
}

// GC implements server.Collector: it names, and unless r.DryRun removes, what belongs to this
// daemon and to no session of it, and with r.Records those of sessions that are over.
func (c *Collector) GC(ctx context.Context, p auth.Principal, r client.GCRequest) ([]client.Garbage, error) {
	if err := p.Administers(); err != nil {
		return nil, err
	}
	if err := c.Accepting(); err != nil {
		return nil, err
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	all, err := c.collect(ctx, r)
	if r.Records {
		records, rerr := c.records.collectRecords(ctx, !r.DryRun)
		all, err = append(all, records...), errors.Join(err, rerr)
	}
	if err != nil {
		return nil, c.internal("collect garbage", err)
	}
	return all, nil
}

// collect is about what parts have left, in the order in which they are closed; it lists
// that by kind. It goes on after an error: what one driver cannot say is no reason to keep
// what others have left.
func (c *Collector) collect(ctx context.Context, r client.GCRequest) (all []client.Garbage, err error) {
	for _, p := range slices.Backward(c.parts) {
		found, ferr := c.collectFrom(ctx, p, r)
		all, err = append(all, found...), errors.Join(err, ferr)
	}
	if err == nil {
		c.strays.seen(c.roster, all)
	}
	slices.SortStableFunc(all, func(a, b client.Garbage) int { return strings.Compare(a.Kind, b.Kind) })
	return all, err
}

// collectFrom is about what one part has left. What sessions have that are not on record
// is kept for a while, unless the request asks for it: see strays.
func (c *Collector) collectFrom(ctx context.Context, p part, r client.GCRequest) (all []client.Garbage, err error) {
	found, err := p.leftovers(ctx)
	for _, x := range found {
		until, stray, serr := c.strays.look(ctx, c.roster, x.Session)
		switch {
		case serr != nil:
			x.Error = plain.Cause(serr)
		case stray && !r.Unknown && !c.isOver(until):
			x.Error, x.KeptUntil = strayAdvice, &until
		case !r.DryRun:
			if err := x.remove(); err != nil {
				x.Error = err.Error()
			} else {
				x.Removed, x.Error = true, ""
			}
		}
		all = append(all, x.Garbage)
	}
	return all, err
}

// sweepEvery is how often old records and outputs are removed.
const sweepEvery = 10 * time.Minute

// sweeper removes what is older than its retention.
func (c *Collector) sweeper() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		c.sweep(c.ctx)
		if first {
			close(c.swept)
		}
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *Collector) sweep(ctx context.Context) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.keepClock()
	now, held := c.clock.Now()
	if held {
		c.log.Warn("nothing is removed for its age now: the clock of this host was set", "for", steady.Hold)
		return
	}
	set := c.settings.Load()
	if keep := set.Truncate.Keep; keep > 0 {
		if err := c.records.outputs.sweepOutputs(ctx, now.Add(-keep)); err != nil && ctx.Err() == nil {
			c.log.Error("sweep outputs", "error", err)
		}
	}
	if err := c.sweepTrees(ctx); err != nil && ctx.Err() == nil {
		c.log.Error("sweep the changes of worktrees", "error", err)
	}
	if gone, err := c.cfg.Caches.Sweep(now, set.Retention, set.CacheBytes); err != nil {
		c.log.Error("sweep caches", "error", err)
	} else if len(gone) > 0 {
		c.log.Info("removed caches that were used least recently", "caches", len(gone), "first", gone[0].Name)
	}
	if set.Retention > 0 {
		before := now.Add(-set.Retention)
		if _, err := c.store.Sweep(ctx, before, c.records.recordsGone); err != nil && ctx.Err() == nil {
			c.log.Error("sweep the store", "error", err)
		}
		if err := c.sweepSessions(ctx, before); err != nil && ctx.Err() == nil {
			c.log.Error("sweep the records of sessions", "error", err)
		}
		if _, err := c.store.SweepApprovals(ctx, before, now); err != nil && ctx.Err() == nil {
			c.log.Error("sweep approvals", "error", err)
		}
	}
	if c.strays.any() { // whose time may be over
		if _, err := c.collect(ctx, client.GCRequest{}); err != nil && ctx.Err() == nil {
			c.log.Error("look for leftovers", "error", err)
		}
	}
}

// sweepSessions removes the records of sessions that ended before a time, after all that
// they have left: what has no record is taken for somebody's work that the store has lost.
// A session of which something cannot be removed keeps its record.
func (c *Collector) sweepSessions(ctx context.Context, before time.Time) error {
	var left map[string]bool
	for after := ""; ; {
		ids, err := c.store.OldSessions(ctx, before, after)
		if err != nil || len(ids) == 0 {
			return err
		}
		if left == nil {
			if left, err = c.left(ctx); err != nil {
				return err
			}
		}
		after = ids[len(ids)-1]
		ids = slices.DeleteFunc(ids, func(id string) bool { return left[id] || !c.clear(ctx, id) })
		if err := c.store.RemoveSessions(ids); err != nil {
			return err
		}
	}
}

// left are the sessions of which parts have something.
func (c *Collector) left(ctx context.Context) (map[string]bool, error) {
	all, err := c.collect(ctx, client.GCRequest{DryRun: true})
	left := make(map[string]bool, len(all))
	for _, x := range all {
		left[x.Session] = true
	}
	return left, err
}

// clear removes what a session has kept beyond its end, and reports whether it is gone.
func (c *Collector) clear(ctx context.Context, session string) bool {
	err := os.RemoveAll(filepath.Join(c.cfg.OutputDir, session))
	if _, none := c.cfg.Trees.Get(session); !errors.Is(none, layers.ErrNone) {
		err = errors.Join(err, none, c.forgetTree(ctx, session))
		if _, none = c.cfg.Trees.Get(session); !errors.Is(none, layers.ErrNone) {
			return false // somebody looks at it
		}
	}
	if err != nil {
		c.log.Error("remove what a session has left", "session", session, "error", err)
	}
	return err == nil
}

// Room refuses so many bytes that are about to be written to the state directory.
func (c *Collector) Room(bytes int64) error { return c.diskRoom(bytes) }
