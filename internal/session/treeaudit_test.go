package session

import (
	"reflect"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/worktree/layers"
)

// TestAuditOfTrees: what becomes of changes is on record before it is done, and without
// a record it is not done.
func TestAuditOfTrees(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	o := &told{}
	h.stop()
	h.audit = o
	h.open()
	s := h.changed(dir, client.SessionCreate{})
	tree, err := h.trees.Freeze(s.ID, layers.Checkpoint{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	h.change(s.ID)
	h.finish(s.ID)
	one, ctx := tree.Checkpoints[0].ID, t.Context()
	if tree, err = h.trees.Get(s.ID); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		want record.Worktree
		do   func() error
	}{
		{record.Worktree{Operation: "checkpoint", Name: "two"}, func() error {
			_, err := h.m.trees.Checkpoint(ctx, mounter, s.ID, client.CheckpointCreate{Name: "two"})
			return err
		}},
		{record.Worktree{Operation: "fork", Checkpoint: one}, func() error {
			_, err := h.m.trees.Fork(ctx, mounter, s.ID, client.ForkRequest{At: "one"})
			return err
		}},
		{record.Worktree{Operation: "restore", Checkpoint: one}, func() error {
			_, err := h.m.trees.Restore(ctx, mounter, s.ID, client.RestoreRequest{Checkpoint: "one"})
			return err
		}},
		{record.Worktree{Operation: "drop_checkpoint", Checkpoint: one}, func() error { return h.m.trees.DropCheckpoint(ctx, mounter, s.ID, "one") }},
		{record.Worktree{Operation: "discard"}, func() error {
			_, err := h.m.End(ctx, mounter, s.ID, client.EndOptions{Discard: true})
			return err
		}},
	}
	o.fail = fault.Overloaded.Errorf("the audit log cannot be written")
	sessions := len(h.layers())
	for _, x := range append(steps, []struct {
		want record.Worktree
		do   func() error
	}{
		{record.Worktree{Operation: "apply"}, func() error {
			_, err := h.m.trees.Apply(ctx, mounter, s.ID, client.ApplyRequest{})
			return err
		}},
		{record.Worktree{Operation: "discard"}, func() error {
			_, err := h.m.trees.Discard(ctx, mounter, s.ID, client.DiscardRequest{})
			return err
		}},
	}...) {
		if err := x.do(); codeOfErr(err) != client.CodeOverloaded {
			t.Errorf("%s without a record: %v", x.want.Operation, err)
		}
		if now, err := h.trees.Get(s.ID); err != nil || !reflect.DeepEqual(now, tree) || len(h.layers()) != sessions {
			t.Errorf("%s without a record did something: %+v, %v", x.want.Operation, now, err)
		}
	}
	o.fail = nil
	for i, x := range steps {
		if err := x.do(); err != nil {
			t.Errorf("%s: %v", x.want.Operation, err)
		}
		if len(o.worktrees) != i+1 || o.worktrees[i] != x.want || o.by[i].UID != mounter.UID {
			t.Errorf("%s: on record are %+v", x.want.Operation, o.worktrees)
		}
	}
}
