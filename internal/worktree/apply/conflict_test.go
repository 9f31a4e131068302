package apply

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/testrig"
)

// What has changed in the source is in the way, and then nothing is written. Force
// overwrites it, but for what it cannot.
func TestConflicts(t *testing.T) {
	base := map[string]string{"edit": "old", "gone": "g", "dir/x": "x", "link": "-> a", "other": "o", "empty/": ""}
	write1 := func(name, content string) func(*rig) {
		return func(g *rig) { write(t, g.source, map[string]string{name: content}) }
	}
	for _, tt := range []struct {
		name   string
		work   func(g *rig) // in the session
		source func(g *rig) // since
		want   []string
		hard   bool // also with Force
	}{
		{"content", func(g *rig) { write(t, g.work, map[string]string{"edit": "new"}) }, write1("edit", "mine"), []string{"edit"}, false},
		{"content of one size", func(g *rig) { write(t, g.work, map[string]string{"edit": "new"}) }, write1("edit", "OLD"), []string{"edit"}, false},
		{"written again as it was", func(g *rig) { write(t, g.work, map[string]string{"edit": "new"}) }, write1("edit", "old"), []string{"edit"}, false},
		{"mode", func(g *rig) { write(t, g.work, map[string]string{"edit": "new"}) }, func(g *rig) { must(t, os.Chmod(g.source+"/edit", 0o600)) }, []string{"edit"}, false},
		{"removed", func(g *rig) { write(t, g.work, map[string]string{"edit": "new"}) }, func(g *rig) { remove(t, g.source, "edit") }, []string{"edit"}, false},
		{"changed and deleted", func(g *rig) { remove(t, g.work, "gone") }, write1("gone", "mine"), []string{"gone"}, false},
		{"a new file in the way", func(g *rig) { write(t, g.work, map[string]string{"new": "n"}) }, write1("new", "mine"), []string{"new"}, false},
		{"a new file in a directory's way", func(g *rig) { write(t, g.work, map[string]string{"new/f": "n"}) }, write1("new", "mine"), []string{"new"}, false},
		{"a new directory in the way", func(g *rig) { write(t, g.work, map[string]string{"new": "n"}) }, write1("new/f", "mine"), []string{"new"}, true},
		{"a new file in a directory that goes", func(g *rig) { remove(t, g.work, "dir") }, write1("dir/mine", "mine"), []string{"dir"}, false},
		{"the same, and a file takes its place", func(g *rig) { remove(t, g.work, "dir"); write(t, g.work, map[string]string{"dir": "f"}) }, write1("dir/mine", "mine"), []string{"dir"}, true},
		{"link", func(g *rig) { write(t, g.work, map[string]string{"link": "-> b"}) }, write1("link", "-> c"), []string{"link"}, false},
		{"directory became a link", func(g *rig) { write(t, g.work, map[string]string{"dir/x": "new"}) }, func(g *rig) {
			remove(t, g.source, "dir")
			write(t, g.source, map[string]string{"dir": "-> /tmp"})
		}, []string{"dir/x"}, true},
		{"directory became a file", func(g *rig) { write(t, g.work, map[string]string{"dir/x": "new", "dir/y": "y"}) }, func(g *rig) {
			remove(t, g.source, "dir")
			write(t, g.source, map[string]string{"dir": "f"})
		}, []string{"dir/x", "dir/y"}, true},
		{"directory is gone", func(g *rig) { write(t, g.work, map[string]string{"dir/new": "n"}) }, func(g *rig) { remove(t, g.source, "dir") }, []string{"dir/new"}, true},
		{"FIFO", func(g *rig) { write(t, g.work, map[string]string{"edit": "new"}) }, func(g *rig) {
			remove(t, g.source, "edit")
			must(t, unix.Mkfifo(g.source+"/edit", 0o644))
		}, []string{"edit"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := begin(t, tree(t, base))
			tt.work(g)
			archive := archiveOf(t, g.base, g.work)
			tt.source(g)
			before := look(t, g.source)
			_, err := g.job.Run(t.Context(), bytes.NewReader(archive))
			if f, ok := errors.AsType[*fault.Error](err); !ok || len(f.Places) != len(tt.want) {
				t.Errorf("got %v, without the places", err)
			}
			if !errors.Is(err, fault.Conflict) || !slices.Equal(conflictsOf(err), tt.want) {
				t.Errorf("got %v", err)
			}
			if diffs := differ(look(t, g.source), before); diffs != nil {
				t.Errorf("changed: %q", diffs)
			}
			tidy(t, g.job.Dir)
			g.job.Request.Force = true
			_, err = g.job.Run(t.Context(), bytes.NewReader(archive))
			if tt.hard != (err != nil) {
				t.Errorf("with force: %v", err)
			}
			if diffs := differ(look(t, g.source), before); tt.hard && diffs != nil {
				t.Errorf("refused with force, and changed: %q", diffs)
			}
			if err == nil && tt.name != "a new file in a directory that goes" {
				if diffs := differ(look(t, g.source), look(t, g.work)); diffs != nil {
					t.Errorf("with force: %q", diffs)
				}
			}
			tidy(t, g.job.Dir)
		})
	}
}

// What has become another directory in the source, or has other permissions there, is in the
// way of a change though it is compared with that.
func TestOtherDirectories(t *testing.T) {
	replace := func(g *rig) { remove(t, g.source, "a"); must(t, os.Mkdir(g.source+"/a", 0o755)) }
	for _, tt := range []struct {
		name         string
		work, source func(g *rig)
	}{
		{"a file was changed", func(g *rig) { write(t, g.work, map[string]string{"a": "new"}) }, replace},
		{"a file was removed", func(g *rig) { remove(t, g.work, "a") }, replace},
		{"a link takes its place", func(g *rig) { remove(t, g.work, "a"); write(t, g.work, map[string]string{"a": "-> b"}) }, replace},
		{"moved there", func(g *rig) { remove(t, g.work, "a") }, func(g *rig) {
			remove(t, g.source, "a")
			must(t, os.Rename(g.source+"/dir", g.source+"/a"))
			write(t, g.source, map[string]string{"dir/x": "x"})
		}},
		{"both modes", func(g *rig) { must(t, os.Chmod(g.work+"/dir", 0o700)) }, func(g *rig) { must(t, os.Chmod(g.source+"/dir", 0o711)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := begin(t, tree(t, map[string]string{"a": "old", "dir/x": "x"}))
			tt.work(g)
			tick()
			tt.source(g)
			before := look(t, g.source)
			if _, err := g.apply(client.ApplyRequest{}); !errors.Is(err, fault.Conflict) {
				t.Errorf("got %v", err)
			}
			if diffs := differ(look(t, g.source), before); diffs != nil {
				t.Errorf("changed: %q", diffs)
			}
		})
	}
}

// A directory that was opened for the time in which something was written to it is not one that the
// session has changed: what somebody makes of its permissions afterwards is in the way.
func TestOpenedForTheTime(t *testing.T) {
	source := tree(t, map[string]string{"dir/x": "x"})
	must(t, os.Chmod(source+"/dir", 0o555))
	g := begin(t, source)
	must(t, os.Chmod(g.work+"/dir", 0o755))
	write(t, g.work, map[string]string{"dir/x": "new"})
	must(t, os.Chmod(g.work+"/dir", 0o555))
	g.mustApply(client.ApplyRequest{})
	tick()
	must(t, os.Chmod(source+"/dir", 0o711))
	must(t, os.Chmod(g.work+"/dir", 0o700))
	before := look(t, source)
	if _, err := g.apply(client.ApplyRequest{}); !slices.Equal(conflictsOf(err), []string{"dir"}) {
		t.Errorf("got %v", err)
	}
	if diffs := differ(look(t, source), before); diffs != nil {
		t.Errorf("changed: %q", diffs)
	}
	if got := before["dir/x"]; !strings.HasSuffix(got, " new") {
		t.Errorf("what was applied first: %v", got)
	}
}

// What changes between the comparison and the apply counts by its content too, whatever
// its times say; so does a directory that the archive does not make.
func TestOtherBase(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"edit": "old", "gone": "g", "link": "-> a"}))
	write(t, g.work, map[string]string{"edit": "new", "link": "-> b"})
	remove(t, g.work, "gone")
	archive := archiveOf(t, g.base, g.work)
	write(t, g.source, map[string]string{"edit": "OLD", "gone": "G", "link": "-> c"})
	g.job.Since = tick()
	if _, err := g.applyArchive(client.ApplyRequest{}, archive); !slices.Equal(conflictsOf(err), []string{"edit", "gone", "link"}) {
		t.Errorf("got %v", err)
	}
	before := look(t, g.source)
	if _, err := g.applyArchive(client.ApplyRequest{}, pack(t, []entry{addedDir("a"), added("a/b/c", "x")})); !slices.Equal(conflictsOf(err), []string{"a/b/c"}) {
		t.Errorf("got %v", err)
	}
	if diffs := differ(look(t, g.source), before); diffs != nil {
		t.Errorf("changed: %q", diffs)
	}
}

// What another user owns is refused before anything is written.
func TestOthersDirectories(t *testing.T) {
	if os.Geteuid() != 0 {
		testrig.Skipf(t, "root", "only root can give directories away")
	}
	g := begin(t, tree(t, map[string]string{"a/f": "old", "b/f": "old", "c": "old"}))
	write(t, g.work, map[string]string{"a/f": "new", "a/n": "new", "c": "new"})
	must(t, os.Chmod(g.work+"/b", 0o700))
	must(t, os.Lchown(g.source+"/a", 0, 0))
	must(t, os.Lchown(g.source+"/b", 0, 0))
	before := look(t, g.source)
	if _, err := g.apply(client.ApplyRequest{Force: true}); !slices.Equal(conflictsOf(err), []string{"a/f", "a/n", "b"}) {
		t.Errorf("got %v", err)
	}
	if diffs := differ(look(t, g.source), before); diffs != nil {
		t.Errorf("changed: %q", diffs)
	}
}

// A directory that is exchanged after the survey has been in it is not taken for the one
// that was there, also where nothing is to be written beside what was looked at.
func TestExchangedInTheSurvey(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"a/f": "old", "a/x/y": "y"}))
	write(t, g.work, map[string]string{"a/f": "new", "a/x/new": "n"})
	archive := archiveOf(t, g.base, g.work)
	write(t, g.source, map[string]string{"a/f": "new"})
	decoy := tree(t, map[string]string{"f": "decoy", "x/y": "decoy"})
	before := look(t, decoy)
	at(t, "looked at", func() { // on the owner's thread, who may not do that
		done := make(chan error)
		go func() {
			done <- unix.Renameat2(unix.AT_FDCWD, decoy, unix.AT_FDCWD, g.source+"/a", unix.RENAME_EXCHANGE)
		}()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	_, err := g.applyArchive(client.ApplyRequest{}, archive)
	if !slices.Equal(conflictsOf(err), []string{"a/x/new"}) {
		t.Errorf("got %v", err)
	}
	if diffs := differ(look(t, g.source+"/a"), before); diffs != nil {
		t.Errorf("the decoy has changed: %q", diffs)
	}
}

// What the source has already is in nobody's way, and what others change elsewhere.
func TestNoConflict(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"edit": "old", "gone": "g", "dir/x": "x", "other": "o"}))
	write(t, g.work, map[string]string{"edit": "new", "new/f": "f", "link": "-> a"})
	remove(t, g.work, "gone", "dir")
	archive := archiveOf(t, g.base, g.work)
	write(t, g.source, map[string]string{"edit": "new", "new/f": "f", "link": "-> a", "other": "mine", "new/mine": "m"})
	remove(t, g.source, "gone", "dir")
	a, err := g.job.Run(t.Context(), bytes.NewReader(archive))
	must(t, err)
	if a.WrittenCount+a.RemovedCount != 0 {
		t.Errorf("got %+v", a)
	}
}

// A later change by us is no conflict; by others it is, also where they write back what we
// had written.
func TestOwnWrites(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"a": "1", "b": "1"}))
	write(t, g.work, map[string]string{"a": "2", "b": "2", "l": "-> x"})
	g.mustApply(client.ApplyRequest{})
	write(t, g.work, map[string]string{"a": "3", "b": "3", "l": "-> y"})
	g.mustApply(client.ApplyRequest{})
	write(t, g.work, map[string]string{"a": "4", "b": "4"})
	tick()
	must(t, os.WriteFile(g.source+"/b", []byte("3"), 0o644))
	if _, err := g.apply(client.ApplyRequest{}); !slices.Equal(conflictsOf(err), []string{"b"}) {
		t.Errorf("got %v", err)
	}
	g.mustApply(client.ApplyRequest{Paths: []string{"a"}})
	g.mustApply(client.ApplyRequest{Force: true})
	if diffs := differ(look(t, g.source), look(t, g.work)); diffs != nil {
		t.Error(diffs)
	}
}

// Nothing is written to what is mounted in the source.
func TestMounts(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"sub/f": "old", "file": "old", "top": "old"}))
	mount(t, "tmpfs", g.source+"/sub", "tmpfs", 0)
	mount(t, g.source+"/top", g.source+"/file", "", unix.MS_BIND)
	write(t, g.work, map[string]string{"sub/f": "new", "sub/g": "new", "file": "new"})
	for _, want := range [][]string{{"file", "sub/f", "sub/g"}, {"file", "sub"}} {
		archive := archiveOf(t, g.base, g.work)
		for _, force := range []bool{false, true} {
			g.job.Request.Force = force
			_, err := g.job.Run(t.Context(), bytes.NewReader(archive))
			if !slices.Equal(conflictsOf(err), want) {
				t.Errorf("force %v: got %v: %q", force, err, conflictsOf(err))
			}
		}
		must(t, os.Chmod(g.work+"/sub", 0o700))
	}
	if got, err := os.ReadDir(g.source + "/sub"); err != nil || len(got) != 0 {
		t.Errorf("there is %v, %v", got, err)
	}
}

// mount mounts something until the test is over.
func mount(t *testing.T, what, where, kind string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(what, where, kind, flags, ""); err != nil {
		testrig.Skipf(t, "oci", "nothing can be mounted: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(where, 0)) })
}

// A full disk in the middle: the source is as it was.
func TestFullDisk(t *testing.T) {
	dir := tree(t, nil)
	mount(t, "tmpfs", dir, "tmpfs", 0)
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "size=256k"))
	write(t, dir, map[string]string{"a": strings.Repeat("a", 50_000), "gone": "g"})
	g := begin(t, dir)
	write(t, g.work, map[string]string{"a": "small", "b": strings.Repeat("b", 150_000), "c/d": strings.Repeat("c", 100_000)})
	remove(t, g.work, "gone")
	before := look(t, dir)
	_, err := g.apply(client.ApplyRequest{})
	if !errors.Is(err, unix.ENOSPC) || !errors.Is(err, fault.Overloaded) || errors.Is(err, ErrUnfinished) || !strings.Contains(err.Error(), "nothing was applied: c/d:") {
		t.Errorf("got %v", err)
	}
	if diffs := differ(look(t, dir), before); diffs != nil {
		t.Error(diffs)
	}
	tidy(t, g.job.Dir)
	g.mustApply(client.ApplyRequest{Paths: []string{"a", "b", "gone"}})

	// Where a file has to be written once more after the commit, the rest comes later.
	write(t, g.work, map[string]string{"e": strings.Repeat("e", 60_000)})
	remove(t, g.work, "c")
	ballast := func() error { return os.WriteFile(dir+"/ballast", bytes.Repeat([]byte("x"), 200_000), 0o644) }
	t.Cleanup(func() { step = func(string) {} })
	step = func(at string) {
		if at == committedFile+" renamed" {
			found, err := filepath.Glob(dir + "/.toold-*")
			if err != nil || len(found) != 1 {
				t.Errorf("staged: %q, %v", found, err)
			}
			must(t, os.Remove(found[0]))
			_ = ballast()
		}
	}
	_, err = g.apply(client.ApplyRequest{})
	if !errors.Is(err, ErrUnfinished) || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	step = func(string) {}
	if _, err := Recover(t.Context(), g.job.Dir); !errors.Is(err, ErrUnfinished) {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(dir+"/ballast"))
	r, err := Recover(t.Context(), g.job.Dir)
	if err != nil || r.Source != dir || !slices.Equal(r.Applied.Written, []string{"e"}) {
		t.Errorf("got %+v, %v", r, err)
	}
	if diffs := differ(look(t, dir), look(t, g.work)); diffs != nil {
		t.Error(diffs)
	}
	tidy(t, g.job.Dir)
}

// While somebody exchanges a directory of the source with a link or a directory outside,
// nothing outside changes.
func TestRace(t *testing.T) {
	for _, kind := range []string{"link", "directory"} {
		t.Run(kind, func(t *testing.T) {
			decoy := tree(t, map[string]string{"f": "decoy", "gone": "decoy", "x/y": "decoy"})
			outside := decoy
			if kind == "link" {
				outside = filepath.Join(t.TempDir(), "link")
				must(t, os.Symlink(decoy, outside))
			}
			var was unix.Stat_t
			must(t, unix.Stat(decoy, &was))
			before := look(t, decoy)
			base := tree(t, map[string]string{"a/f": "old", "a/gone": "g", "a/x/y": "old", "b": "b"})
			work := copyTree(t, base)
			write(t, work, map[string]string{"a/f": "new", "a/x/y": "new", "a/x/new/z": "z", "b": "c", "a/n": "n"})
			remove(t, work, "a/gone")
			archive := archiveOf(t, base, work)
			applied, refused, partly := 0, 0, 0
			for round := range testrig.Rounds(80) {
				source := copyTree(t, base)
				j := Job{Dir: filepath.Join(t.TempDir(), "state"), Source: pin(t, source), Owner: owner(), Since: tick()}
				// Some rounds are no race, so that both ends are seen on any machine.
				last := round % 8
				if last > 1 {
					last = -1
				}
				stop := exchange(t, source+"/a", outside, last)
				_, err := j.Run(t.Context(), bytes.NewReader(archive))
				stop()
				c, conflict := errors.AsType[*ConflictError](err)
				switch {
				case err == nil:
					applied++
				case conflict && c.Applied != nil:
					partly++
				case conflict:
					refused++
				default:
					t.Fatal(err)
				}
				if last == 0 && err != nil || last == 1 && (!conflict || c.Applied != nil) {
					t.Fatalf("after %d exchanges: %v", last, err)
				}
				if diffs := differ(look(t, decoy), before); diffs != nil {
					t.Fatalf("%v: %q", err, diffs)
				}
				for p := range look(t, source) {
					if strings.Contains(p, ".toold-") {
						t.Fatalf("%v: %q is left", err, p)
					}
				}
				wipe(t, source)
			}
			var now unix.Stat_t
			must(t, unix.Stat(decoy, &now))
			if now.Mtim != was.Mtim {
				t.Error("something was made and removed there")
			}
			t.Logf("%d applied, %d refused, %d partly", applied, refused, partly)
		})
	}
}

// The directory of a staged file is away just when the file is to take its place, which is
// in a directory below: it is written once more there, and the staged one goes too.
func TestHomeAway(t *testing.T) {
	base := tree(t, map[string]string{"x/y": "old"})
	work := copyTree(t, base)
	write(t, work, map[string]string{"x/new/z": "z"})
	archive := archiveOf(t, base, work)
	j := Job{Dir: filepath.Join(t.TempDir(), "state"), Source: pin(t, base), Owner: owner(), Since: tick()}
	t.Cleanup(func() { step = func(string) {} })
	rename := func(from, to string) { // not on the writer's thread, which has the owner's rights
		done := make(chan error)
		go func() { done <- os.Rename(base+from, base+to) }()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	away := 0
	step = func(at string) {
		switch at {
		case "place open":
			rename("/x", "/away")
		case "file written again":
			away++
			rename("/away", "/x")
		}
	}
	if _, err := j.Run(t.Context(), bytes.NewReader(archive)); err != nil || away != 1 {
		t.Fatalf("%v, written again %d times", err, away)
	}
	if diffs := differ(look(t, base), look(t, work)); diffs != nil {
		t.Error(diffs)
	}
}

// exchange exchanges two names until it is stopped, or last times if that is not negative;
// then they are as they were. It rests now and then while they are as they were, so that
// others get on.
func exchange(t *testing.T, a, b string, last int) (stop func()) {
	swap := func() error { return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) }
	n := 0
	for ; n < last; n++ {
		must(t, swap())
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for last < 0 {
			select {
			case <-over:
				return
			default:
			}
			if n%2 == 0 && rand.IntN(50) == 0 {
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
			}
			if swap() == nil {
				n++
			}
		}
	}()
	return func() {
		close(over)
		if <-done; n%2 == 1 {
			must(t, swap())
		}
	}
}
