package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// Collector removes what belongs to no session, and what is too old.
type Collector struct {
	*life
	records *records
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
	all, err := c.collect(ctx, r.DryRun)
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
func (c *Collector) collect(ctx context.Context, dryRun bool) (all []client.Garbage, err error) {
	for _, p := range slices.Backward(c.parts) {
		found, ferr := c.collectFrom(ctx, p, dryRun)
		all, err = append(all, found...), errors.Join(err, ferr)
	}
	slices.SortStableFunc(all, func(a, b client.Garbage) int { return strings.Compare(a.Kind, b.Kind) })
	return all, err
}

// collectFrom is about what one part has left.
func (c *Collector) collectFrom(ctx context.Context, p part, dryRun bool) (all []client.Garbage, err error) {
	found, err := p.leftovers(ctx)
	for _, x := range found {
		if !dryRun {
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
	for {
		c.sweep(c.ctx)
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *Collector) sweep(ctx context.Context) {
	set := c.settings.Load()
	if keep := set.Truncate.Keep; keep > 0 {
		if err := c.records.outputs.sweepOutputs(ctx, keep); err != nil && ctx.Err() == nil {
			c.log.Error("sweep outputs", "error", err)
		}
	}
	if err := c.sweepTrees(ctx); err != nil && ctx.Err() == nil {
		c.log.Error("sweep the changes of worktrees", "error", err)
	}
	if gone, err := c.cfg.Caches.Sweep(set.Retention, set.CacheBytes); err != nil {
		c.log.Error("sweep caches", "error", err)
	} else if len(gone) > 0 {
		c.log.Info("removed caches that were used least recently", "caches", len(gone), "first", gone[0].Name)
	}
	if set.Retention > 0 {
		if _, err := c.store.Sweep(ctx, set.Retention, c.records.recordsGone); err != nil && ctx.Err() == nil {
			c.log.Error("sweep the store", "error", err)
		}
		if _, err := c.store.SweepApprovals(ctx, set.Retention); err != nil && ctx.Err() == nil {
			c.log.Error("sweep approvals", "error", err)
		}
		// Outputs whose sessions went with it.
		if _, err := c.collectFrom(ctx, c.records.outputs, false); err != nil && ctx.Err() == nil {
			c.log.Error("sweep outputs", "error", err)
		}
	}
}
