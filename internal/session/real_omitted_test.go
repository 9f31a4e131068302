package session

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/testrig"
)

// TestRealOmitted: what a diff was asked to leave out is in no list and no patch, is counted, and
// git takes what is left; so it is where the source has changed meanwhile, and by pages.
func TestRealOmitted(t *testing.T) {
	a := newApplyRig(t)
	git, err := exec.LookPath("git")
	if err != nil {
		testrig.Skipf(t, "git", "there is no git to compare with")
	}
	a.must(os.Mkdir(a.src+"/out", 0o755))
	a.must(os.Chown(a.src+"/out", int(alice.UID), int(alice.GID)))
	a.write(".gitignore", "out/\n*.o\n")
	a.write(".gitattributes", "keep filter=none\n") // which nobody has set up
	for _, n := range []string{"out/a", "both", "keep", "turns"} {
		a.write(n, "1\n2\n3\n4\n5\n6\n")
	}
	before := filepath.Join(t.TempDir(), "before")
	a.must(exec.Command("cp", "-a", a.src, before).Run())
	id := a.session("s")
	for _, c := range []string{
		"sed -i s/6/six/ both keep out/a", "echo x >x.o", "echo x >log.txt", "mkdir new",
		"echo f >new/.gitignore", "echo x >new/f", "rm turns", "mkdir turns", "echo x >turns/a", "echo x >turns/b.txt",
	} {
		a.bash("s", c)
	}
	q := client.DiffQuery{Exclude: []string{"*.txt"}, NoIgnored: true}
	want := []string{"both", "keep", "new", "new/.gitignore", "turns", "turns/a"}
	look := func(when string) {
		var got []string
		for page := (client.DiffQuery{Exclude: q.Exclude, NoIgnored: true, Limit: 4}); ; {
			c, err := a.m.trees.Changes(t.Context(), owner, id, page)
			a.must(err)
			for i := range c.Items {
				got = append(got, c.Items[i].Path)
			}
			if c.Excluded != 2 || c.Ignored != 3 || c.Files != len(want) {
				t.Errorf("%s: %d excluded, %d ignored, %d files", when, c.Excluded, c.Ignored, c.Files)
			}
			if page.After = c.Next; c.Next == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
		patch, err := a.m.trees.Diff(t.Context(), owner, id, q)
		a.must(err)
		text, err := io.ReadAll(patch)
		a.must(err)
		if excluded, ignored := patch.(interface{ Omitted() (int, int) }).Omitted(); excluded != 2 || ignored != 3 {
			t.Errorf("%s: a patch with %d excluded and %d ignored", when, excluded, ignored)
		}
		if n := patch.(interface{ Converted() int }).Converted(); n != 1 {
			t.Errorf("%s: a patch with %d files that git would store otherwise", when, n)
		}
		a.must(patch.Close())
		at := filepath.Join(t.TempDir(), "at")
		a.must(exec.Command("cp", "-a", before, at).Run())
		cmd := exec.Command(git, "-C", at, "apply")
		cmd.Stdin = strings.NewReader(string(text))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: git apply: %v %s\n%s", when, err, out, text)
		}
		for name, is := range map[string]bool{"new/.gitignore": true, "turns/a": true, "turns/b.txt": false, "new/f": false, "x.o": false, "log.txt": false} {
			if _, err := os.Lstat(at + "/" + name); (err == nil) != is {
				t.Errorf("%s: %s is there: %v, want %v", when, name, err == nil, is)
			}
		}
		for name, six := range map[string]bool{"both": true, "keep": true, "out/a": false} {
			if text, err := os.ReadFile(at + "/" + name); err != nil || strings.Contains(string(text), "six") != six {
				t.Errorf("%s: %s is %q, %v", when, name, text, err)
			}
		}
	}
	look("as it was")
	a.write("both", "1\nmine\n3\n4\n5\n6\n")
	look("with another source")
	a.end(id)
	look("at the end")
	if _, err := a.m.trees.Changes(t.Context(), owner, id, client.DiffQuery{Exclude: []string{strings.Repeat("x", 5000)}}); !errors.Is(err, fault.Invalid) {
		t.Errorf("a pattern that is too long: %v", err)
	}
}
