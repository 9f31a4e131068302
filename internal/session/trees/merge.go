package trees

import (
	"context"
	"errors"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/worktree/layers"
)

const (
	// mergeAt is how many lower layers a tree has when some of them are merged, and
	// mergeLeast how many of them at least.
	mergeAt    = 32
	mergeLeast = 24
)

// mergeSoon merges layers of a live session's tree in the background, when there are many.
// The merged one takes their place at the next checkpoint; those that other checkpoints
// name stay.
func (s *Service) mergeSoon(ctx context.Context, x *subject) {
	if len(x.tree.Lower) < mergeAt || len(x.tree.Merged) > 0 {
		return
	}
	s.mu.Lock()
	_, under := s.merging[x.row.ID]
	s.merging[x.row.ID] = struct{}{}
	s.mu.Unlock()
	if under {
		return
	}
	mine := &subject{row: x.row, tree: x.tree}
	s.work.Go(func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.merging, mine.row.ID)
		}()
		// The source is found by what it is, whoever has asked for the checkpoint.
		own := auth.Principal{Tenant: mine.row.Tenant, Admin: true}
		if err := s.merge(context.WithoutCancel(ctx), own, mine); err != nil {
			s.log.Warn("merge layers of a worktree", "session", mine.row.ID, "error", err)
		}
	})
}

// merge writes one layer that is what the uppermost n are together, for the next
// checkpoint.
func (s *Service) merge(ctx context.Context, p auth.Principal, x *subject) error {
	n := s.mergeable(x.tree)
	into, err := s.melt(ctx, p, x, n)
	if err != nil || into.layer == "" {
		return err
	}
	defer into.drop()
	return s.store.Merge(x.row.ID, x.tree.Lower[:n], into.layer)
}

// molten is a layer that was made of others. It stays where a tree names it before drop.
type molten struct {
	layer string // "" where they are nothing together
	drop  func()
}

// melt writes a layer that is what the uppermost n lower ones of a tree are together. A
// sandbox that has the layers below them makes its worktree like one that has them all,
// file by file: no name in it leads to a directory that lies below.
func (s *Service) melt(ctx context.Context, p auth.Principal, x *subject, n int) (*molten, error) {
	all := x.tree.Lower
	v, err := s.open(ctx, p, x, Seed{Lower: all[n:], Base: all, From: x.tree, Internal: true})
	if err != nil {
		return nil, err
	}
	made := &molten{drop: func() { s.drop(v) }}
	if made.layer, err = s.copied(ctx, v); err != nil {
		made.drop()
		return nil, err
	}
	return made, nil
}

// copied makes the worktree of a view like what it is compared with, and gives the layer
// that took the copies.
func (s *Service) copied(ctx context.Context, v *view) (layer string, err error) {
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
	t, err := s.store.Get(v.session)
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
func (s *Service) settle(ctx context.Context, p auth.Principal, x *subject) error {
	if x.live != nil {
		c, err := s.freezeQuiet(ctx, x, layers.Checkpoint{Cause: causeApply})
		if err != nil {
			return err
		}
		defer func() { _ = s.store.Drop(x.row.ID, c.ID) }() // it was made to have no upper layer
	}
	before := x.tree
	if x.live == nil {
		x.tree = x.tree.Flat()
	}
	n := len(x.tree.Lower)
	if n == 0 {
		return nil
	}
	into, err := s.melt(ctx, p, x, n)
	if err != nil {
		return err
	}
	defer into.drop()
	var lower []string
	if into.layer != "" {
		lower = []string{into.layer}
	}
	if x.tree, err = s.store.Settle(x.row.ID, lower); err != nil {
		return err
	}
	return s.lay(ctx, x, before)
}

// mergeable is how many of a tree's lower layers are merged, from the uppermost on: what
// is large is not copied again each time.
func (s *Service) mergeable(t *layers.Tree) int {
	var sum int64
	for i, l := range t.Lower {
		size := s.store.Bytes(t, l)
		if i >= mergeLeast && size > sum {
			return i
		}
		sum += size
	}
	return len(t.Lower)
}
