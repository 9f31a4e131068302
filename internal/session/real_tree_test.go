package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree/layers"
)

// treeOp changes the tree of the session "tree", in which `one` is a checkpoint that has
// the file one alone. after is what may be
// there once it is done.
type treeOp struct {
	name  string
	after string
	do    func(ctx context.Context, m *Manager) error
	// begin may be nil. It comes before the file two is written.
	begin func(ctx context.Context, m *Manager) error
}

// owner may have any directory as a worktree.
var owner = auth.Principal{Tenant: alice.Tenant, Admin: true}

var treeOps = []treeOp{
	{name: "checkpoint", after: "one two", do: func(ctx context.Context, m *Manager) error {
		_, err := m.trees.Checkpoint(ctx, owner, "tree", client.CheckpointCreate{})
		return err
	}},
	{name: "restore", after: "one", do: func(ctx context.Context, m *Manager) error {
		_, err := m.trees.Restore(ctx, owner, "tree", client.RestoreRequest{Checkpoint: "one"})
		return err
	}},
	{name: "undo", after: "one", begin: func(ctx context.Context, m *Manager) error {
		s, err := m.find(owner, "tree")
		if err == nil {
			row := s.Row()
			made := trees.Made{Busy: true}
			for try := 0; try < 100 && made.Busy; try++ { // it does not wait for long, and the host may be slow
				made = m.trees.Before(ctx, &row, s, trees.EachCall, "call", "")
			}
			if made.ID == "" {
				err = fmt.Errorf("no checkpoint before a call: %s", made.Missing)
			}
		}
		return err
	}, do: func(ctx context.Context, m *Manager) error {
		_, err := m.trees.Restore(ctx, owner, "tree", client.RestoreRequest{Undo: 1})
		if errors.Is(err, fault.NotFound) { // it is undone, and there was nothing before
			err = nil
		}
		return err
	}},
	{name: "discard of a path", after: "one", do: func(ctx context.Context, m *Manager) error {
		_, err := m.trees.Discard(ctx, owner, "tree", client.DiscardRequest{Paths: []string{"two"}})
		return err
	}},
	{name: "discard", do: func(ctx context.Context, m *Manager) error {
		_, err := m.trees.Discard(ctx, owner, "tree", client.DiscardRequest{})
		return err
	}},
	{name: "fork", after: "one two", do: func(ctx context.Context, m *Manager) error {
		s, err := m.trees.Fork(ctx, owner, "tree", client.ForkRequest{})
		if err == nil {
			_, err = m.End(ctx, owner, s.ID, client.EndOptions{})
		}
		return err
	}},
}

// treeMerge makes the checkpoint after which layers are merged, and the next one, which has the merged
// one in their place.
var treeMerge = treeOp{name: "merge", after: "one two", begin: func(ctx context.Context, m *Manager) error {
	s, err := m.find(owner, "tree")
	for err == nil {
		var tree *layers.Tree
		if tree, err = m.cfg.Trees.Get(s.id); err != nil || len(tree.Lower) >= layersOfMerge-1 {
			return err
		}
		if _, err = m.calls.Call(ctx, owner, "tree", bashCall("echo one >one"), call.Options{}); err == nil {
			_, err = m.trees.Checkpoint(ctx, owner, "tree", client.CheckpointCreate{})
		}
	}
	return err
}, do: func(ctx context.Context, m *Manager) error {
	s, err := m.find(owner, "tree")
	for range 3 { // one more where the merge was lost with the daemon
		if err != nil {
			return err
		}
		if _, err = m.calls.Call(ctx, owner, "tree", bashCall("echo two >two"), call.Options{}); err != nil {
			return err
		}
		if _, err = m.trees.Checkpoint(ctx, owner, "tree", client.CheckpointCreate{}); err != nil {
			return err
		}
		var tree *layers.Tree
		if tree, err = m.cfg.Trees.Get(s.id); err == nil && len(tree.Lower) < layersOfMerge/2 {
			return nil
		}
	}
	return errors.Join(err, errors.New("no layers were merged"))
}}

// layersOfMerge is how many lower layers a tree has when some of them are merged.
const layersOfMerge = 32

// treeBeside makes a session over the same source, has it write and ends it: what it has changed stays.
var treeBeside = treeOp{name: "session", after: "one two", do: func(ctx context.Context, m *Manager) error {
	tree, err := m.find(owner, "tree")
	if err != nil {
		return err
	}
	r := client.SessionCreate{Worktree: client.Worktree{Source: tree.Row().Worktree.Source, Mode: client.WorktreeOverlay}, IdleTimeout: -1}
	s, err := m.Create(ctx, owner, r)
	if err != nil {
		return err
	}
	c, err := m.calls.Call(ctx, owner, s.ID, bashCall("echo one >one"), call.Options{})
	if err == nil && (c.IsError || c.Error != nil) {
		err = fmt.Errorf("in a new session: %+v", c)
	}
	if err == nil {
		_, err = m.End(ctx, owner, s.ID, client.EndOptions{})
	}
	return err
}}

var treeApply = treeOp{name: "apply", do: func(ctx context.Context, m *Manager) error {
	_, err := m.trees.Apply(ctx, owner, "tree", client.ApplyRequest{})
	return err
}}

// stepping is a part of sessions that is told between any two parts that are made or removed.
type stepping struct {
	part
	step func(string)
}

func (p stepping) open(ctx context.Context, s *Session, pl *plan) error {
	err := p.part.open(ctx, s, pl)
	p.step("opened")
	return err
}

func (p stepping) close(s *Session, e ending, left error) (notes []string, err error) {
	p.step("closing")
	notes, err = p.part.close(s, e, left)
	p.step("closed")
	return notes, err
}

// besides sees that sessions which a daemon was killed in the making, in the use or in the end of are
// whole: they work, or they are over and what they had changed is there. All of them are over then.
func (r *treeRig) besides(m *Manager, killed string) {
	t := r.t
	t.Helper()
	<-m.Collector.swept
	if left, err := m.Collector.GC(t.Context(), owner, client.GCRequest{DryRun: true}); err != nil || len(left) > 0 {
		t.Errorf("%s: left is %+v, %v", killed, left, err)
	}
	all, err := m.List(t.Context(), owner, client.SessionQuery{All: true, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Items {
		if s.Name == "tree" || r.seen[s.ID] {
			continue
		}
		r.seen[s.ID] = true
		switch {
		case s.Labels["toold/for"] != "" && s.State != client.SessionEnded:
			t.Errorf("%s: a helper of the daemon that was killed is %s", killed, s.State)
		case s.State == client.SessionReady:
			if c := realCall(t, m, s.ID, "bash", object{"command": "echo one >one; cat one"}); c.Output != "one\n" {
				t.Errorf("%s: in a session that is ready: %+v", killed, c)
			}
			if _, err := m.End(t.Context(), owner, s.ID, client.EndOptions{}); err != nil {
				t.Errorf("%s: %v", killed, err)
			}
		case s.State != client.SessionEnded && s.State != client.SessionLost:
			t.Errorf("%s: a session is %s", killed, s.State)
			continue
		case s.Usage.Calls == 0: // it was never made, or has written nothing
			continue
		}
		c, err := m.trees.Changes(t.Context(), owner, s.ID, client.DiffQuery{})
		if err != nil || !slices.ContainsFunc(c.Items, func(i client.Change) bool { return i.Path == "one" }) {
			t.Errorf("%s: the changes of a session that is over: %+v, %v", killed, c, err)
		}
		r.kept++
		if _, err := m.End(t.Context(), owner, s.ID, client.EndOptions{Discard: true}); err != nil {
			t.Errorf("%s: %v", killed, err)
		}
	}
}

// treeRig is a house whose daemons have the session "tree".
type treeRig struct {
	t      *testing.T
	h      *realHouse
	src    string
	stride int
	seen   map[string]bool // sessions that were looked at
	kept   int             // how many of them had changes
}

func newTreeRig(t *testing.T, h *realHouse) *treeRig {
	t.Helper()
	r := &treeRig{t: t, h: h, src: source(t), stride: stride(), seen: make(map[string]bool)}
	r.daemon(func(m *Manager) {
		_, err := m.Create(t.Context(), owner, client.SessionCreate{
			Name: "tree", Worktree: client.Worktree{Source: r.src, Mode: client.WorktreeOverlay}, IdleTimeout: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return r
}

// daemon is one of the house's, for as long as it is used.
func (r *treeRig) daemon(use func(m *Manager)) {
	r.t.Helper()
	m, stop, err := r.h.open(slog.New(slog.NewTextHandler(logTo{r.t}, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		r.t.Fatal(err)
	}
	use(m)
	if err := stop(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *treeRig) bash(m *Manager, command string) string {
	r.t.Helper()
	c := realCall(r.t, m, "tree", "bash", object{"command": command})
	if c.IsError || c.Error != nil {
		r.t.Fatalf("%s: %+v", command, c)
	}
	return strings.TrimSpace(c.Output)
}

// TestRealTreeKilled ends a daemon by SIGKILL at each step of what lays, changes or removes a tree, or
// makes or ends a session. The next one has the files as they were before or as they are after it, and
// goes on.
func TestRealTreeKilled(t *testing.T) {
	r := newTreeRig(t, newRealHouse(t))
	r.prepared()
	r.unmounted()
	r.olderDatabase()
	r.killed(append(slices.Clone(treeOps), treeMerge, treeBeside))
	r.killedInApply()
	r.killedOver(5*stride()-4, true)
	r.end()
}

// TestRealTreeKilledGVisor is the same with gVisor, which takes no mount into a sandbox that runs: what
// is left of the table is that sessions are made and ended, and what is done to those that are over.
func TestRealTreeKilledGVisor(t *testing.T) {
	r := newTreeRig(t, newRealHouseOfGVisor(t))
	r.stride = rareStride() // to make a session takes seconds
	r.killed([]treeOp{treeBeside})
	r.killedOver(3*r.stride-2, stride() == 1)
	r.end()
}

// TestRealTreeKilledDocker is TestRealTreeKilled with an Engine, which has the mounts and the containers.
func TestRealTreeKilledDocker(t *testing.T) {
	needOCI(t)
	engine, err := sandboxtest.StartEngine() // before the house, which is cleaned with it
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		testrig.Skipf(t, "docker", "no Docker Engine: %v", err)
	}
	group, err := engine.Cgroup()
	if err != nil {
		t.Fatal(err)
	}
	h := newRealHouse(t)
	h.Engine, h.Cgroup = engine.Host(), group+h.Cgroup
	r := newTreeRig(t, h)
	r.stride = rareStride() // to make a session takes seconds
	r.prepared()
	r.unmounted()
	r.olderDatabase()
	ops := append(slices.Clone(treeOps), treeBeside)
	if stride() == 1 {
		ops = append(ops, treeMerge)
	}
	r.killed(ops)
	r.killedInApply()
	r.killedOver(3*r.stride-2, stride() == 1)
	r.end()
}

// killed has daemons killed in ops.
func (r *treeRig) killed(ops []treeOp) {
	r.t.Helper()
	for _, op := range ops {
		for step := 1; ; step += r.stride {
			r.daemon(func(m *Manager) {
				if r.bash(m, "rm -f two; echo one >one"); op.begin != nil {
					if err := op.begin(r.t.Context(), m); err != nil {
						r.t.Fatal(err)
					}
				}
				r.bash(m, "echo two >two")
			})
			killed := r.h.dieAt(r.t, op.name, step)
			at := fmt.Sprintf("%s, killed at step %d", op.name, step)
			r.daemon(func(m *Manager) {
				if got := r.bash(m, "echo *"); got != "one two" && got != op.after && (got != "*" || op.after != "") {
					r.t.Errorf("%s: there are %q", at, got)
				}
				if got := r.bash(m, "cat one || true"); got != "one" && op.after != "" {
					r.t.Errorf("%s: one has %q", at, got)
				}
				r.besides(m, at)
				// What is decided is not forgotten: it can be done again.
				if err := op.do(r.t.Context(), m); err != nil {
					r.t.Errorf("%s and done again: %v", at, err)
				}
			})
			if left, err := os.ReadDir(r.src); err != nil || len(left) > 0 {
				r.t.Fatalf("%s: the source has %v, %v", at, left, err)
			}
			if !killed {
				r.t.Logf("%s has less than %d steps", op.name, step)
				if step == 1 {
					r.t.Errorf("%s has no step", op.name)
				}
				break
			}
		}
	}
}

func (r *treeRig) killedInApply() {
	t := r.t
	t.Helper()
	content := func(n int) map[string]string {
		if n == 0 {
			return map[string]string{}
		}
		text := strconv.Itoa(n) + "\n"
		return map[string]string{"one": text, "two": text}
	}
	for step, before := 1, 0; ; step, before = step+r.stride, step { // each apply ends with the source as the session is
		r.daemon(func(m *Manager) { r.bash(m, fmt.Sprintf("echo %d >one; echo %[1]d >two", step)) })
		killed := r.h.dieAt(t, "apply", step)
		r.daemon(func(m *Manager) {
			if got := sourceFiles(t, r.src); !maps.Equal(got, content(step)) && !maps.Equal(got, content(before)) {
				t.Errorf("apply, killed at step %d: the source has %q", step, got)
			}
			words := cutOffWords(t, m)
			if written := maps.Equal(sourceFiles(t, r.src), content(step)); killed && written == (words == "" || strings.Contains(words, "before anything")) || !killed && words != "" {
				t.Errorf("apply, killed at step %d: written %v, and it is said %q", step, written, words)
			}
			if got, want := r.bash(m, "cat *"), strings.Repeat(strconv.Itoa(step)+"\n", 2); got+"\n" != want {
				t.Errorf("apply, killed at step %d: the session has %q", step, got)
			}
			if err := treeApply.do(t.Context(), m); err != nil {
				t.Errorf("apply, killed at step %d and done again: %v", step, err)
			}
			if got := sourceFiles(t, r.src); !maps.Equal(got, content(step)) {
				t.Errorf("apply, killed at step %d and done again: the source has %q", step, got)
			}
		})
		if !killed {
			t.Logf("apply has %d to %d steps", before, step-1)
			break
		}
	}
}

// prepared makes the checkpoint of treeOps.
func (r *treeRig) prepared() {
	r.t.Helper()
	r.daemon(func(m *Manager) {
		r.bash(m, "echo one >one")
		if _, err := m.trees.Checkpoint(r.t.Context(), owner, "tree", client.CheckpointCreate{Name: "one"}); err != nil {
			r.t.Fatal(err)
		}
	})
}

// end ends all sessions, of which no mount is left.
func (r *treeRig) end() {
	r.t.Helper()
	if r.kept == 0 {
		r.t.Error("no session beside it had changes")
	}
	r.daemon(func(m *Manager) {
		if err := m.EndAll(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	if b, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(b, []byte(r.h.Dir)) {
		r.t.Errorf("mounts are left, %v", err)
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
	<-m.Collector.swept // it has nothing to do with the steps
	var done atomic.Int64
	m.trees.Step = func(string) {
		if done.Add(1) == int64(h.Step) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	for i, p := range m.parts {
		m.parts[i] = stepping{p, m.trees.Step}
	}
	for _, op := range append([]treeOp{treeApply, treeBeside, treeMerge}, treeOps...) {
		if op.name == h.Op {
			err = op.do(context.Background(), m)
		}
	}
	for _, op := range overOps {
		if op.name == h.Op {
			err = op.do(context.Background(), m, h.Over)
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
