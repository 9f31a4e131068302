package session

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree/layers"
)

// agentOp is an operation on a session that has the changes of before, of which the checkpoint
// one has the file one alone.
type agentOp struct {
	name   string
	after  []string // the changed paths when it is done
	parts  []string // each of these may be done or not, if it was killed
	source bool     // it writes to the source
	do     func(ctx context.Context, m *Manager, id string) error
}

var (
	agentChanges = []string{"dir", "dir/deep", "gone", "kept", "moved", "moved/deep", "one", "two"}
	agentParts   = []string{"kept", "two"}
	agentOps     = []agentOp{
		{name: "checkpoint", after: agentChanges, do: func(ctx context.Context, m *Manager, id string) error {
			_, err := m.trees.Checkpoint(ctx, owner, id, client.CheckpointCreate{})
			return err
		}},
		{name: "restore", after: []string{"one"}, do: func(ctx context.Context, m *Manager, id string) error {
			_, err := m.trees.Restore(ctx, owner, id, client.RestoreRequest{Checkpoint: "one"})
			return err
		}},
		{name: "fork", after: agentChanges, do: func(ctx context.Context, m *Manager, id string) error {
			s, err := m.trees.Fork(ctx, owner, id, client.ForkRequest{})
			if err == nil {
				_, err = m.End(ctx, owner, s.ID, client.EndOptions{Force: true})
				err = errors.Join(err, m.trees.Forget(ctx, s.ID))
			}
			return err
		}},
		{name: "diff", after: agentChanges, do: func(ctx context.Context, m *Manager, id string) error {
			body, err := m.trees.Diff(ctx, owner, id, client.DiffQuery{Against: "one"})
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, body)
			return errors.Join(err, body.Close())
		}},
		{name: "discard in part", after: []string{"dir", "dir/deep", "gone", "moved", "moved/deep", "one"}, parts: agentParts, do: func(ctx context.Context, m *Manager, id string) error {
			_, err := m.trees.Discard(ctx, owner, id, client.DiscardRequest{Paths: agentParts})
			return err
		}},
		{name: "discard", do: func(ctx context.Context, m *Manager, id string) error {
			_, err := m.trees.Discard(ctx, owner, id, client.DiscardRequest{})
			return err
		}},
		{name: "apply", source: true, do: func(ctx context.Context, m *Manager, id string) error {
			_, err := m.trees.Apply(ctx, owner, id, client.ApplyRequest{})
			return err
		}},
	}
)

const (
	agentSource  = "dir/deep: deep\n|gone: gone\n|kept: old\n"
	agentApplied = "kept: old\nmore\n|moved/deep: deep\n|one: one\n|two: two\n"
)

// TestRealAgentKilled ends all agents by SIGKILL at each step of what uses a tree: that of the
// session, and those of sandboxes that were made for it. The operation says that it failed, or
// is done as a whole; the session is lost, its changes are not; and the same can be done to
// them then. The source has all or nothing, and nothing else is left anywhere.
func TestRealAgentKilled(t *testing.T) {
	a := newApplyRig(t)
	every := stride()
	for _, op := range agentOps {
		step := 1
		for a.agentKilled(op, step) {
			step += every
		}
		if t.Logf("%s: killed at each of %d steps", op.name, step/every); step < 2 {
			t.Errorf("%s has no step", op.name)
		}
	}
	if got := (&realHouse{Dir: filepath.Dir(a.m.cfg.Trees.Dir())}).mounts(t); len(got) > 0 {
		t.Errorf("mounts are left: %q", got)
	}
}

// rareStride is stride where each step takes seconds.
func rareStride() int {
	if n := stride(); n > 1 {
		return 3 * n
	}
	return 1
}

// stride is from one step that something is killed at to the next: TOOLD_TEST_LONG takes each.
func stride() int {
	if os.Getenv("TOOLD_TEST_LONG") != "" {
		return 1
	}
	return 3
}

// agentKilled makes a session and does op to it, the agents killed at a step. It reports
// whether there was such a step.
func (a *applyRig) agentKilled(op agentOp, step int) bool {
	t := a.t
	t.Helper()
	ctx := t.Context()
	left, err := os.ReadDir(a.src)
	a.must(err)
	for _, e := range left {
		a.must(os.RemoveAll(filepath.Join(a.src, e.Name())))
	}
	a.must(errors.Join(os.Mkdir(a.src+"/dir", 0o755), os.Chown(a.src+"/dir", int(alice.UID), int(alice.GID))))
	for name, text := range map[string]string{"dir/deep": "deep\n", "gone": "gone\n", "kept": "old\n"} {
		a.write(name, text)
	}
	id := a.session("agent")
	a.bash(id, "echo one >one")
	_, err = a.m.trees.Checkpoint(ctx, owner, id, client.CheckpointCreate{Name: "one"})
	a.must(err)
	a.bash(id, "echo two >two; rm gone; mv dir moved; echo more >>kept")

	var n atomic.Int64
	a.m.trees.Step = func(string) {
		if n.Add(1) == int64(step) {
			a.killAgents()
		}
	}
	err = op.do(ctx, a.m, id)
	a.m.trees.Step = func(string) {}
	killed := n.Load() >= int64(step)
	if !killed {
		a.must(err)
		a.end(id)
	}
	testrig.Eventually(t, "the session is over", func() bool {
		v, err := a.m.Get(ctx, owner, id)
		return err == nil && (v.State == client.SessionEnded || v.State == client.SessionLost) && a.m.liveByID(id) == nil
	})
	changed := func() []string {
		if _, err := a.m.cfg.Trees.Get(id); errors.Is(err, layers.ErrNone) {
			return nil
		}
		got := a.changed(id)
		slices.Sort(got)
		return got
	}
	source, got := listing(t, a.src), changed()
	done := slices.Equal(got, op.after) && (source == agentApplied) == op.source
	before := source == agentSource && slices.Equal(slices.DeleteFunc(got, op.part), slices.DeleteFunc(slices.Clone(agentChanges), op.part))
	if !done && (err == nil || !before) {
		t.Errorf("%s, the agents killed at step %d: %v, then changes are %q and the source has %q", op.name, step, err, got, source)
	}
	if err != nil && codeOfErr(err) == client.CodeInternal {
		t.Errorf("%s, the agents killed at step %d: %v", op.name, step, err) // which says nothing
	}
	if killed && !done {
		if err := op.do(ctx, a.m, id); err != nil {
			t.Errorf("%s, the agents killed at step %d, and done again: %v", op.name, step, err)
		}
		if source, got = listing(t, a.src), changed(); !slices.Equal(got, op.after) || (source == agentApplied) != op.source {
			t.Errorf("%s, the agents killed at step %d, and done again: changes are %q and the source has %q", op.name, step, got, source)
		}
	}
	a.nothingLeft(id)
	return killed
}

// part reports whether a path may be done or not.
func (op *agentOp) part(path string) bool { return slices.Contains(op.parts, path) }

// killAgents ends the agents of all sessions.
func (a *applyRig) killAgents() {
	for _, s := range a.m.live() {
		var rec struct{ PID int }
		row := s.Row()
		if err := json.Unmarshal(row.Record, &rec); err == nil && rec.PID > 1 {
			_ = syscall.Kill(rec.PID, syscall.SIGKILL)
		}
	}
}

// nothingLeft removes what a session has changed, and looks for what other sessions have left.
func (a *applyRig) nothingLeft(id string) {
	t := a.t
	t.Helper()
	testrig.Eventually(t, "all sessions are over", func() bool { return len(a.m.live()) == 0 })
	trees, unreadable, err := a.m.cfg.Trees.All()
	a.must(err)
	for _, tree := range trees {
		if tree.Session != id {
			// A fork whose agent was killed is a lost session, with all that it began with.
			if list, err := a.m.Get(t.Context(), owner, tree.Session); err != nil || list.State != client.SessionLost {
				t.Errorf("the tree of %s is left: %+v, %v", tree.Session, list, err)
			}
		}
		a.must(a.m.trees.Forget(t.Context(), tree.Session))
	}
	if len(unreadable) > 0 {
		t.Errorf("unreadable: %v", unreadable)
	}
	var unused []string
	testrig.Eventually(t, "the last view and merge have let go of their disks", func() bool {
		unused, err = a.m.cfg.Trees.Unused()
		return err != nil || len(unused) == 0
	})
	a.must(err)
	all, err := os.ReadDir(a.src)
	a.must(err)
	for _, e := range all {
		if strings.HasPrefix(e.Name(), ".toold") {
			t.Errorf("%s is left in the source", e.Name())
		}
	}
}
