package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree/layers"
)

// overOp is something that is done to the changes of a session that is over, or removes them.
type overOp struct {
	name    string
	after   string // the changed paths once it is done
	applied bool   // the source has them then
	gone    bool   // the session has left no changes then
	rare    bool   // only where a step takes no seconds
	do      func(ctx context.Context, m *Manager, id string) error
}

const (
	overChanges = "d d/two one"
	overApplied = "d/two: two\n|one: one\n"
)

var overOps = []overOp{
	{name: "diff of one that is over", after: overChanges, rare: true, do: func(ctx context.Context, m *Manager, id string) error {
		body, err := m.trees.Diff(ctx, owner, id, client.DiffQuery{})
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, body)
		return errors.Join(err, body.Close())
	}},
	{name: "fork of one that is over", after: overChanges, do: func(ctx context.Context, m *Manager, id string) error {
		s, err := m.trees.Fork(ctx, owner, id, client.ForkRequest{})
		if err == nil {
			_, err = m.End(ctx, owner, s.ID, client.EndOptions{Discard: true})
		}
		return err
	}},
	{name: "apply of one that is over", applied: true, do: func(ctx context.Context, m *Manager, id string) error {
		_, err := m.trees.Apply(ctx, owner, id, client.ApplyRequest{})
		return err
	}},
	{name: "discard of a path of one that is over", after: "d d/two", do: func(ctx context.Context, m *Manager, id string) error {
		_, err := m.trees.Discard(ctx, owner, id, client.DiscardRequest{Paths: []string{"one"}})
		return err
	}},
	{name: "discard of one that is over", rare: true, do: func(ctx context.Context, m *Manager, id string) error {
		_, err := m.trees.Discard(ctx, owner, id, client.DiscardRequest{})
		return err
	}},
	{name: "end with discard", gone: true, do: func(ctx context.Context, m *Manager, id string) error {
		_, err := m.End(ctx, owner, id, client.EndOptions{Discard: true})
		return err
	}},
	{name: "forget", gone: true, rare: true, do: func(ctx context.Context, m *Manager, id string) error {
		err := m.trees.Forget(ctx, id)
		if errors.Is(err, layers.ErrNone) {
			err = nil
		}
		return err
	}},
	{name: "sweep by keep", gone: true, rare: true, do: func(ctx context.Context, m *Manager, _ string) error {
		set := *m.settings.Load()
		set.Worktrees.Keep = time.Nanosecond
		m.Reload(set)
		m.Collector.sweep(ctx)
		return nil
	}},
}

// killedOver has daemons killed in what is done to the changes of sessions that are over.
func (r *treeRig) killedOver(every int, rare bool) {
	t := r.t
	t.Helper()
	src, id := source(t), ""
	for _, op := range overOps {
		if op.rare && !rare {
			continue
		}
		for step := 1; ; step += every {
			if id == "" {
				id = r.over(src)
			}
			r.h.Over = id
			killed := r.h.dieAt(t, op.name, step)
			at := fmt.Sprintf("%s, killed at step %d", op.name, step)
			r.daemon(func(m *Manager) {
				if got := leftBy(t, m, id); got != overChanges && got != op.after {
					t.Errorf("%s: changes are %q", at, got)
				}
				if got := listing(t, src); got != "" && (got != overApplied || !op.applied) {
					t.Errorf("%s: the source has %q", at, got)
				}
				r.besides(m, at)
				if _, err := m.cfg.Trees.Get(id); errors.Is(err, layers.ErrNone) {
					r.forgotten(m, id)
				}
				if err := op.do(t.Context(), m, id); err != nil {
					t.Errorf("%s and done again: %v", at, err)
				}
				if got := leftBy(t, m, id); got != op.after {
					t.Errorf("%s and done again: changes are %q, want %q", at, got, op.after)
				}
				if got := listing(t, src); (got == overApplied) != op.applied || !op.applied && got != "" {
					t.Errorf("%s and done again: the source has %q", at, got)
				}
				if _, err := m.cfg.Trees.Get(id); errors.Is(err, layers.ErrNone) != op.gone {
					t.Errorf("%s and done again: the tree is there: %v", at, err)
				}
				if op.after == overChanges {
					return
				}
				if _, err := m.End(t.Context(), owner, id, client.EndOptions{Discard: true}); err != nil {
					t.Errorf("%s: %v", at, err)
				}
				r.forgotten(m, id)
				id = ""
			})
			left, err := os.ReadDir(src)
			for _, e := range left {
				err = errors.Join(err, os.RemoveAll(filepath.Join(src, e.Name())))
			}
			if err != nil {
				t.Fatal(err)
			}
			if !killed {
				t.Logf("%s has less than %d steps", op.name, step)
				if step == 1 {
					t.Errorf("%s has no step", op.name)
				}
				break
			}
		}
	}
}

// over makes a session, has it write, and ends it.
func (r *treeRig) over(src string) (id string) {
	t := r.t
	t.Helper()
	r.daemon(func(m *Manager) {
		s, err := m.Create(t.Context(), owner, client.SessionCreate{Worktree: client.Worktree{Source: src, Mode: client.WorktreeOverlay}, IdleTimeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		id = s.ID
		r.seen[id] = true
		if c := realCall(t, m, id, "bash", object{"command": "echo one >one; mkdir d; echo two >d/two"}); c.IsError || c.Error != nil {
			t.Fatalf("%+v", c)
		}
		if _, err := m.End(t.Context(), owner, id, client.EndOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	return id
}

// forgotten waits until nothing is left of a session whose changes are removed: the last look at them
// ends a moment later, and what another daemon has begun is finished beside all else.
func (r *treeRig) forgotten(m *Manager, id string) {
	r.t.Helper()
	testrig.Eventually(r.t, "nothing is left of what was removed", func() bool {
		unused, err := m.cfg.Trees.Unused()
		dirs, derr := m.cfg.Trees.ApplyDirs()
		_, there := dirs[id]
		return err == nil && len(unused) == 0 && (derr == nil || errors.Is(derr, os.ErrNotExist)) && !there
	})
}

// leftBy are the changed paths of a session that is over; "" also where it has left none.
func leftBy(t *testing.T, m *Manager, id string) string {
	t.Helper()
	c, err := m.trees.Changes(t.Context(), owner, id, client.DiffQuery{})
	if errors.Is(err, fault.NotFound) {
		return ""
	}
	if err != nil {
		t.Error(err)
		return "unknown"
	}
	var paths []string
	for _, i := range c.Items {
		paths = append(paths, i.Path)
	}
	return strings.Join(paths, " ")
}
