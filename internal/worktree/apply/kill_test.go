package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// childVar makes the test program apply or recover, and end itself at a step.
const childVar = "TOOLD_APPLY_CHILD"

// child says what the program is to do.
type child struct {
	State, Source, Archive string // Archive "" recovers
	Since                  int64
	Other                  Other  // for whom bases are kept
	Kill                   int    // at which step; 0 for none
	At                     string // at the step of that name
	Ask                    bool   // as in a Job
	Private                string // a directory at which it has an empty file system of its own
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childVar); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runChild(text string) error {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	n := 0
	step = func(name string) {
		if n++; n == c.Kill || c.At != "" && name == c.At {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	if c.Archive == "" {
		r, err := Recover(context.Background(), c.State)
		if err == nil && r.Left != nil {
			err = fmt.Errorf("left alone: %v", r.Left)
		}
		return err
	}
	source, err := os.OpenFile(c.Source, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	archive, err := os.Open(c.Archive)
	if err != nil {
		return err
	}
	j := Job{Dir: c.State, Source: source, Owner: owner(), Since: c.Since, Others: []Other{c.Other}, Ask: c.Ask}
	j.Request.Merge = true
	_, err = j.Run(context.Background(), archive)
	return err
}

// run runs the child, and says whether it was killed.
func (c child) run(t *testing.T) (killed bool) {
	t.Helper()
	text, err := json.Marshal(c)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+string(text))
	if c.Private != "" {
		must(t, os.MkdirAll(c.Private, 0o700))
		unshareAt(cmd, c.Private)
	}
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if killed = ok && exit.ExitCode() < 0; !killed && err != nil {
		t.Fatalf("%+v: %v: %s", c, err, out)
	}
	return killed
}

// Whenever the program is killed, the source is as it was or as it is to be when Recover
// was there, and nothing of ours is left: at every step, and at steps of Recover after
// that.
func TestKilled(t *testing.T) {
	base := tree(t, map[string]string{
		"edit": "old", "mode": "m", "gone/a": "a", "gone/b/c": "c", "was/dir": "d", "file": "f", "relink": "-> a", "tolink": "x",
		"closed/in": "i", "closed/out": "o", "shut/x": "x", "keep": "k", "both": numbers,
	})
	must(t, os.Chmod(base+"/closed", 0o555))
	g := begin(t, base)
	must(t, os.Chmod(g.work+"/closed", 0o755))
	write(t, g.work, map[string]string{
		"edit": "new", "new/deep/f": "f", "new/empty/": "", "relink": "-> b", "link": "-> edit", "closed/in": "j", "closed/new": "n", "\xff": "any",
		"both": "1\n2\n3\n4\n5\nsix\n",
	})
	remove(t, g.work, "gone", "was", "file", "tolink", "closed/out")
	write(t, g.work, map[string]string{"was": "now a file", "file/in": "dir", "tolink": "-> keep"})
	must(t, os.Chmod(g.work+"/mode", 0o600))
	must(t, os.Chmod(g.work+"/closed", 0o555))
	must(t, os.Chmod(g.work+"/new", 0o555))
	must(t, os.Chmod(g.work+"/shut", 0o500))
	archive := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(archive, archiveOf(t, base, g.work), 0o600))
	// Another session is to have changed a file before; nothing else may then differ.
	const theirs = "one\n2\n3\n4\n5\n6\n"
	old, now := look(t, base), look(t, g.work)
	old["both"], now["both"] = "file 644 "+theirs, "file 644 one\n2\n3\n4\n5\nsix\n"

	olds, news, again := 0, 0, 0
	every := 11 // of the steps of Recover
	switch {
	case os.Getenv("TOOLD_TEST_LONG") != "":
		every = 1
	case testing.Short():
		every = 99
	}
	for n := 1; ; n++ {
		source := copyTree(t, base)
		c := child{State: filepath.Join(t.TempDir(), "state"), Source: source, Archive: archive, Since: tick(), Kill: n}
		before := &change{path: "both", found: found{now: version{Perm: 0o644, Sum: raw(sumOf(numbers))}}}
		must(t, Other{Dir: c.State, Since: c.Since}.keep(before, strings.NewReader(numbers)))
		write(t, source, map[string]string{"both": theirs})
		c.Other = Other{Dir: filepath.Join(t.TempDir(), "other"), Since: c.Since}
		killed := c.run(t)
		outdates := Outdates(c.State)
		if killed {
			c.Archive = ""
			for c.Kill = 1 + n%every; c.run(t); c.Kill += every {
				again++
			}
		}
		for range 2 {
			r, err := Recover(t.Context(), c.State)
			must(t, err)
			if r.Source != "" || r.Applied != nil {
				t.Errorf("step %d: %+v is recovered once more", n, r)
			}
		}
		got := look(t, source)
		switch o, w := differ(got, old), differ(got, now); {
		case o == nil && killed:
			olds++
		case w == nil:
			news++
		default:
			t.Fatalf("step %d: neither as it was: %q\nnor as it is to be: %q", n, o, w)
		}
		// No state of the session from before it comes back, as soon as that is sure and as long as
		// nobody has taken note of it.
		if is := differ(got, now) == nil; outdates != is || Outdates(c.State) != is {
			t.Errorf("step %d: written %v; said then %v, and after Recover %v", n, is, outdates, Outdates(c.State))
		}
		tidy(t, c.State)
		if !killed {
			break
		}
		wipe(t, source)
	}
	t.Logf("killed at %d steps, and %d times in Recover: %d times as it was, %d times as it is to be", olds+news-1, again, olds, news)
	if olds < 10 || news < 20 {
		t.Error("that proves nothing")
	}
}

// What somebody changes between a kill and Recover is left alone and told.
func TestChangedBeforeRecover(t *testing.T) {
	base := tree(t, map[string]string{"a": "old", "b": "old", "dir/x": "x", "gone": "g"})
	g := begin(t, base)
	write(t, g.work, map[string]string{"a": "new", "b": "new", "c": "new"})
	remove(t, g.work, "dir", "gone")
	archive := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(archive, archiveOf(t, base, g.work), 0o600))
	for n := 1; ; n++ {
		source := copyTree(t, base)
		c := child{State: filepath.Join(t.TempDir(), "state"), Source: source, Archive: archive, Since: tick(), Kill: n}
		if !c.run(t) {
			t.Fatal("it was never committed")
		}
		if _, err := os.Lstat(filepath.Join(c.State, committedFile)); err != nil {
			continue
		}
		write(t, source, map[string]string{"a": "mine", "c": "mine", "gone": "mine", "dir/mine": "m"})
		r, err := Recover(t.Context(), c.State)
		must(t, err)
		if len(r.Left) != 4 || r.Source != source {
			t.Errorf("step %d: %+v", n, r)
		}
		want := map[string]string{"a": "file 644 mine", "b": "file 644 new", "c": "file 644 mine", "gone": "file 644 mine", "dir": "dir 755", "dir/mine": "file 644 m"}
		if diffs := differ(look(t, source), want); diffs != nil {
			t.Errorf("step %d: %q", n, diffs)
		}
		if got := r.Applied; got == nil || got.WrittenCount != 1 || got.RemovedCount != 1 {
			t.Errorf("step %d: %+v", n, got)
		}
		tidy(t, c.State)
		return
	}
}

// A job that cannot be finished waits for the next one, which finishes it first.
func TestUnfinished(t *testing.T) {
	base := tree(t, map[string]string{"a": "old", "b": "old"})
	g := begin(t, base)
	write(t, g.work, map[string]string{"a": "new", "b": "new"})
	hidden := filepath.Join(filepath.Dir(base), "hidden")
	c := child{State: g.job.Dir, Source: base, Archive: filepath.Join(t.TempDir(), "archive"), Since: g.job.Since}
	must(t, os.WriteFile(c.Archive, archiveOf(t, base, g.work), 0o600))
	for c.Kill = 1; ; c.Kill++ {
		if !c.run(t) {
			t.Fatal("it was never committed")
		}
		if _, err := os.Lstat(filepath.Join(c.State, committedFile)); err == nil {
			break
		}
	}
	must(t, os.Rename(base, hidden))
	if _, err := Recover(t.Context(), c.State); !errors.Is(err, ErrUnfinished) {
		t.Errorf("got %v", err)
	}
	must(t, os.Mkdir(base, 0o755))
	if _, err := Recover(t.Context(), c.State); !errors.Is(err, ErrUnfinished) {
		t.Errorf("another directory in its place: got %v", err)
	}
	must(t, os.Remove(base))
	must(t, os.Rename(hidden, base))
	write(t, g.work, map[string]string{"c": "more"})
	a, err := g.job.Run(t.Context(), bytes.NewReader(archiveOf(t, g.base, g.work)))
	must(t, err)
	if diffs := differ(look(t, base), look(t, g.work)); diffs != nil {
		t.Error(diffs)
	}
	if a.WrittenCount != 1 { // the other two were the earlier one's
		t.Errorf("%+v", a)
	}
}

// TestOutdated: who takes note of what was written is told again where that fails, where it is
// killed, and where more is written meanwhile, and not otherwise.
func TestOutdated(t *testing.T) {
	t.Parallel()
	d, err := openState(t.Context(), t.TempDir())
	must(t, err)
	defer d.close()
	fails := errors.New("no room")
	for what, c := range map[string]struct {
		meanwhile func() error
		want      bool
	}{
		"nothing":       {func() error { return nil }, false},
		"it fails":      {func() error { return fails }, true},
		"more":          {d.wrote, true},
		"being written": {func() error { return os.WriteFile(d.path(committedFile), nil, 0o600) }, true},
	} {
		must(t, d.wrote())
		if !Outdates(d.dir) {
			t.Errorf("%s: it is not said", what)
		}
		if err := Outdated(d.dir, c.meanwhile); err != nil && !errors.Is(err, fails) {
			t.Error(err)
		}
		if Outdates(d.dir) != c.want {
			t.Errorf("%s: it is said again: %v", what, !c.want)
		}
		_ = os.Remove(d.path(committedFile))
		must(t, Outdated(d.dir, func() error { return nil }))
		if Outdates(d.dir) {
			t.Errorf("%s: it is said for ever", what)
		}
	}
	if Outdates(filepath.Join(d.dir, "none")) {
		t.Error("it is said of a session of which nothing was applied")
	}
}
