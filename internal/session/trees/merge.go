package trees

import (
	"context"
	"errors"
	"sync"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/worktree/layers"
)

const (
	// mergeAt is how many lower layers a tree has when some of them are merged, and
	// mergeLeast how many of them at least.
	mergeAt    = 32
	mergeLeast = 24
	// mergeSpare (bytes) stays free on a disk beside what a merge takes.
	mergeSpare = 4 << 20
)

// merger merges layers of live sessions' trees in the background.
type merger struct {
	work *crew.Crew

	mu    sync.Mutex      // guards the field below
	under map[string]bool // the sessions of whose tree layers are being merged
}

// soon merges layers of a live session's tree, when there are many. The merged one takes
// their place at the next checkpoint; those that other checkpoints name stay.
func (m *merger) soon(ctx context.Context, x *subject) {
	if len(x.tree.Lower) < mergeAt || len(x.tree.Merged) > 0 || !m.begin(x.row.ID) {
		return
	}
	mine := &subject{shared: x.shared, row: x.row, tree: x.tree}
	begun := m.work.Go(func() {
		defer m.end(mine.row.ID)
		// The source is found by what it is, whoever has asked for the checkpoint.
		own := auth.Principal{Tenant: mine.row.Tenant, Admin: true}
		over := mine.watch(opMerge)
		err := mine.merge(context.WithoutCancel(ctx), own)
		over(&err)
		if err != nil {
			mine.log.Warn("merge layers of a worktree", "session", mine.row.ID, "error", err)
		}
	})
	if !begun {
		m.end(mine.row.ID)
	}
}

// begin reports whether nobody merges layers of this tree.
func (m *merger) begin(session string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.under[session] {
		return false
	}
	m.under[session] = true
	return true
}

func (m *merger) end(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.under, session)
}

// merge writes one layer that is what the uppermost n are together, for the next
// checkpoint.
func (x *subject) merge(ctx context.Context, p auth.Principal) error {
	n := mergeable(x.store, x.tree)
	if enough, err := hasRoom(x.store, x.tree, n); err != nil || !enough {
		return err
	}
	into, err := x.melt(ctx, p, n, Seed{Disk: x.tree.Disk})
	if err != nil || into.layer == "" {
		return errors.Join(err, x.store.Sweep()) // its room is the session's
	}
	defer into.drop()
	return x.store.Merge(x.row.ID, x.tree.Lower[:n], into.layer)
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
	if _, err := v.TreeRevert(ctx, nil, ""); err != nil {
		return "", err
	}
	c, err := v.TreeChanges(ctx, client.DiffQuery{Limit: 1})
	if err != nil {
		return "", err
	}
	if n := c.Files + c.Unreadable; n > 0 {
		return "", fault.Conflict.Errorf("%d changed files cannot be copied; the first is %s", n, first(c))
	}
	v.close() // before anything may lie over what it has written
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

// settle makes one layer of all that a tree has, which needs nothing of the source but
// what it does not change itself. A renamed directory is otherwise a name that leads to one
// of the source, and would be empty once the change is written there.
func (x *subject) settle(ctx context.Context, p auth.Principal) error {
	if x.live != nil {
		c, err := x.freezeQuiet(ctx, layers.Checkpoint{Cause: causeApply})
		if err != nil {
			return err
		}
		defer func() { _, _ = x.store.Drop(x.row.ID, c.ID) }() // it was made to have no upper layer
	}
	before := x.tree
	if x.live == nil {
		x.tree.Lower, x.tree.Upper = x.tree.Layers(), ""
	}
	n := len(x.tree.Lower)
	if n == 0 {
		return nil
	}
	// A disk of its own: that of the session may be full.
	room, err := x.store.Room(x.tree)
	if err != nil {
		return err
	}
	into, err := x.melt(ctx, p, n, Seed{Room: room})
	if err != nil {
		return err
	}
	defer into.drop()
	var lower []string
	if into.layer != "" {
		lower = []string{into.layer}
	}
	x.dumped = true
	if x.tree, err = x.store.Settle(x.row.ID, lower); err != nil {
		return err
	}
	return x.lay(ctx, before)
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
