package treediff

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is one that random commands of git work in.
type repository struct {
	t    *testing.T
	dir  string
	rand *rand.Rand
}

func (r *repository) git(args ...string) string {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, _ := cmd.Output() // what fails changes nothing, or leaves a conflict
	return string(out)
}

func (r *repository) index() []byte {
	b, err := os.ReadFile(filepath.Join(r.dir, ".git/index"))
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// entries are those of the index, as git tells them, and its version.
func (r *repository) entries() string {
	const version = len("DIRC") + 4
	return r.git("ls-files", "--stage", "-t", "-v", "-z") + r.git("ls-files", "--resolve-undo", "-z") + string(r.index()[:version])
}

func (r *repository) step() {
	name := []string{"a", "d/b", "d/" + strings.Repeat("long", 40), "é\n", "d/e/f"}[r.rand.IntN(5)]
	write := func() {
		_ = os.MkdirAll(filepath.Dir(filepath.Join(r.dir, name)), 0o755)
		_ = os.WriteFile(filepath.Join(r.dir, name), fmt.Append(nil, r.rand.IntN(4)), 0o644)
	}
	switch r.rand.IntN(14) {
	case 0, 1, 2:
		r.git("status")
	case 3, 4:
		r.git("diff")
	case 5, 6:
		write()
	case 7:
		write()
		r.git("add", "--", name)
	case 8:
		r.git("rm", "-q", "--cached", "--", name)
	case 9:
		r.git("update-index", []string{"--assume-unchanged", "--no-assume-unchanged", "--skip-worktree", "--chmod=+x"}[r.rand.IntN(4)], "--", name)
	case 10:
		write()
		r.git("add", "-N", "--", name)
	case 11:
		r.git("commit", "-qm", "x")
	case 12:
		r.git([][]string{{"checkout", "-q", "-B", "x"}, {"merge", "-q", "main"}, {"stash", "-q"}, {"stash", "pop", "-q"}, {"reset", "-q"}}[r.rand.IntN(5)]...)
	case 13:
		r.git("update-index", []string{"--untracked-cache", "--no-untracked-cache", "--index-version=2", "--index-version=4"}[r.rand.IntN(4)])
	}
}

func sameBytes(t *testing.T, a, b []byte) bool {
	t.Helper()
	of := func(b []byte) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	}
	same, err := sameIndex(of(a), of(b), int64(len(a)), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return same
}

// TestSameIndex: an index is the same if git says the same of its entries; damaged ones are not.
func TestSameIndex(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	refreshed, changed := 0, 0
	for seed := range uint64(4) {
		r := &repository{t, t.TempDir(), rand.New(rand.NewPCG(seed, 1))}
		r.git("init", "-q", "-b", "main", "--object-format="+[]string{"sha1", "sha256"}[seed%2])
		if err := os.WriteFile(filepath.Join(r.dir, "a"), []byte("first"), 0o644); err != nil {
			t.Fatal(err)
		}
		r.git("add", ".")
		r.git("commit", "-qm", "first")
		for range 40 {
			before, was := r.index(), r.entries()
			r.step()
			after, is := r.index(), r.entries()
			if got, want := sameBytes(t, before, after), was == is; got != want {
				t.Fatalf("seed %d: same is %v; git had\n%q\nand has\n%q", seed, got, was, is)
			}
			if was != is {
				changed++
			} else if !bytes.Equal(before, after) {
				refreshed++
			}
			for range 5 {
				cut := bytes.Clone(after[:r.rand.IntN(len(after))])
				if sameBytes(t, after, cut) {
					t.Fatalf("seed %d: %d of %d bytes are the same", seed, len(cut), len(after))
				}
			}
		}
	}
	if refreshed < 5 || changed < 20 {
		t.Errorf("%d were written again, %d were changed", refreshed, changed)
	}
}

// FuzzSameIndex: nothing is read beyond what is there, and all is the same as itself or no index.
func FuzzSameIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00"+strings.Repeat("x", 20)), []byte("DIRC\x00\x00\x00\x04\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if sameBytes(t, a, b) != sameBytes(t, b, a) {
			t.Error("it depends on the order")
		}
	})
}

func TestIsIndex(t *testing.T) {
	for path, want := range map[string]bool{
		".git/index": true, "a/.git/index": true, ".git/worktrees/x/index": true, ".git/modules/x/index": true, "index": false, "a/index": false, ".git/index/x": false, ".git": false,
	} {
		if isIndex(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}

// TestIndexOfEqualEntries: one that git has written again is in no list, patch or archive; one with
// another entry is, also where it is large.
func TestIndexOfEqualEntries(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	for _, entries := range []int{1, 60_000} {
		r := newRig(t, t.TempDir(), t.TempDir())
		base, tree := &repository{t: t, dir: r.base}, &repository{t: t, dir: r.tree}
		base.git("init", "-q", "-b", "main")
		var info strings.Builder
		for i := range entries {
			fmt.Fprintf(&info, "100644 %040x\tdirectory/of/many/files/%d\n", i+1, i)
		}
		cmd := exec.Command("git", "update-index", "--add", "--index-info")
		cmd.Dir, cmd.Stdin = r.base, strings.NewReader(info.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		copyTree(t, r.base, r.tree)
		list := func() (paths []string) {
			for _, f := range []Format{List, Archive} {
				data, totals := r.write(t, f)
				if (totals.Files > 0) != bytes.Contains(data, []byte(".git/index")) {
					t.Errorf("%s: %+v\n%.300s", f, totals, data)
				}
				if totals.Files > 0 {
					paths = append(paths, string(f))
				}
			}
			return paths
		}
		tree.git("update-index", "--force-untracked-cache")
		if bytes.Equal(base.index(), tree.index()) {
			t.Fatal("it was not written again")
		}
		if got := list(); len(got) > 0 {
			t.Errorf("%d entries: an equal index is in %q", entries, got)
		}
		tree.git("update-index", "--force-remove", "directory/of/many/files/0")
		if got := list(); len(got) != 2 {
			t.Errorf("%d entries: another index is in %q alone", entries, got)
		}
	}
}
