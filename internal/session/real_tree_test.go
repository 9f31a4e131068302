package session

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// treeOp changes the tree of the session "tree", in which `one` is a checkpoint that has
// the file one alone. after is what may be
// there once it is done.
type treeOp struct {
	name  string
	after string
	do    func(ctx context.Context, m *Manager) error
}

// owner may have any directory as a worktree.
var owner = auth.Principal{Tenant: alice.Tenant, Admin: true}

var treeOps = []treeOp{
	{"checkpoint", "one two", func(ctx context.Context, m *Manager) error {
		_, err := m.trees.Checkpoint(ctx, owner, "tree", client.CheckpointCreate{})
		return err
	}},
	{"restore", "one", func(ctx context.Context, m *Manager) error {
		_, err := m.trees.Restore(ctx, owner, "tree", client.RestoreRequest{Checkpoint: "one"})
		return err
	}},
	{"discard", "", func(ctx context.Context, m *Manager) error {
		_, err := m.trees.Discard(ctx, owner, "tree", client.DiscardRequest{})
		return err
	}},
	{"fork", "one two", func(ctx context.Context, m *Manager) error {
		s, err := m.trees.Fork(ctx, owner, "tree", client.ForkRequest{})
		if err == nil {
			_, err = m.End(ctx, owner, s.ID, client.EndOptions{})
		}
		return err
	}},
}

var treeApply = treeOp{name: "apply", do: func(ctx context.Context, m *Manager) error {
	_, err := m.trees.Apply(ctx, owner, "tree", client.ApplyRequest{})
	return err
}}

// TestRealTreeKilled ends a daemon by SIGKILL at each step of what changes a tree. The next
// one has the files as they were before or as they are after it, and goes on.
func TestRealTreeKilled(t *testing.T) {
	h := newRealHouse(t)
	src := source(t)
	daemon := func(use func(m *Manager)) {
		t.Helper()
		m, stop, err := h.open(slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelWarn})))
		if err != nil {
			t.Fatal(err)
		}
		use(m)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	bash := func(m *Manager, command string) string {
		t.Helper()
		c := realCall(t, m, "tree", "bash", object{"command": command})
		if c.IsError || c.Error != nil {
			t.Fatalf("%s: %+v", command, c)
		}
		return strings.TrimSpace(c.Output)
	}
	daemon(func(m *Manager) {
		_, err := m.Create(t.Context(), owner, client.SessionCreate{
			Name: "tree", Worktree: client.Worktree{Source: src, Mode: client.WorktreeOverlay}, IdleTimeout: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		bash(m, "echo one >one")
		if _, err := m.trees.Checkpoint(t.Context(), owner, "tree", client.CheckpointCreate{Name: "one"}); err != nil {
			t.Fatal(err)
		}
	})
	for _, op := range treeOps {
		for step := 1; ; step += stride() {
			daemon(func(m *Manager) { bash(m, "echo one >one; echo two >two") })
			killed := h.dieAt(t, op.name, step)
			daemon(func(m *Manager) {
				if got := bash(m, "echo *"); got != "one two" && got != op.after && (got != "*" || op.after != "") {
					t.Errorf("%s, killed at step %d: there are %q", op.name, step, got)
				}
				if got := bash(m, "cat one || true"); got != "one" && op.after != "" {
					t.Errorf("%s, killed at step %d: one has %q", op.name, step, got)
				}
				// What is decided is not forgotten: it can be done again.
				if err := op.do(t.Context(), m); err != nil {
					t.Errorf("%s, killed at step %d and done again: %v", op.name, step, err)
				}
			})
			if left, err := os.ReadDir(src); err != nil || len(left) > 0 {
				t.Fatalf("%s, killed at step %d: the source has %v, %v", op.name, step, left, err)
			}
			if !killed {
				if step == 1 {
					t.Errorf("%s has no step", op.name)
				}
				break
			}
		}
	}
	content := func(n int) map[string]string {
		if n == 0 {
			return map[string]string{}
		}
		text := strconv.Itoa(n) + "\n"
		return map[string]string{"one": text, "two": text}
	}
	for step, before := 1, 0; ; step, before = step+stride(), step { // each apply ends with the source as the session is
		daemon(func(m *Manager) { bash(m, fmt.Sprintf("echo %d >one; echo %[1]d >two", step)) })
		killed := h.dieAt(t, "apply", step)
		daemon(func(m *Manager) {
			if got := sourceFiles(t, src); !maps.Equal(got, content(step)) && !maps.Equal(got, content(before)) {
				t.Errorf("apply, killed at step %d: the source has %q", step, got)
			}
			words := cutOffWords(t, m)
			if written := maps.Equal(sourceFiles(t, src), content(step)); killed && written == (words == "" || strings.Contains(words, "before anything")) || !killed && words != "" {
				t.Errorf("apply, killed at step %d: written %v, and it is said %q", step, written, words)
			}
			if got, want := bash(m, "cat *"), strings.Repeat(strconv.Itoa(step)+"\n", 2); got+"\n" != want {
				t.Errorf("apply, killed at step %d: the session has %q", step, got)
			}
			if err := treeApply.do(t.Context(), m); err != nil {
				t.Errorf("apply, killed at step %d and done again: %v", step, err)
			}
			if got := sourceFiles(t, src); !maps.Equal(got, content(step)) {
				t.Errorf("apply, killed at step %d and done again: the source has %q", step, got)
			}
		})
		if !killed {
			t.Logf("apply has %d to %d steps", before, step-1)
			break
		}
	}
	daemon(func(m *Manager) {
		if err := m.EndAll(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if b, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(b, []byte(h.Dir)) {
		t.Errorf("mounts are left, %v", err)
	}
}

// cutOffWords is what notes of the session and its diff say of an apply that was cut off.
func cutOffWords(t *testing.T, m *Manager) string {
	t.Helper()
	c, err := m.trees.Changes(t.Context(), owner, "tree", client.DiffQuery{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.find(owner, "tree")
	if err != nil {
		t.Fatal(err)
	}
	if v := s.snapshot(t.Context()); c.Earlier != "" && !slices.Contains(v.Notes, c.Earlier) {
		t.Errorf("the diff says %q, the notes %q", c.Earlier, v.Notes)
	}
	return c.Earlier
}

// sourceFiles reads those of a source.
func sourceFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	list, err := os.ReadDir(dir)
	for _, e := range list {
		var text []byte
		if text, err = os.ReadFile(dir + "/" + e.Name()); err != nil {
			break
		}
		got[e.Name()] = string(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// dieAt has a daemon do something to the tree that kills itself at a step. It reports
// whether there was such a step.
func (h *realHouse) dieAt(t *testing.T, op string, step int) bool {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	config := *h
	config.Op, config.Step = op, step
	cmd := config.child(t, "tree")
	out, err := cmd.Output()
	if err == nil && strings.TrimSpace(string(out)) == "done" {
		return false
	}
	var exit *exec.ExitError
	if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // it is what Output gives
		exit = e
	}
	if exit == nil || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%s, to be killed at step %d: %v, %s", op, step, err, out)
	}
	return true
}

// changeTree is what the daemon does that dieAt starts.
func (h *realHouse) changeTree() error {
	m, stop, err := h.open(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	left := h.Step
	m.trees.Step = func(string) {
		if left--; left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	for _, op := range append([]treeOp{treeApply}, treeOps...) {
		if op.name == h.Op {
			err = op.do(context.Background(), m)
		}
	}
	if err == nil {
		err = stop()
	}
	if err == nil {
		fmt.Println("done")
	}
	return err
}
