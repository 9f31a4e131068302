package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/hostlock"
)

// cutOff is a job that was killed when its plan was committed and nothing of it was done.
func cutOff(t *testing.T, files map[string]string) (*rig, child) {
	t.Helper()
	g := begin(t, tree(t, files))
	for name := range files {
		write(t, g.work, map[string]string{name: "one"})
	}
	c := child{State: g.job.Dir, Source: g.source, Archive: filepath.Join(t.TempDir(), "archive"), Since: g.job.Since, At: committedFile + " renamed"}
	must(t, os.WriteFile(c.Archive, archiveOf(t, g.source, g.work), 0o600))
	return g, c
}

// refused sees that an apply is refused for now, with a next step, and that nothing was written.
func refused(t *testing.T, g *rig, words ...string) {
	t.Helper()
	before := look(t, g.source)
	_, err := g.apply(client.ApplyRequest{})
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Kind != fault.Overloaded || e.Hint == "" {
		t.Fatalf("got %v", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
	if diffs := differ(look(t, g.source), before); diffs != nil {
		t.Errorf("something was written: %q", diffs)
	}
}

// A mark outlives that a daemon cannot see what it is of. Applies to its source are refused until
// a daemon that sees it has finished it; others are not.
func TestMarkOfHiddenDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has mounts of its own")
	}
	if !inOwnMounts(t) {
		return
	}
	for name, hide := range map[string]struct {
		dir    func(g *rig) string
		hidden bool
	}{
		"nothing":   {func(*rig) string { return "" }, false},
		"the state": {func(g *rig) string { return g.job.Dir }, true},
		"above it":  {func(g *rig) string { return filepath.Dir(g.job.Dir) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, c := cutOff(t, map[string]string{"sub/a": "old", "b": "old"})
			if d := hide.dir(g); d != "" {
				c.Private = d // its daemon alone has that file system
			}
			// The child's own file system is gone with it, as that of a unit is.
			if !c.run(t) {
				t.Fatal("it was not killed")
			}
			other := g.at("sub")
			write(t, other.work, map[string]string{"a": "two"})
			if hide.hidden {
				refused(t, other, c.State, "start that daemon again", markFile(c.State))
				refused(t, other, c.State)
				found := strings.Join(Trouble(), "\n")
				if !strings.Contains(found, c.State) {
					t.Errorf("it is not named: %q", found)
				}
			} else if _, err := other.apply(client.ApplyRequest{}); err == nil || conflictsOf(err) == nil {
				t.Errorf("it was not finished first: %v", err)
			}
			far := begin(t, tree(t, map[string]string{"x": "old"}))
			write(t, far.work, map[string]string{"x": "new"})
			if _, err := far.apply(client.ApplyRequest{}); err != nil {
				t.Errorf("another source: %v", err)
			}
			must(t, os.RemoveAll(markFile(c.State)))
		})
	}
}

// A directory that was removed where this daemon sees that has no mark any more.
func TestMarkOfRemovedDirectory(t *testing.T) {
	t.Parallel()
	for _, up := range []int{0, 1, 2} {
		g, c := cutOff(t, map[string]string{"a": "old"})
		c.State = filepath.Join(t.TempDir(), "x/y/z")
		if !c.run(t) {
			t.Fatal("it was not killed")
		}
		dir := c.State
		for range up {
			dir = filepath.Dir(dir)
		}
		must(t, os.RemoveAll(dir))
		must(t, os.MkdirAll(filepath.Dir(c.State), 0o700))
		two := g.at(".")
		write(t, two.work, map[string]string{"a": "two"})
		if _, err := two.apply(client.ApplyRequest{}); err != nil {
			t.Errorf("%d up: %v", up, err)
		}
		if _, err := os.Lstat(markFile(c.State)); err == nil {
			t.Errorf("%d up: the mark is there", up)
		}
	}
}

// A mark that is damaged is no failure of the daemon: what it was of is found by the plan, where
// that can be seen, and else applies are refused for now. What no job has written counts for nothing.
func TestDamagedMarks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
	} else if !inOwnMounts(t) {
		return
	}
	must(t, os.MkdirAll(marksDir(), 0o700))
	far := begin(t, tree(t, map[string]string{"x": "old"}))
	apply := func(g *rig, content string) error {
		g.t.Helper()
		write(g.t, g.work, map[string]string{"x": content})
		_, err := g.apply(client.ApplyRequest{})
		return err
	}
	for i, text := range []string{"", "{", "null", "{}", "[1]", `{"dir":"/"}`, "\x00\xff", strings.Repeat("[", 100_000)} {
		must(t, os.WriteFile(filepath.Join(marksDir(), "README"), []byte(text), 0o600))
		must(t, os.WriteFile(filepath.Join(marksDir(), "x"+newSuffix), []byte(text), 0o600))
		if err := apply(far, fmt.Sprint("y", i)); err != nil {
			t.Fatalf("a file of somebody else's: %v", err)
		}
		if _, err := os.Lstat(filepath.Join(marksDir(), "x"+newSuffix)); err == nil {
			t.Error("what was not written to its end is not removed")
		}
		strange := markFile("/nowhere/" + text)
		must(t, os.WriteFile(strange, []byte(text), 0o600))
		write(t, far.work, map[string]string{"x": fmt.Sprint("z", i)})
		refused(t, far, strange)
		if found := Trouble(); len(found) != 1 || !strings.Contains(found[0], strange) {
			t.Errorf("named is %q", found)
		}
		must(t, os.Remove(strange))
		if err := apply(far, fmt.Sprint("z", i)); err != nil {
			t.Fatal(err)
		}

		// One of this daemon's.
		g, c := cutOff(t, map[string]string{"a": "old", "b": "old"})
		if !c.run(t) {
			t.Fatal("it was not killed")
		}
		must(t, os.WriteFile(markFile(c.State), []byte(text), 0o600))
		two := g.at(".")
		two.job.Dir = filepath.Join(filepath.Dir(c.State), "two")
		near := begin(t, tree(t, nil))
		near.job.Dir = filepath.Join(filepath.Dir(c.State), "near")
		write(t, two.work, map[string]string{"a": "two"})
		if err := apply(near, "x"); err != nil {
			t.Errorf("%q: another source: %v", text, err)
		}
		if _, err := two.apply(client.ApplyRequest{}); conflictsOf(err) == nil {
			t.Errorf("%q: the same source: %v", text, err)
		}
		if diffs := differ(look(t, g.source), look(t, g.work)); diffs != nil {
			t.Errorf("%q: it was not finished first: %q", text, diffs)
		}
		if left, _ := filepath.Glob(marksDir() + "/*"); len(left) != 1 {
			t.Errorf("%q: left is %q", text, left)
		}
	}
}

// inOwnMounts runs the test once more, in a mount namespace with a directory of marks of its own:
// other programs would take them for theirs. It is true there.
func inOwnMounts(t *testing.T) bool {
	t.Helper()
	const again = "TOOLD_APPLY_OWN_MOUNTS"
	if os.Getenv(again) != "" {
		return true
	}
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces can be made: %v: %s", err, out)
	}
	must(t, os.MkdirAll(hostlock.Dir(), 0o700))
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), again+"=1")
	unshareAt(cmd, hostlock.Dir())
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

// unshareAt makes a command begin in a mount namespace of its own with an empty file system at dir.
func unshareAt(cmd *exec.Cmd, dir string) {
	cmd.Args = append([]string{"unshare", "-m", "--propagation", "private", "sh", "-c", `mount -t tmpfs tmpfs "$0" && exec "$@"`, dir, cmd.Path}, cmd.Args[1:]...)
	cmd.Path, cmd.Err = exec.LookPath("unshare")
}

// A mark has all that says where its directory is, before a plan is committed.
func TestMarkIsWhole(t *testing.T) {
	t.Parallel()
	_, c := cutOff(t, map[string]string{"a": "old"})
	if !c.run(t) {
		t.Fatal("it was not killed")
	}
	text, err := os.ReadFile(markFile(c.State))
	must(t, err)
	var m mark
	must(t, json.Unmarshal(text, &m))
	if m.Dir != c.State || len(m.Own) == 0 || m.Daemon == "" || m.look() != seen || m.SourceWay.look(string(m.Source)) != seen {
		t.Errorf("got %s", text)
	}
	_, err = Recover(t.Context(), c.State)
	must(t, err)
	var st unix.Stat_t
	if unix.Lstat(markFile(c.State), &st) == nil {
		t.Error("the mark is there")
	}
}
