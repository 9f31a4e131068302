package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/mount"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree/layers"
)

// boundRig is a session over a directory, with a disk of 32 MiB for what it changes.
type boundRig struct {
	t *testing.T
	h *realHouse
	m *Manager
}

func newBoundRig(t *testing.T) *boundRig {
	h := newRealHouse(t)
	b := &boundRig{t, h, openReal(t, h)}
	if err := b.m.cfg.Trees.Bounded(); err != nil {
		testrig.Skipf(t, "loop", "no disks in files: %v", err)
	}
	set := *b.m.settings.Load()
	set.Policy = rules(t, "[permission]\nexternal_directory = \"allow\"\ndoom_loop = \"allow\"\n")
	set.Approvals.None = true // a question is a failure here
	b.m.Reload(set)
	return b
}

// newSmallRig has a state disk of 400 MiB, of which nothing need stay free for a session to be
// made, and settings that are changed.
func newSmallRig(t *testing.T, change func(*Settings)) *boundRig {
	h := newRealHouse(t)
	if err := unix.Mount("tmpfs", h.Dir, "tmpfs", 0, "size=400m,mode=711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(h.Dir, unix.MNT_DETACH) })
	testrig.Must(t, testrig.Build(h.Dir, "cmd/toolagent"))
	b := &boundRig{t, h, openReal(t, h)}
	if err := b.m.cfg.Trees.Bounded(); err != nil {
		testrig.Skipf(t, "loop", "no disks in files: %v", err)
	}
	set := *b.m.settings.Load()
	set.MinFree = 0
	change(&set)
	b.m.Reload(set)
	return b
}

// over makes a session over a new directory.
func (b *boundRig) over(name string) (src string) {
	b.t.Helper()
	src = source(b.t)
	_, err := b.m.Create(b.t.Context(), owner, client.SessionCreate{
		Name: name, Worktree: client.Worktree{Source: src, Mode: client.WorktreeOverlay}, IdleTimeout: -1,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return src
}

func (b *boundRig) bash(session, command string) *client.Call {
	b.t.Helper()
	return realCall(b.t, b.m, session, "bash", object{"command": command})
}

// says fails the test unless a command ends well with this output.
func (b *boundRig) says(session, command, want string) {
	b.t.Helper()
	c := b.bash(session, command)
	if c.IsError || c.Error != nil || strings.TrimSpace(c.Output) != want {
		b.t.Errorf("%s in %s: %q, error %v; want %q", command, session, c.Output, c.Error, want)
	}
}

// disks are the files that changes lie on, by name.
func (b *boundRig) disks() []string {
	b.t.Helper()
	all, err := filepath.Glob(filepath.Join(b.h.Dir, "worktrees", "disks", "d_*"))
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// loops are the devices that they are on.
func (b *boundRig) loops() (all []string) {
	names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, n := range names {
		if f, err := os.ReadFile(n); err == nil && strings.HasPrefix(string(f), b.h.Dir+"/worktrees") {
			all = append(all, strings.TrimSpace(string(f)))
		}
	}
	return all
}

// TestRealBounded: what a session changes has an end, in bytes and in files, which says what
// it is. Nobody else sees it, and what is removed can be written again.
func TestRealBounded(t *testing.T) {
	b := newBoundRig(t)
	b.over("full")
	b.over("other")
	if n := len(b.loops()); n != 2 {
		t.Errorf("%d devices for two sessions", n)
	}
	full := func(command string) {
		t.Helper()
		c := b.bash("full", command)
		if c.Metadata["reason"] != "disk" || c.Metadata["full"] != "/workspace" || !strings.Contains(c.Output, "(32MiB, limits.disk, which --limit disk= sets)") {
			t.Errorf("%s: %v, %q, error %v", command, c.Metadata, c.Output, c.Error)
		}
	}
	full("cat /dev/zero >x")
	b.says("other", "head -c 8M /dev/zero >x && sync x; stat -c %s x", "8388608")
	b.says("full", "rm x; head -c 8M /dev/zero >y; sync; stat -c %s y", "8388608")
	full("rm y; for i in $(seq 9999); do : >f$i || exit 4; done")
	b.says("full", "rm f*; echo ok >z; cat z", "ok")
}

// TestRealBoundedFull: a session that is at its bound can be looked at, put aside, taken back,
// forked, applied and thrown away.
func TestRealBoundedFull(t *testing.T) {
	b := newBoundRig(t)
	src := b.over("full")
	ctx := t.Context()
	b.says("full", "echo one >one; cat one", "one")
	first, err := b.m.trees.Checkpoint(ctx, owner, "full", client.CheckpointCreate{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	b.bash("full", "for i in 1 2 3 4 5 6 7 8; do head -c 8M /dev/urandom >big$i; done; true")
	if c, err := b.m.trees.Changes(ctx, owner, "full", client.DiffQuery{}); err != nil || c.Files < 4 {
		t.Errorf("changes: %+v, %v", c, err)
	}
	if _, err := b.m.trees.Checkpoint(ctx, owner, "full", client.CheckpointCreate{}); err != nil {
		t.Error(err)
	}
	fork, err := b.m.trees.Fork(ctx, owner, "full", client.ForkRequest{Name: "fork"})
	if err != nil {
		t.Fatal(err)
	}
	b.says("fork", "head -c 8M /dev/zero >of-the-fork; sync; ls one of-the-fork", "of-the-fork\none")
	if n := len(b.disks()); n != 2 {
		t.Errorf("%d disks for a session and its fork", n)
	}
	if _, err := b.m.trees.Apply(ctx, owner, "fork", client.ApplyRequest{Paths: []string{"of-the-fork"}}); err != nil {
		t.Errorf("apply in the fork: %v", err)
	}
	if _, err := b.m.trees.Apply(ctx, owner, "full", client.ApplyRequest{Paths: []string{"one"}}); err != nil {
		t.Errorf("apply: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(src, "one")); err != nil || string(got) != "one\n" {
		t.Errorf("applied: %q, %v", got, err)
	}
	if _, err := b.m.trees.Restore(ctx, owner, "full", client.RestoreRequest{Checkpoint: first.ID}); err == nil {
		t.Error("a checkpoint from before the apply came back")
	}
	if _, err := b.m.trees.Discard(ctx, owner, "full", client.DiscardRequest{}); err != nil {
		t.Error(err)
	}
	b.says("full", "ls; head -c 8M /dev/zero >x; sync; stat -c %s x", "of-the-fork\none\n8388608")
	for _, id := range []string{fork.ID, "full"} {
		b.drop(id, owner)
	}
	if err := b.m.cfg.Trees.Sweep(); err != nil {
		t.Error(err)
	}
	if d, l := b.disks(), b.loops(); len(d)+len(l) > 0 {
		t.Errorf("nobody uses %v on %v", d, l)
	}
}

// drop ends a session and throws away what it has changed.
func (b *boundRig) drop(id string, p auth.Principal) {
	b.t.Helper()
	s, err := b.m.End(context.Background(), p, id, client.EndOptions{Force: true})
	if err != nil {
		b.t.Error(err)
		return
	}
	_ = b.m.trees.Forget(context.Background(), s.ID) // there may be nothing left
}

// TestRealBoundedKept: the changes of a session that is over are on a disk that nothing has
// mounted, and can be looked at and forked.
func TestRealBoundedKept(t *testing.T) { testBoundedKept(t) }

// TestRealBoundedBefore615: so it is on kernels that clone no mount that is attached nowhere.
func TestRealBoundedBefore615(t *testing.T) {
	defer mount.LikeBefore615()()
	testBoundedKept(t)
}

func testBoundedKept(t *testing.T) {
	b := newBoundRig(t)
	b.over("kept")
	b.says("kept", "echo one >one; cat one", "one")
	v, err := b.m.End(t.Context(), owner, "kept", client.EndOptions{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if d, l := b.disks(), b.loops(); len(d) != 1 || len(l) != 0 {
		t.Errorf("kept on %v, which are on %v", d, l)
	}
	if c, err := b.m.trees.Changes(t.Context(), owner, v.ID, client.DiffQuery{}); err != nil || c.Files != 1 {
		t.Errorf("changes: %+v, %v", c, err)
	}
	if l := b.loops(); len(l) != 0 {
		t.Errorf("somebody has looked, and %v are attached", l)
	}
	if _, err := b.m.trees.Fork(t.Context(), owner, v.ID, client.ForkRequest{Name: "fork"}); err != nil {
		t.Fatal(err)
	}
	b.says("fork", "cat one; echo two >one; cat one", "one\ntwo")
	if d, l := b.disks(), b.loops(); len(d) != 2 || len(l) != 2 {
		t.Errorf("with a fork there are %v on %v", d, l)
	}
	b.drop(v.ID, owner)
	b.over("none")
	n := len(b.disks())
	if _, err := b.m.End(t.Context(), owner, "none", client.EndOptions{}); err != nil {
		t.Error(err)
	}
	if got := len(b.disks()); got != n-1 {
		t.Errorf("a session that has changed nothing leaves a disk: %d, before %d", got, n)
	}
}

// TestRealManyCheckpoints: checkpoints that come faster than their layers are merged wait for
// that, and each is the tree as it was.
func TestRealManyCheckpoints(t *testing.T) {
	b := newBoundRig(t)
	deep := make(chan struct{})
	b.m.trees.Step = func(step string) {
		if step == "copied" { // a merge
			<-deep
		}
	}
	b.over("many")
	for i := range 100 {
		if i == layers.MaxLayers {
			close(deep)
		}
		b.says("many", fmt.Sprintf("echo %d >n; : >f%d", i, i), "(no output)")
		if _, err := b.m.trees.Checkpoint(t.Context(), owner, "many", client.CheckpointCreate{Name: fmt.Sprint("c", i)}); err != nil {
			t.Fatalf("checkpoint %d: %v", i, err)
		}
	}
	for _, i := range []int{0, 40, 63, 64, 65, 99} {
		if _, err := b.m.trees.Restore(t.Context(), owner, "many", client.RestoreRequest{Checkpoint: fmt.Sprint("c", i)}); err != nil {
			t.Fatalf("restore %d: %v", i, err)
		}
		b.says("many", "cat n; ls f* | wc -l", fmt.Sprintf("%d\n%d", i, i+1))
	}
}

// TestRealSmallHost: on a state disk that is smaller than the default of limits.disk a session
// has what there is, and its changes can be looked at, applied and forked.
func TestRealSmallHost(t *testing.T) {
	b := newSmallRig(t, func(set *Settings) { set.Limits.Disk = 4 << 30 })
	src := b.over("small")
	s, err := b.m.Get(t.Context(), owner, "small")
	if err != nil || s.Limits.Disk >= 4<<30 || !slices.ContainsFunc(s.Notes, func(n string) bool { return strings.Contains(n, "limits.disk is ") }) {
		t.Fatalf("limits %+v, notes %q, %v", s.Limits, s.Notes, err)
	}
	b.says("small", "echo one >one; cat one", "one")
	if c, err := b.m.trees.Changes(t.Context(), owner, "small", client.DiffQuery{}); err != nil || c.Files != 1 {
		t.Errorf("changes: %+v, %v", c, err)
	}
	if patch, _ := (&applyRig{t, b.m, src}).patch("small", client.DiffQuery{}); !strings.Contains(string(patch), "+one\n") {
		t.Errorf("the patch has %q", patch)
	}
	if _, err := b.m.trees.Fork(t.Context(), owner, "small", client.ForkRequest{Name: "fork"}); err != nil {
		t.Error(err)
	}
	if _, err := b.m.trees.Apply(t.Context(), owner, "small", client.ApplyRequest{}); err != nil {
		t.Error(err)
	}
	if got := sourceFiles(t, src); got["one"] != "one\n" {
		t.Errorf("the source has %q", got)
	}
	if err := b.m.EndAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRealDiskFailed: a neighbour fills the state disk, and what a session wrote is lost. The
// session says so and writes no more, what is left can be read and compared, and when there is
// room again a fork goes on from it.
func TestRealDiskFailed(t *testing.T) {
	b := newSmallRig(t, func(set *Settings) { set.HostFree = room.Floor{} })
	h := b.h
	b.over("failed")
	b.over("other")
	b.over("home")
	b.says("failed", "echo one >one; cat one", "one")
	b.says("home", "echo one >~/one; cat ~/one", "one")
	if err := loopdisk.Flush(h.Dir); err != nil {
		t.Fatal(err)
	}
	neighbour := filepath.Join(h.Dir, "neighbour")
	if out, err := exec.Command("dd", "if=/dev/zero", "of="+neighbour, "bs=1M").CombinedOutput(); err == nil {
		t.Fatalf("the disk is not full: %s", out)
	}
	b.bash("failed", "head -c 8M /dev/urandom >lost")
	b.bash("home", "head -c 8M /dev/urandom >~/lost")
	_ = loopdisk.Flush(h.Dir)                    // kernels differ in what they tell
	if err := os.Remove(neighbour); err != nil { // toold stores nothing while the disk is full
		t.Fatal(err)
	}
	testrig.Eventually(t, "the watch has found both losses", func() bool {
		s := b.m.daemon.disk.last.Load()
		return s != nil && len(s.Failed) == 2
	})
	v, err := b.m.Get(t.Context(), owner, "failed")
	if err != nil || v.State != client.SessionReady || v.Reason != "disk" || !slices.ContainsFunc(v.Notes, func(n string) bool { return strings.Contains(n, "disk has failed") }) {
		t.Fatalf("state %s, reason %q, notes %q, %v", v.State, v.Reason, v.Notes, err)
	}
	if v, err := b.m.Get(t.Context(), owner, "home"); err != nil || v.State != client.SessionReady || v.Reason != "disk" {
		t.Errorf("the reason of the one whose home has lost something is %q, %v", v.Reason, err)
	}
	if v, err := b.m.Get(t.Context(), owner, "other"); err != nil || v.Reason != "" {
		t.Errorf("the other's reason is %q, %v", v.Reason, err)
	}
	if c := b.bash("failed", "echo two >two"); c.Error == nil || !strings.Contains(c.Error.Message, "disk has failed") {
		t.Errorf("wrote: %q, %v", c.Output, c.Error)
	}
	if c := realCall(t, b.m, "failed", "read", object{"file_path": "one"}); c.Error != nil || !strings.Contains(c.Output, "one") {
		t.Errorf("read: %q, %v", c.Output, c.Error)
	}
	if c, err := b.m.trees.Changes(t.Context(), owner, "failed", client.DiffQuery{}); err != nil || c.Files == 0 {
		t.Errorf("changes: %+v, %v", c, err)
	}
	if _, err := b.m.trees.Checkpoint(t.Context(), owner, "failed", client.CheckpointCreate{}); !errors.Is(err, fault.Conflict) {
		t.Errorf("checkpoint: %v", err)
	}
	if _, err := b.m.End(t.Context(), owner, "failed", client.EndOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.m.trees.Fork(t.Context(), owner, v.ID, client.ForkRequest{Name: "fork"}); err != nil {
		t.Fatal(err)
	}
	b.says("fork", "cat one; echo two >two; cat two", "one\ntwo")
	if err := b.m.EndAll(t.Context()); err != nil {
		t.Error(err)
	}
}
