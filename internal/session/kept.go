package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree/layers"
)

// keptUntil is when the changes of a session that is over go; nil where there are none.
func (dm *daemon) keptUntil(row *store.Session) *time.Time {
	if row.Worktree.Mode != client.WorktreeOverlay || row.Ended == nil {
		return nil
	}
	t, err := dm.cfg.Trees.Get(row.ID)
	if err != nil || len(t.Layers()) == 0 {
		return nil
	}
	until := dm.treeEnds(row)
	return &until
}

// treeEnds is when the changes of a session that is over go: after [worktrees] keep, and
// with its record.
func (dm *daemon) treeEnds(row *store.Session) time.Time { return row.Ended.Add(dm.keepTime()) }

// keepTime is how long changes are kept that nobody takes.
func (dm *daemon) keepTime() time.Duration {
	set := dm.settings.Load()
	keep := set.Retention
	if k := set.Worktrees.Keep; k > 0 && (k < keep || keep <= 0) {
		keep = k
	}
	if keep <= 0 {
		keep = maxTTL // for ever
	}
	return keep
}

// forgetTime is how long a tree that is to go is waited for.
const forgetTime = time.Second

// sweepTrees removes the changes of sessions that have been over for long enough, and of
// those whose records are gone. What somebody looks at has to wait for the next time.
func (c *Collector) sweepTrees(ctx context.Context) error {
	list, _, errs := c.cfg.Trees.All() // Sweep names those that cannot be read
	for _, t := range list {
		late, err := c.treeIsLate(ctx, t)
		if err == nil && late {
			err = c.forgetTree(ctx, t.Session)
		}
		errs = errors.Join(errs, err)
	}
	return errors.Join(errs, c.cfg.Trees.Sweep())
}

func (c *Collector) forgetTree(ctx context.Context, session string) error {
	ctx, cancel := context.WithTimeout(ctx, forgetTime)
	defer cancel()
	err := c.trees.Forget(ctx, session)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, layers.ErrNone):
		return nil
	case err == nil:
		c.log.Info("removed changes that were not taken in time", "session", session)
	}
	return err
}

// treeIsLate reports whether nobody can want a tree any more.
func (c *Collector) treeIsLate(ctx context.Context, t *layers.Tree) (bool, error) {
	if c.liveByID(t.Session) != nil {
		return false, nil
	}
	row, err := c.store.Session(ctx, t.Session)
	if errors.Is(err, store.ErrNotFound) {
		until, stray, err := c.strays.look(ctx, c.roster, t.Session)
		return !stray || c.isOver(until), err
	}
	return err == nil && row.Ended != nil && c.isOver(c.treeEnds(row)), err
}

// isOver reports whether what was to be kept until then may go.
func (c *Collector) isOver(until time.Time) bool {
	now, held := c.clock.Now()
	return !held && !now.Before(until)
}

// leftovers are trees whose session is not on record, and layers of no tree. A tree has
// the size of what goes with it. Trees that cannot be read are named, and stay.
func (o overlay) leftovers(ctx context.Context) (all []leftover, err error) {
	trees := o.roster.cfg.Trees
	list, unreadable, err := trees.All()
	if err != nil {
		return nil, err
	}
	for _, x := range unreadable {
		all = append(all, unreadableTree(x))
	}
	users := map[string]int{}
	for _, t := range list {
		for _, l := range t.Places() {
			users[l]++
		}
	}
	for _, t := range list {
		if o.roster.liveByID(t.Session) != nil {
			continue
		}
		if _, err := o.roster.store.Session(ctx, t.Session); !errors.Is(err, store.ErrNotFound) {
			continue
		}
		x := leftover{
			Garbage: client.Garbage{Kind: "worktree", Name: t.Session, Session: t.Session},
			remove:  func() error { return o.roster.trees.Forget(ctx, t.Session) },
		}
		for _, l := range t.Places() {
			if users[l] == 1 {
				x.Bytes += trees.Bytes(t, l)
			}
		}
		all = append(all, x)
	}
	if len(unreadable) > 0 {
		return all, nil // nobody knows which layers they name
	}
	unused, err := trees.Unused()
	for _, l := range unused {
		all = append(all, leftover{
			Garbage: client.Garbage{Kind: "layer", Name: l, Bytes: trees.Bytes(nil, l)},
			remove:  func() error { return trees.Sweep() },
		})
	}
	return all, err
}

// unreadableTree names a tree that cannot be read. It may be all that somebody has of his
// work, so that only a person removes it.
func unreadableTree(x *layers.UnreadableError) leftover {
	why := fmt.Errorf("%w; no layer of any session is removed while it is there: put the file back from a backup, or move it away, and its changes are lost", x.Err)
	return leftover{
		Garbage: client.Garbage{Kind: "worktree", Name: x.Session, Session: x.Session, Error: why.Error()},
		remove:  func() error { return why },
	}
}
