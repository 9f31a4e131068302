package session

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/worktree/layers"
)

// applyRig is a daemon with a source, over which sessions live.
type applyRig struct {
	t   *testing.T
	m   *Manager
	src string
}

func newApplyRig(t *testing.T) *applyRig {
	t.Helper()
	h := newRealHouse(t)
	src := source(t)
	m, stop, err := h.open(slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.EndAll(context.Background()), stop()); err != nil {
			t.Error(err)
		}
	})
	return &applyRig{t, m, src}
}

func (a *applyRig) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// write writes a file of the source.
func (a *applyRig) write(name, text string) {
	a.t.Helper()
	a.must(errors.Join(os.WriteFile(a.src+"/"+name, []byte(text), 0o644), os.Chown(a.src+"/"+name, int(alice.UID), int(alice.GID))))
}

// holds sees what a file of the source has.
func (a *applyRig) holds(name, want string) {
	a.t.Helper()
	if got, err := os.ReadFile(a.src + "/" + name); err != nil || string(got) != want {
		a.t.Errorf("%s of the source has %q, %v", name, got, err)
	}
}

// session begins one, and gives its id.
func (a *applyRig) session(name string) string {
	a.t.Helper()
	v, err := a.m.Create(a.t.Context(), owner, client.SessionCreate{
		Name: name, Worktree: client.Worktree{Source: a.src, Mode: client.WorktreeOverlay}, IdleTimeout: -1,
	})
	a.must(err)
	return v.ID
}

func (a *applyRig) bash(session, command string) string {
	a.t.Helper()
	c := realCall(a.t, a.m, session, "bash", object{"command": command})
	if c.IsError || c.Error != nil {
		a.t.Fatalf("%s: %+v", command, c)
	}
	return strings.TrimSpace(c.Output)
}

func (a *applyRig) apply(session string, r client.ApplyRequest) *client.Applied {
	a.t.Helper()
	v, err := a.m.trees.Apply(a.t.Context(), owner, session, r)
	a.must(err)
	return v
}

// changed are the paths of a session's changes.
func (a *applyRig) changed(session string) (paths []string) {
	a.t.Helper()
	c, err := a.m.trees.Changes(a.t.Context(), owner, session, client.DiffQuery{})
	a.must(err)
	for _, one := range c.Items {
		paths = append(paths, one.Path)
	}
	return paths
}

// end ends a session, and says whether it has left changes.
func (a *applyRig) end(session string) (kept bool) {
	a.t.Helper()
	v, err := a.m.End(a.t.Context(), owner, session, client.EndOptions{Force: true})
	a.must(err)
	return v.Worktree.KeptUntil != nil
}

// TestRealMerge: two sessions change one file, and each merges what the other one applied;
// what they have applied is no change of theirs any more.
func TestRealMerge(t *testing.T) {
	a := newApplyRig(t)
	a.write("f", "1\n2\n3\n4\n5\n6\n")
	first, second := a.session("first"), a.session("second")
	a.bash("first", "sed -i s/1/one/ f; echo a >a")
	a.bash("second", "sed -i s/6/six/ f; echo b >b")
	a.apply("first", client.ApplyRequest{})
	if got := a.changed("first"); got != nil {
		t.Errorf("after its apply the first one has changed %q", got)
	}
	if _, err := a.m.trees.Apply(t.Context(), owner, "second", client.ApplyRequest{}); !errors.Is(err, fault.Conflict) {
		t.Errorf("got %v", err)
	}
	for _, dry := range []bool{true, false} {
		if v := a.apply("second", client.ApplyRequest{Merge: true, DryRun: dry}); !slices.Equal(v.Merged, []string{"f"}) || v.WrittenCount != 2 || v.DryRun != dry {
			t.Errorf("dry run %v: %+v", dry, v)
		}
	}
	a.holds("f", "one\n2\n3\n4\n5\nsix\n")
	if got := a.bash("second", "cat f"); got != "one\n2\n3\n4\n5\nsix" {
		t.Errorf("the second session has %q", got)
	}
	if got := a.changed("second"); got != nil {
		t.Errorf("after its apply the second one has changed %q", got)
	}
	// The first one goes on, and ends before it applies.
	a.bash("first", "sed -i s/3/three/ f")
	if a.end(second) {
		t.Error("the second session has left changes")
	}
	if !a.end(first) {
		t.Error("the first session has left no changes")
	}
	a.apply(first, client.ApplyRequest{Merge: true})
	a.holds("f", "one\n2\nthree\n4\n5\nsix\n")
	if got := a.changed(first); got != nil || a.end(first) {
		t.Errorf("after its apply the first one has changed %q", got)
	}
	tree, err := a.m.cfg.Trees.Get(first)
	if err != nil || len(tree.All()) > 0 {
		t.Errorf("layers are left: %+v, %v", tree, err)
	}
	if unused, err := a.m.cfg.Trees.Unused(); err != nil || len(unused) > 0 {
		t.Errorf("layers are left: %q, %v", unused, err)
	}
}

// TestRealMergeInPart: what an apply leaves out is still there, also of a session that is
// over, and what was merged is not undone by the next one.
func TestRealMergeInPart(t *testing.T) {
	for _, over := range []bool{false, true} {
		a := newApplyRig(t)
		a.write("f", "1\n2\n3\n4\n5\n6\n")
		a.session("first")
		second := a.session("second")
		a.bash("first", "sed -i s/1/one/ f")
		a.bash("second", "sed -i s/6/six/ f; echo b >b")
		a.apply("first", client.ApplyRequest{})
		if over && !a.end(second) {
			t.Error("the second session has left no changes")
		}
		a.apply(second, client.ApplyRequest{Merge: true, Paths: []string{"f"}})
		a.holds("f", "one\n2\n3\n4\n5\nsix\n")
		if got := a.changed(second); !slices.Equal(got, []string{"b"}) {
			t.Errorf("over %v: it has changed %q", over, got)
		}
		a.apply(second, client.ApplyRequest{})
		a.holds("f", "one\n2\n3\n4\n5\nsix\n")
		a.holds("b", "b\n")
		if got := a.changed(second); got != nil {
			t.Errorf("over %v: it has changed %q", over, got)
		}
	}
}

// TestRealUnchanged: a session that has changed nothing brings nothing back that went.
func TestRealUnchanged(t *testing.T) {
	a := newApplyRig(t)
	a.write("gone", "x")
	a.write("renamed", "y")
	id := a.session("looks")
	a.bash("looks", "cat gone renamed; ls")
	a.must(errors.Join(os.Remove(a.src+"/gone"), os.Rename(a.src+"/renamed", a.src+"/there")))
	if v := a.apply("looks", client.ApplyRequest{Force: true}); v.WrittenCount+v.RemovedCount > 0 {
		t.Errorf("got %+v", v)
	}
	if left, err := os.ReadDir(a.src); err != nil || len(left) != 1 {
		t.Errorf("the source has %v, %v", left, err)
	}
	a.end(id)
	if _, err := a.m.cfg.Trees.Get(id); !errors.Is(err, layers.ErrNone) {
		t.Errorf("it has left a tree: %v", err)
	}
}

// TestRealStale: where a person changes files of the source that a session has changed too,
// nothing that shows its changes is silent about it, and what both did is merged.
func TestRealStale(t *testing.T) {
	a := newApplyRig(t)
	names := []string{"both", "theirs-removed", "removed", "turned", "alone"}
	for _, n := range names {
		a.write(n, "1\n2\n3\n4\n5\n6\n")
	}
	a.write("untouched", "1\n")
	id := a.session("s")
	a.bash("s", "sed -i s/6/six/ both theirs-removed turned alone; rm removed; echo new >new; mkdir dir; echo x >dir/x")
	// No checkpoint, and no question: it is the end of the call that looks.
	a.await(func() bool {
		_, err := os.ReadDir(a.m.cfg.Trees.ApplyDir(id) + "/base")
		kept, _ := os.ReadDir(a.m.cfg.Trees.ApplyDir(id) + "/base")
		return err == nil && len(kept) == 6 // with that of what was removed, and the notes
	})
	a.write("both", "1\nmine\n3\n4\n5\n6\n")
	a.write("removed", "mine\n")
	a.write("untouched", "mine\n")
	a.must(errors.Join(os.Remove(a.src+"/theirs-removed"), os.Remove(a.src+"/turned"), os.Mkdir(a.src+"/turned", 0o755)))
	a.must(os.Chown(a.src+"/turned", int(alice.UID), int(alice.GID)))

	c, err := a.m.trees.Changes(t.Context(), owner, id, client.DiffQuery{})
	a.must(err)
	var changed []string
	for _, one := range c.Items {
		if one.SourceChanged && !one.Stale {
			changed = append(changed, one.Path)
		}
	}
	if want := []string{"both", "removed", "theirs-removed", "turned"}; !slices.Equal(changed, want) || c.SourceChanged != len(want) || c.Stale != 0 {
		t.Errorf("changed are %q (%d, %d stale), want %q", changed, c.SourceChanged, c.Stale, want)
	}
	patch, err := a.m.trees.Diff(t.Context(), owner, id, client.DiffQuery{})
	a.must(err)
	text, err := io.ReadAll(patch)
	a.must(err)
	if n := patch.(interface{ SourceChanged() int }).SourceChanged(); n != 4 || strings.Contains(string(text), "mine") {
		t.Errorf("the patch says that it goes from %d bases:\n%s", n, text)
	}
	a.must(patch.Close())

	if _, err := a.m.trees.Apply(t.Context(), owner, id, client.ApplyRequest{Paths: []string{"turned"}}); !errors.Is(err, fault.Conflict) {
		t.Errorf("a directory that took the place of a file: %v", err)
	}
	if _, err := a.m.trees.Apply(t.Context(), owner, id, client.ApplyRequest{Paths: []string{"theirs-removed"}}); !errors.Is(err, fault.Conflict) {
		t.Errorf("a file that was removed: %v", err)
	}
	if v := a.apply(id, client.ApplyRequest{Merge: true, Paths: []string{"both"}}); !slices.Equal(v.Merged, []string{"both"}) {
		t.Errorf("merged %+v", v)
	}
	a.holds("both", "1\nmine\n3\n4\n5\nsix\n")
	a.holds("untouched", "mine\n")
}

// await waits for a condition that something in the background brings about.
func (a *applyRig) await(done func() bool) {
	a.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			a.t.Fatal("it did not come about")
		}
	}
}

// TestRealGitStatus: looking at a repository is no change of it, though git would like to
// bring its index up to date.
func TestRealGitStatus(t *testing.T) {
	a := newApplyRig(t)
	a.write("f", "1\n")
	id := a.session("s")
	git := "git -c user.name=x -c user.email=x@example.com "
	a.bash("s", "git init -q . && git add f && "+git+"commit -qm one")
	a.apply(id, client.ApplyRequest{IncludeSensitive: true})
	if got := a.changed(id); got != nil {
		t.Fatalf("after apply it has changed %q", got)
	}
	a.must(os.Chtimes(a.src+"/f", time.Now(), time.Now().Add(-time.Hour))) // the index is out of date
	a.bash("s", "git status; git status --short; git log")
	if got := a.changed(id); got != nil {
		t.Errorf("git status has changed %q", got)
	}
	a.bash("s", "echo 2 >f && git add f && "+git+"commit -qm two")
	if got := a.changed(id); !slices.Contains(got, ".git/index") || !slices.Contains(got, "f") {
		t.Errorf("a commit has changed %q alone", got)
	}
}
