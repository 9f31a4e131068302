package session

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree"
)

// TestSourcesByLink: a worktree and a mount whose roots are symbolic links are where they were until those
// lead elsewhere, which is said.
func TestSourcesByLink(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	testrig.Must(t, err)
	for _, name := range []string{"tree", "cache", "else"} {
		testrig.Must(t, os.Mkdir(filepath.Join(base, name), 0o755))
	}
	tree, mount := filepath.Join(base, "to-tree"), filepath.Join(base, "to-cache")
	lead := func(link, to string) {
		t.Helper()
		_ = os.Remove(link)
		testrig.Must(t, os.Symlink(to, link))
	}
	lead(tree, "tree")
	lead(mount, "cache")
	h := newHouse(t)
	h.set.WorktreeRoots, h.set.MountRoots = []string{tree}, []string{mount}
	h.open()
	s := h.create(auth.Principal{UID: alice.UID, Tenant: alice.Tenant, Admin: true}, client.SessionCreate{
		Worktree: client.Worktree{Source: tree, Mode: client.WorktreeBind},
		Mounts:   []client.Mount{{Source: mount, Target: "/cache"}},
	})
	told := func(want ...string) {
		t.Helper()
		h.call(s.ID, bashCall("true"))
		v, err := h.m.Get(t.Context(), alice, s.ID)
		testrig.Must(t, err)
		var notes []string
		for _, n := range v.Notes {
			if strings.Contains(n, "moved or removed") {
				notes = append(notes, n)
			}
		}
		if len(notes) != len(want) {
			t.Fatalf("notes are %q, want %q", notes, want)
		}
		for i := range want {
			if !strings.Contains(notes[i], want[i]) {
				t.Errorf("note %q, want %q", notes[i], want[i])
			}
		}
	}
	told()
	lead(tree, "else")
	told("the worktree is not")
	lead(mount, "else")
	told("the worktree is not", "the mount /cache is not")
	lead(tree, "tree")
	lead(mount, "cache")
	told()
}

// TestHangingSources: all sources are looked at before one of them is waited for.
func TestHangingSources(t *testing.T) {
	t.Parallel()
	hangs, _ := testrig.Hanging(t)
	var sources []store.Source
	for _, name := range []string{"a", "b", "c", "d"} {
		sources = append(sources, store.Source{Source: worktree.Source{Path: filepath.Join(hangs, name), Inode: 1}, Is: "as it was"})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var begun atomic.Int32
	go func() {
		testrig.Soon(func() bool { return begun.Load() == int32(len(sources)) })
		cancel() // what hangs is given up
	}()
	now := seeTogether(sources, func(s store.Source) (string, error) {
		begun.Add(1)
		is, err := s.Astray(ctx)
		if n := begun.Load(); n != int32(len(sources)) {
			t.Errorf("after %d looks one had ended", n)
		}
		return is, err
	})
	for _, s := range now {
		if s.Is != "as it was" {
			t.Errorf("%s: %s, which nobody can know", s.Path, s.Is)
		}
	}
}

// TestMountedInSource: what is mounted in a worktree or a mount after the session got it is said until it is gone.
func TestMountedInSource(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to mount takes root")
	}
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	testrig.Must(t, err)
	before, tree, cache := base+"/tree/before", base+"/tree/sub", base+"/cache/sub"
	mount := func(at string) (unmount func()) {
		t.Helper()
		testrig.Must(t, os.MkdirAll(at, 0o755), unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m"))
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		return func() { testrig.Must(t, unix.Unmount(at, unix.MNT_DETACH)) }
	}
	mount(before)
	testrig.Must(t, os.MkdirAll(cache, 0o755))
	h := newHouse(t)
	h.set.WorktreeRoots, h.set.MountRoots = []string{base}, []string{base}
	h.open()
	s := h.create(auth.Principal{UID: alice.UID, Tenant: alice.Tenant, Admin: true}, client.SessionCreate{
		Worktree: client.Worktree{Source: base + "/tree", Mode: client.WorktreeBind},
		Mounts:   []client.Mount{{Source: base + "/cache", Target: "/cache"}},
	})
	told := func(want ...string) {
		t.Helper()
		c := h.call(s.ID, bashCall("true"))
		v, err := h.m.Get(t.Context(), alice, s.ID)
		testrig.Must(t, err)
		notes := slices.DeleteFunc(slices.Clone(v.Notes), func(n string) bool { return !strings.Contains(n, "mounted on the host") })
		if len(notes) != len(want) {
			t.Fatalf("notes are %q, want %q", notes, want)
		}
		for i := range want {
			if !strings.Contains(notes[i], "after the session got that as "+want[i]) || !strings.Contains(c.Output, notes[i]) {
				t.Errorf("note %q, output %q, want %q", notes[i], c.Output, want[i])
			}
		}
	}
	told()
	fromTree := mount(tree)
	told("/workspace")
	fromCache := mount(cache)
	told("/workspace", "/cache")
	fromTree()
	told("/cache")
	fromCache()
	told()
}

// TestSourcesSeenApart: who looks at the directories of a session, whose file systems may hang, keeps nobody
// from changing it, and what another call has told meanwhile stays.
func TestSourcesSeenApart(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	source := t.TempDir()
	h.set.WorktreeRoots = []string{source}
	h.open()
	made := h.create(mounter, client.SessionCreate{Worktree: client.Worktree{Source: source, Mode: client.WorktreeRO}})
	s := h.m.liveByID(made.ID)
	sees := func(is string) func(*Session, []store.Source) []store.Source {
		return func(_ *Session, sources []store.Source) []store.Source {
			now := slices.Clone(sources)
			now[0].Is = is
			return now
		}
	}
	lookAtSources(s, func(s *Session, sources []store.Source) []store.Source {
		if !s.writing.TryLock() {
			t.Fatal("nobody can change the session while its directories are looked at")
		}
		s.writing.Unlock()
		lookAtSources(s, sees("nothing is there"))
		return sees("another directory is there")(s, sources)
	})
	if row := s.Row(); row.Sources[0].Is != "nothing is there" || len(row.Notes) == 0 {
		t.Errorf("the row has %+v and the notes %q", row.Sources, row.Notes)
	}
	lookAtSources(s, sees(""))
	if row := s.Row(); row.Sources[0].Is != "" {
		t.Errorf("it is back, and the row has %+v", row.Sources)
	}
}
