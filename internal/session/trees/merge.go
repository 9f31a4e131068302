package trees

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/worktree/layers"
)

const (
	// mergeAt is how many lower layers a tree has when some of them are merged, and
	// mergeLeast how many of them at least.
	mergeAt    = 32
	mergeLeast = 24
	// mergeSoonest is how many layers before the last one that a tree may have it is tried each time.
	mergeSoonest = 4
	// mergeSpare (bytes) stays free on a disk beside what a merge takes.
	mergeSpare = 4 << 20
)

// mergeSoon merges layers of a live session's tree, when there are many, while no call runs.
// The merged one takes their place at the next checkpoint; those that other checkpoints name
// stay. What takes copies is done in the background.
func mergeSoon(ctx context.Context, x *subject) {
	if len(x.tree.Lower) < mergeAt || len(x.tree.Merged) > 0 {
		return
	}
	release, _ := x.merging.try(x.row.ID)
	if release == nil {
		return
	}
	if weldSome(ctx, x) || tooSoon(x) {
		release()
		return
	}
	mine := &subject{shared: x.shared, row: x.row, tree: x.tree}
	begun := x.work.Go("layers of "+x.row.ID, func() {
		defer release()
		// The source is found by what it is, whoever has asked for the checkpoint.
		own := auth.Principal{Tenant: mine.row.Tenant, Admin: true}
		over := mine.watch(opMerge)
		err := mine.merge(context.WithoutCancel(ctx), own)
		over(&err)
		mergeLater(mine, err)
		if err != nil && !errors.Is(err, fault.Overloaded) { // the next checkpoint tries again
			mine.log.Warn("merge layers of a worktree", "session", mine.row.ID, "error", err)
		}
	})
	if !begun {
		release()
	}
}

// unmerged is a tree of which layers could not be copied into one: not before so many more lie over
// the one that was the uppermost then are they copied again, which is work for nothing mostly.
type unmerged struct {
	top  string
	wait int
}

// tooSoon reports whether copies have failed, and not much has changed since.
func tooSoon(x *subject) bool {
	last, failed := x.unmerged.Load(x.row.ID)
	if !failed {
		return false
	}
	was := last.(unmerged)
	i := slices.Index(x.tree.Lower, was.top)
	return i >= 0 && i < was.wait && len(x.tree.Lower)+mergeSoonest < layers.MaxLayers
}

// mergeLater has copies that have failed wait for twice as many layers each time.
func mergeLater(x *subject, err error) {
	if err == nil {
		x.unmerged.Delete(x.row.ID)
		return
	}
	wait := weldAgain
	if last, again := x.unmerged.Load(x.row.ID); again {
		wait = min(2*last.(unmerged).wait, layers.MaxLayers)
	}
	x.unmerged.Store(x.row.ID, unmerged{x.tree.Lower[0], wait})
}

// weldTime bounds how long no call of a session runs while its layers are merged as they are. What
// takes longer is copied in the background, while calls run.
const weldTime = 2 * time.Second

// weldAgain is after how many checkpoints it is tried again where there was no room to merge layers
// as they are. Where they cannot be, or not in weldTime, it is not tried again as long as they are
// there: the calls of a session of which layers are never merged would stand still at each checkpoint.
const weldAgain = 8

// unwelded is a tree whose layers could not be merged as they are.
type unwelded struct {
	top   string // its uppermost lower layer
	again bool
}

// weldSome merges layers as they are, and reports whether it could. What it leaves behind where it
// cannot goes with the next Sweep: calls wait.
func weldSome(ctx context.Context, x *subject) bool {
	if last, ok := x.unwelded.Load(x.row.ID); ok {
		was := last.(unwelded)
		if i := slices.Index(x.tree.Lower, was.top); i >= 0 && (i < weldAgain || !was.again) {
			return false
		}
	}
	x.Step("welding")
	n := mergeable(x.store, x.tree)
	over := x.watch(opMerge)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.weldTime)
	defer cancel()
	into, err := layers.Welding{Store: x.store}.Weld(ctx, x.tree.Lower[:n])
	if err == nil {
		x.Step("welded")
		err = x.store.Merge(x.tree, n, into.Layer, nil, nil)
		into.Release()
		over(&err)
	}
	if err == nil {
		x.unwelded.Delete(x.row.ID)
		return true
	}
	never := errors.Is(err, layers.ErrWeld) || errors.Is(err, context.DeadlineExceeded)
	x.unwelded.Store(x.row.ID, unwelded{x.tree.Lower[0], !never})
	if !never && !errors.Is(err, unix.ENOSPC) {
		x.log.Warn("merge layers of a worktree as they are", "session", x.row.ID, "error", err)
	}
	return false
}

// maxWait bounds how long a checkpoint waits for a merge.
const maxWait = time.Minute

// awaitMerge is for the end of a merge under way, if there is one: checkpoints may come faster.
func awaitMerge(ctx context.Context, x *subject) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	if release, err := x.merging.take(ctx, x.row.ID); err == nil {
		release()
	}
}

// merge writes one layer that is what the uppermost n are together, for the next
// checkpoint.
func (x *subject) merge(ctx context.Context, p auth.Principal) error {
	sweep(x) // what could not be merged as it is takes room
	n := mergeable(x.store, x.tree)
	if enough, err := hasRoom(x.store, x.tree, n); err != nil || !enough {
		return err
	}
	into, err := x.melt(ctx, p, n, Seed{Disk: x.tree.Disk})
	if err != nil || into.layer == "" {
		return errors.Join(err, x.store.Sweep(x.tree)) // its room is the session's
	}
	defer into.drop()
	m, err := x.moved(ctx, x.tree)
	if err == nil {
		err = m.mergeable()
	}
	if err != nil {
		return err
	}
	if err = x.store.Merge(x.tree, n, into.layer, m.lost, m.origins); errors.Is(err, layers.ErrOther) {
		return nil // it went back, or was applied: the next merge is of what it has then
	}
	return err
}

// hasRoom reports whether the disk of a tree has room for a second time what its uppermost n
// lower layers have, and leaves the session as much. Without it the layers stay as they are.
func hasRoom(s *layers.Store, t *layers.Tree, n int) (bool, error) {
	if t.Disk == "" {
		return true, nil
	}
	free, err := s.Free(t.Disk)
	for _, l := range t.Lower[:n] {
		free -= 2 * s.Bytes(t, l)
	}
	return free > mergeSpare, err
}

// molten is a layer that was made of others. It stays where a tree names it before drop.
type molten struct {
	layer string // "" where they are nothing together
	drop  func()
}

// melt writes a layer that is what the uppermost n lower ones of a tree are together. A
// sandbox that has the layers below them makes its worktree like one that has them all,
// file by file: no name in it leads to a directory that lies below. on says where it goes.
func (x *subject) melt(ctx context.Context, p auth.Principal, n int, on Seed) (*molten, error) {
	all := x.tree.Lower
	on.Lower, on.Base, on.From, on.Internal = all[n:], all, x.tree, true
	v, err := x.open(ctx, p, on)
	if err != nil {
		return nil, err
	}
	made := &molten{drop: v.drop}
	if made.layer, err = v.copied(ctx); err != nil {
		made.drop()
		return nil, err
	}
	return made, nil
}

// copied makes the worktree of a view like what it is compared with, and gives the layer
// that took the copies.
func (v *view) copied(ctx context.Context) (layer string, err error) {
	if _, err := revert(ctx, v, nil); err != nil {
		return "", err
	}
	v.Step("copied")
	c, err := v.TreeChanges(ctx, client.DiffQuery{Limit: 1})
	if err != nil {
		return "", err
	}
	if n := c.Files + c.Unreadable; n > 0 {
		return "", fault.Conflict.Errorf("%d changed files cannot be copied; the first is %s", n, first(c)).Next(nextHindered)
	}
	v.Step("compared")
	return v.written()
}

// written closes a view, and gives the layer that it wrote to.
func (v *view) written() (string, error) {
	v.close() // before anything may lie over it
	t, err := v.store.Get(v.session)
	if errors.Is(err, layers.ErrNone) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return t.Upper, nil
}

func first(c *client.Changes) string {
	if len(c.Items) == 0 {
		return "not known"
	}
	return plain.Name(c.Items[0].Path)
}

// settle makes a tree need nothing of the source but what it does not change itself. A
// renamed directory is a name that leads to one of the source, and would be empty once the
// change is written there. Where there is none nothing has to be done; a disk that is getting
// full is another reason, since only older checkpoints have some of what is on it.
func (x *subject) settle(ctx context.Context, p auth.Principal, before *moves) error {
	leads := len(before.all) > 0
	if !leads {
		enough, err := x.store.HalfFree(x.tree.Disk)
		if err != nil || enough || len(x.tree.Lower) == 0 {
			return err
		}
	}
	if x.live != nil {
		if len(x.store.Present(x.tree)) > 0 {
			if err := layable(x); err != nil {
				return err
			}
		}
		c, err := x.freezeQuiet(ctx, layers.Checkpoint{Cause: causeApply})
		if !leads && (errors.Is(err, fault.Quota) || errors.Is(err, fault.Conflict)) {
			return nil
		}
		if err != nil {
			return err
		}
		defer func() { _, _ = x.store.Drop(x.row.ID, c.ID) }() // it was made to have no upper layer
	}
	tree := x.tree
	if x.live == nil {
		x.tree.Lower, x.tree.Upper = x.tree.Layers(), ""
	}
	if len(x.tree.Lower) == 0 {
		return nil
	}
	lower, drop, err := settled(ctx, x, p, before.long)
	if err != nil && !leads {
		x.log.Warn("make one layer of what a session has changed", "session", x.row.ID, "error", err)
		return nil // it would have given room back
	}
	if err != nil {
		return err
	}
	defer drop()
	x.Step("molten")
	after, err := x.moved(ctx, x.tree)
	if err != nil {
		return err
	}
	if len(after.lost) > len(before.lost) {
		lost := after.lost[len(after.lost)-1]
		return fault.Conflict.Errorf("%s was moved in the session from %s, %s", plain.Name(lost.Path), plain.Name(lost.From), lost.Why).
			Next("nothing was applied: try again")
	}
	x.dumped = true
	lost := slices.DeleteFunc(after.lost, func(i layers.Incomplete) bool { return slices.Contains(after.long, i) })
	if x.tree, err = x.store.Settle(x.row.ID, lower, lost, before.byOrigin(x.tree.Moved)); err != nil {
		return err
	}
	return x.lay(ctx, tree)
}

// settled makes layers that are all lower ones of a tree, and lead nowhere but for long ones, which
// cannot be copied. They stay where a tree names them before drop.
func settled(ctx context.Context, x *subject, p auth.Principal, long []layers.Incomplete) (lower []string, drop func(), err error) {
	one, err := layers.Welding{Store: x.store}.Weld(ctx, x.tree.Lower)
	if errors.Is(err, layers.ErrWeld) || errors.Is(err, unix.ENOSPC) {
		sweep(x) // it left what it had made so far
		return moltenAll(ctx, x, p)
	}
	if err != nil {
		return nil, nil, err
	}
	one.Led = slices.DeleteFunc(one.Led, func(dir string) bool {
		return len(dir) > beneath.MaxPath || slices.ContainsFunc(long, func(i layers.Incomplete) bool { return i.Path == dir })
	})
	if len(one.Led) == 0 {
		return []string{one.Layer}, one.Release, nil
	}
	into, err := filled(ctx, x, p, one)
	if err != nil {
		one.Release()
		return nil, nil, err
	}
	lower = []string{one.Layer}
	if into.layer != "" {
		lower = []string{into.layer, one.Layer}
	}
	return lower, func() { into.drop(); one.Release() }, nil
}

// moltenAll is settled by copies of all, on a disk of their own: that of the session may be full.
func moltenAll(ctx context.Context, x *subject, p auth.Principal) (lower []string, drop func(), err error) {
	room, err := x.store.Room(x.tree)
	if err != nil {
		return nil, nil, err
	}
	into, err := x.melt(ctx, p, len(x.tree.Lower), Seed{Room: room})
	if err != nil {
		return nil, nil, err
	}
	if into.layer != "" {
		lower = []string{into.layer}
	}
	return lower, into.drop, nil
}

// filled writes a layer that has what the directories show that a welded one leads to, which
// leads nowhere after that. What the tools may not read of it stays in the source alone, where
// no change of theirs can remove it.
func filled(ctx context.Context, x *subject, p auth.Principal, one *layers.Welded) (*molten, error) {
	if err := (layers.Welding{Store: x.store}).Hide(one.Layer, one.Led); err != nil {
		return nil, err
	}
	on := Seed{Lower: []string{one.Layer}, Base: x.tree.Lower, From: x.tree, Internal: true}
	enough, err := x.store.HalfFree(x.tree.Disk)
	if err == nil && enough {
		on.Disk = x.tree.Disk
	} else if err == nil {
		on.Room, err = x.store.Room(x.tree)
	}
	if err != nil {
		return nil, err
	}
	v, err := x.open(ctx, p, on)
	if err != nil {
		return nil, err
	}
	made := &molten{drop: v.drop}
	for some := range slices.Chunk(one.Led, run.MaxTreePaths) {
		if _, err := revert(ctx, v, some); err != nil {
			made.drop()
			return nil, err
		}
	}
	v.Step("copied")
	made.layer, err = v.written()
	if err != nil {
		made.drop()
	}
	return made, err
}

// mergeable is how many of a tree's lower layers are merged, from the uppermost on: what
// is large is not copied again each time.
func mergeable(store *layers.Store, t *layers.Tree) int {
	var sum int64
	for i, l := range t.Lower {
		size := store.Bytes(t, l)
		if i >= mergeLeast && size > sum {
			return i
		}
		sum += size
	}
	return len(t.Lower)
}
