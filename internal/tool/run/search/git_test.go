package search

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// needGit skips a test where git is not there.
func needGit(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if strings.Contains(os.Getenv("TOOLD_TEST_REQUIRE"), "git") {
			t.Fatal(err)
		}
		t.Skip("git is not installed")
	}
}

// repository makes an empty one.
func repository(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("git", "init", "-q", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	for _, p := range gitPaths {
		full := filepath.Join(dir, p)
		if strings.HasSuffix(p, "/") {
			err = os.MkdirAll(full, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(full), 0o755); err == nil {
			err = os.WriteFile(full, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// gitIgnores asks git which of gitPaths an ignore file leaves out.
func gitIgnores(t testing.TB, repo, ignore string) map[string]bool {
	t.Helper()
	if err := os.WriteFile(filepath.Join(repo, ".gitignore"), []byte(ignore), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "-C", repo, "-c", "core.excludesFile=", "check-ignore", "--no-index", "-z", "--stdin")
	var paths strings.Builder
	for _, p := range gitPaths {
		paths.WriteString(strings.TrimSuffix(p, "/") + "\x00")
	}
	cmd.Stdin = strings.NewReader(paths.String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output() // the status only says whether there were any
	if stderr.Len() > 0 {
		t.Fatalf("git check-ignore: %s", &stderr)
	}
	ignored := map[string]bool{}
	for p := range strings.SplitSeq(string(out), "\x00") {
		ignored[p] = true
	}
	return ignored
}

// ownIgnores is what a walk makes of it: what is in a directory that is left out
// is never looked at.
func ownIgnores(rs rules, path string) bool {
	m := globber{ctx: context.Background()}
	path, dir := strings.CutSuffix(path, "/")
	for i := range path {
		if path[i] == '/' && rs.judge(&m, path[:i], true) == ignored {
			return true
		}
	}
	return rs.judge(&m, path, dir) == ignored
}

// gitPaths are the paths of the tree that repository makes; git tells files and
// directories apart by looking.
var gitPaths = []string{
	"ab", "abc", "a.c", ".a", "a/", "b/", "a/b/", "a/a", "b/a", "a/b/c", "b/b/", "b/b/c", "b/b/a/", "b/b/a/c", "c/", "c/ab", "a/c/", "a/c/b/", "a/c/b/c", "a/.a",
	"abc.d/", "abc.d/abc", "A", "a b", "a ", "a*", "a?b", "a[b", "a\\b", "#a", "!a", "a-b", "ä", "aäb",
}

func unbounded(int) bool { return true }

func compareGit(t testing.TB, repo, ignore string) {
	t.Helper()
	want := gitIgnores(t, repo, ignore)
	rs := parseRules(ignore, unbounded)
	for _, p := range gitPaths {
		if got := ownIgnores(rs, p); got != want[strings.TrimSuffix(p, "/")] {
			t.Errorf("%q with %q: got ignored %v, git says %v", p, ignore, got, want[p])
		}
	}
}

// agreesWithGit leaves out what ripgrep, which is followed here, is known to
// take in another way than git: braces, classes that match a slash or have
// escapes or names in them, spaces at the end, a slash that is escaped, two
// stars that do not stand alone, a "?" for a character of several bytes, and a "!"
// without anything behind it, which brings everything back.
func agreesWithGit(pattern string) bool {
	for line := range strings.Lines(pattern) {
		line = strings.TrimRight(line, "\n")
		if line == "!" || strings.ContainsAny(line, "{}\r\t\v\f") || strings.Contains(line, "[") || strings.HasSuffix(line, `\`) ||
			strings.HasSuffix(line, " ") || strings.Contains(line, `\/`) || strings.Contains(line, "//") {
			return false
		}
		for part := range strings.SplitSeq(strings.TrimPrefix(line, "!"), "/") {
			if part != "**" && strings.Contains(part, "**") {
				return false
			}
		}
		if strings.Contains(line, "?") && strings.Contains(line, "ä") {
			return false
		}
		for _, r := range line {
			if r < ' ' || r > '~' && r != 'ä' {
				return false
			}
		}
	}
	return len(pattern) < 200
}

func TestGlobsAreGits(t *testing.T) {
	needGit(t)
	repo := repository(t)
	for _, ignore := range []string{
		"a", "/a", "a/", "/a/", "a/b", "/a/b", "a/b/", "*", "/*", "*/", "**", "**/", "/**", "a/**", "**/a", "**/a/", "a/**/c", "**/a/**", "a/*/c", "a*", "*c", "a*c", "a?", "a?c", "?",
		"*\n!a", "*\n!a/", "/*\n!/a\n", "a/*\n!a/b", "!a\na", "#a", "\\#a", "\\!a", "a\\*", "a\\?b", "a\\[b", "\\a", "a\\ ", "A", "ä", "a*b", "\n\na\n", "abc/**/abc", "**/b/**/c", "*.c", ".*", "a b", "a-b", "/", "!", "a/b/c\n!a/b", "**/**/c", "a/**/", "a/**/**/c",
	} {
		compareGit(t, repo, ignore)
	}
	seed := uint64(time.Now().UnixNano())
	c := rand.New(rand.NewPCG(seed, 2))
	parts := []string{"a", "b", "c", "a", "b", "/", "/", "*", "**", "?", ".", "ab", "\\*", "-", "/**", "**/", "!", "/*"}
	for range 200 {
		var b strings.Builder
		for range c.IntN(3) + 1 {
			for range c.IntN(5) + 1 {
				b.WriteString(parts[c.IntN(len(parts))])
			}
			b.WriteByte('\n')
		}
		if agreesWithGit(b.String()) {
			compareGit(t, repo, b.String())
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzGlobsAreGits needs git; without it only panics and endless work are found.
func FuzzGlobsAreGits(f *testing.F) {
	for _, s := range []string{"a/**/b\n!c", "*.c", "[a-c]*", "{a,b}/", "\\", "**/", "[!a]", "[]-a]", "!"} {
		f.Add(s)
	}
	_, missing := exec.LookPath("git")
	repo := ""
	if missing == nil {
		repo = repository(f)
	}
	f.Fuzz(func(t *testing.T, ignore string) {
		if missing == nil && agreesWithGit(ignore) {
			compareGit(t, repo, ignore)
			return
		}
		rs := parseRules(ignore, unbounded)
		for _, p := range gitPaths {
			ownIgnores(rs, p)
		}
	})
}
