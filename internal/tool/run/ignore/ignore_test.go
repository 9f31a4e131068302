package ignore

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// left says what patterns leave out, with what is in directories that are left out.
func left(ig List, rel string, dir bool) bool {
	for i := range len(rel) {
		if rel[i] == '/' && ig.Has(rel[:i], true) {
			return true
		}
	}
	return ig.Has(rel, dir)
}

// Patterns leave out what git leaves out: beside git check-ignore, on random patterns over
// few characters.
func TestIgnoreAsGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		testrig.Skipf(t, "oci", "git is not there: %v", err)
	}
	rounds, seed := testrig.Rounds(60), uint64(1)
	r := rand.New(rand.NewPCG(seed, 2))
	pieces := []string{
		"a", "b", "ab", "*", "**", "?", "/", "/", "[ab]", "[!a]", "[^b]", "[a-c]", "[]]", "[[:alpha:]]", "[[:digit:]b]", "[", "]", "\\", "\\a", "\\*",
		"!", "#", " ", "\\ ", "-", "[a-", "[\\]a]", "é", ".", "**/", "/**", "/**/", "[[:nope:]]", "[[:alpha]", "[a-\\c]", "\t",
	}
	random := func(n int) string {
		var b strings.Builder
		for range 1 + r.IntN(n) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	dir := t.TempDir()
	must(t, exec.Command(git, "-C", dir, "init", "-q").Run())
	var paths []string
	for _, p := range []string{
		"a", "b/", "ab", "ba/a", "b/a", "b/ab/a", "b/ab/b", "b/c/", "aa/b/a/b", " a", "a b", "!a", "#a", "é", "a-", "[", "]", "-", "c/a/ab", "c/b/a", "c/é/a", ".a", "a.b", "1", "\\",
		"a*", "*", "d/\xe9",
	} {
		full := filepath.Join(dir, p)
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		if strings.HasSuffix(p, "/") {
			must(t, os.MkdirAll(full, 0o755))
		} else {
			must(t, os.WriteFile(full, nil, 0o644))
		}
	}
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, p)
		if rel == ".git" {
			return filepath.SkipDir
		}
		if rel != "." {
			paths = append(paths, rel)
		}
		return err
	}))
	for round := range rounds {
		var lines []string
		for range 1 + r.IntN(4) {
			lines = append(lines, random(6))
		}
		must(t, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(strings.Join(lines, "\n")+"\n"), 0o644))
		ig, err := New(lines)
		must(t, err)
		cmd := exec.Command(git, "-C", dir, "check-ignore", "--no-index", "-z", "--stdin")
		cmd.Stdin = strings.NewReader(strings.Join(paths, "\x00") + "\x00")
		out, err := cmd.Output()
		if err != nil && cmd.ProcessState.ExitCode() != 1 {
			t.Fatalf("%q: %v", lines, err)
		}
		want := map[string]bool{}
		for p := range bytes.SplitSeq(out, []byte{0}) {
			want[string(p)] = true
		}
		for _, p := range paths {
			fi, err := os.Lstat(filepath.Join(dir, p))
			must(t, err)
			if got := left(ig, p, fi.IsDir()); got != want[p] {
				t.Errorf("seed %d round %d: %q and %q: %v, git says %v", seed, round, lines, p, got, want[p])
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d sets of patterns on %d paths, seed %d", rounds, len(paths), seed)
}

func TestIgnoreBounds(t *testing.T) {
	if _, err := New(make([]string, MaxPatterns+1)); err == nil {
		t.Error("too many are taken")
	}
	if _, err := New([]string{strings.Repeat("a", MaxPattern+1)}); err == nil {
		t.Error("a long one is taken")
	}
	// No pattern makes matching slow.
	ig, err := New([]string{strings.Repeat("*a", MaxPattern/2)})
	must(t, err)
	if ig.Has(strings.Repeat("a", 4000)+"b", false) {
		t.Error("it matches")
	}
}
