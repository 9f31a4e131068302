package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/worktree/layers"
)

// overlay is the part of a session that is the layers over its worktree's source, for the
// mode overlay. They outlive the session, until somebody has taken or dropped what is in
// them, or [worktrees] keep is over.
type overlay struct {
	nothing
	roster *roster
}

// claim settles how much the session may change.
func (o overlay) claim(_ context.Context, pl *plan) error {
	if pl.req.Worktree.Mode != client.WorktreeOverlay {
		return nil
	}
	if pl.seed.Internal || pl.disk == 0 {
		pl.changes = pl.seed.Room
		return nil
	}
	if err := o.roster.cfg.Trees.Bounded(); err != nil {
		if pl.req.Limits.Disk > 0 && pl.req.Image == "" {
			return fault.In(fault.Invalid.Errorf("limits.disk %s: this host cannot bound what a session changes in its worktree (%w)", pl.req.Limits.Disk, err).
				Next("leave it out; toolctl doctor says what is missing"), "limits", "disk")
		}
		pl.notes = append(pl.notes, fmt.Sprintf("the changes of the worktree lie in the state directory: their size has no bound (%v)", err))
		return nil
	}
	pl.req.Limits.Disk = pl.disk
	pl.changes = pl.disk
	return nil
}

// open stores the layers before the sandbox is made of them.
func (o overlay) open(_ context.Context, s *Session, pl *plan) (err error) {
	w := &pl.spec.Worktree
	if w.Mode != client.WorktreeOverlay {
		return nil
	}
	from, store := &pl.seed, o.roster.cfg.Trees
	tree, err := o.tree(s, pl)
	if err != nil {
		return err
	}
	names := slices.Concat(from.Lower, from.Base)
	if !from.Look {
		if tree.Disk == "" && pl.changes > 0 {
			var release func()
			if tree.Disk, release, err = store.NewDisk(pl.changes); err != nil {
				return fmt.Errorf("limits.disk: %w", err)
			}
			defer release()
		}
		if err := store.Begin(tree); err != nil {
			return err
		}
		names = append(names, tree.Upper)
	}
	if pl.layers, err = store.OpenLayers(names); err != nil {
		return fmt.Errorf("layers of session %s: %w", s.id, err)
	}
	all, n := pl.layers.Files, len(from.Lower)
	w.Overlay = &sandbox.Overlay{Lower: all[:n], Base: all[n : n+len(from.Base)]}
	if !from.Look {
		w.Overlay.Upper = all[len(all)-1]
	}
	return nil
}

// tree is that of a session which begins. Its layers lie over the very directory that
// they were made over.
func (overlay) tree(s *Session, pl *plan) (*layers.Tree, error) {
	w, from := &pl.spec.Worktree, pl.seed.From
	if pl.seed.Void {
		return from, nil
	}
	source := pl.sources[0].Source
	t := &layers.Tree{Session: s.id, Source: source, UID: w.UID, GID: w.GID, Lower: pl.seed.Lower, Disk: pl.seed.Disk}
	if from == nil {
		return t, nil
	}
	if source != from.Source {
		return nil, fault.Conflict.Errorf("%s is not the directory that the changes of session %s were made over", shown(source.Path), from.Session).
			Next("put that one back in its place")
	}
	t.Since, t.Clock, t.Boot = from.Since, from.Clock, from.Boot
	t.Incomplete, t.Origins, t.Wrote = from.Incomplete, from.Origins, from.Wrote
	return t, nil
}

// close leaves the layers to those who look at them later.
func (o overlay) close(s *Session, _ ending, left error) (notes []string, err error) {
	if s.Row().Worktree.Mode != client.WorktreeOverlay {
		return nil, nil
	}
	if left != nil {
		return nil, nil // something may still write to them: they are found again as leftovers
	}
	o.roster.trees.Over(s.id)
	err = o.roster.cfg.Trees.End(s.id, time.Now().UTC())
	if errors.Is(err, layers.ErrNone) {
		return nil, nil // it was one to look at others' layers
	}
	return nil, err
}

// overlayEnv keeps git from changes that nobody asked for: git status would bring .git/index
// up to date, and a session that only looks at things had changed a file then.
func overlayEnv(pl *plan) map[string]string {
	env := make(map[string]string)
	if pl.req.Worktree.Mode == client.WorktreeOverlay {
		env["GIT_OPTIONAL_LOCKS"] = "0"
	}
	return env
}
