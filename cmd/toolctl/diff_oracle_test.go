package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// gitTree is a repository whose files are random, and were others when it was committed.
type gitTree struct {
	t   *testing.T
	dir string
	rnd *rand.Rand
}

func newGitTree(t *testing.T, seed uint64) *gitTree {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	g := &gitTree{t: t, dir: t.TempDir(), rnd: rand.New(rand.NewPCG(seed, 7))}
	g.git("init", "-q")
	names := make([]string, 1+g.rnd.IntN(12))
	for i := range names {
		names[i] = g.name(i)
		if g.rnd.IntN(4) > 0 {
			g.write(names[i], g.content())
		}
	}
	g.git("add", "-A")
	g.git("-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "--allow-empty", "-m", "x")
	for _, name := range names {
		switch g.rnd.IntN(5) {
		case 0:
			_ = os.Remove(filepath.Join(g.dir, name))
		case 1:
			_ = os.Chmod(filepath.Join(g.dir, name), 0o755)
		case 2, 3:
			g.write(name, g.content())
		}
	}
	g.git("add", "-A")
	return g
}

func (g *gitTree) git(args ...string) string {
	g.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "LC_ALL=C.UTF-8")
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatalf("git %v: %v", args, err)
	}
	return string(out)
}

func (g *gitTree) name(i int) string {
	// Older versions of git count the bytes of names and not their columns.
	parts := []string{"a", "long-directory-name", "sub dir", strings.Repeat("x", 40)}
	var name string
	for range g.rnd.IntN(4) {
		name += parts[g.rnd.IntN(len(parts))] + "/"
	}
	ends := []string{"", "tab\there", `quote"d`, `back\slash`, "esc\x1b", "line\nend", "\x7f"}
	return fmt.Sprintf("%sf%d%s", name, i, ends[g.rnd.IntN(len(ends))*g.rnd.IntN(2)])
}

func (g *gitTree) write(name, content string) {
	path := filepath.Join(g.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		g.t.Fatal(err)
	}
}

// content looks like the parts of a patch.
func (g *gitTree) content() string {
	pieces := []string{"line", "-- a/x", "++ b/x", "@@ -1 +1 @@", "diff --git a/x b/x", "\\ No newline at end of file", "", "\tindented", "int f() {", "ünï"}
	var b strings.Builder
	if g.rnd.IntN(8) == 0 {
		b.WriteString("\x00binary")
	}
	n := []int{3, 30, 400}[g.rnd.IntN(3)]
	for range g.rnd.IntN(n) {
		fmt.Fprintf(&b, "%s\n", pieces[g.rnd.IntN(len(pieces))])
	}
	if g.rnd.IntN(4) == 0 {
		b.WriteString("no end")
	}
	return b.String()
}

// changes are what git counts.
func (g *gitTree) changes() *client.Changes {
	all := &client.Changes{}
	status := map[string]client.ChangeStatus{"A": client.ChangeAdded, "M": client.ChangeModified, "D": client.ChangeDeleted}
	fields := strings.Split(strings.TrimSuffix(g.git("diff", "--cached", "--no-renames", "--raw", "-z"), "\x00"), "\x00")
	counts := strings.Split(g.git("diff", "--cached", "--no-renames", "--numstat", "-z"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		meta, path := strings.Fields(fields[i]), fields[i+1]
		c := client.Change{Path: path, Bytes: []byte(path), Status: status[meta[4]], Kind: "file"}
		n := strings.SplitN(counts[i/2], "\t", 3)
		if n[0] == "-" {
			c.Binary = true
			if meta[2] != meta[3] {
				c.OldSize, c.Size = g.size(meta[2]), g.size(meta[3])
			}
		}
		c.Added, _ = strconv.Atoi(n[0])
		c.Removed, _ = strconv.Atoi(n[1])
		all.Added, all.Removed, all.Files = all.Added+c.Added, all.Removed+c.Removed, all.Files+1
		all.Items = append(all.Items, c)
	}
	return all
}

func (g *gitTree) size(object string) int64 {
	if strings.Trim(object, "0") == "" {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(g.git("cat-file", "-s", object)), 10, 64)
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

// TestDiffLikeGit: of random trees, the diffstat in any width, the letters and the
// colours are git's own.
func TestDiffLikeGit(t *testing.T) {
	for seed := range uint64(testrig.Rounds(25)) {
		g := newGitTree(t, seed)
		all := g.changes()
		if len(all.Items) == 0 {
			continue
		}
		unquoted := []string{"-c", "core.quotePath=false", "diff", "--cached", "--no-renames"}
		for _, wide := range []int{20, 40, 80, 200} {
			for _, color := range []string{"never", "always"} {
				var got bytes.Buffer
				writeStat(&got, all, wide, color == "always")
				want := g.git(append(unquoted, fmt.Sprintf("--stat=%d,%d", wide, wide), "--color="+color)...)
				samePainting(t, fmt.Sprintf("seed %d, diffstat of width %d", seed, wide), got.String(), want)
			}
		}
		var letters bytes.Buffer
		writeNameStatus(&letters, all.Items)
		samePainting(t, fmt.Sprintf("seed %d, letters", seed), letters.String(), g.git(append(unquoted, "--name-status")...))
		for _, color := range []string{"never", "always"} {
			var got bytes.Buffer
			if err := showPatch(&got, strings.NewReader(g.git(append(unquoted, "--binary")...)), color == "always"); err != nil {
				t.Fatal(err)
			}
			want := g.git(append(unquoted, "--binary", "--ws-error-highlight=none", "--color="+color)...)
			samePainting(t, fmt.Sprintf("seed %d, patch", seed), got.String(), want)
		}
	}
}

// painting is what is shown, with each character behind the colour that it has. White space
// has none.
func painting(s string) string {
	var b strings.Builder
	color := ""
	for i := 0; i < len(s); i++ {
		if end := strings.IndexByte(s[i:], 'm'); strings.HasPrefix(s[i:], "\x1b[") {
			color = strings.TrimPrefix(s[i+2:i+end], "0")
			i += end
			continue
		}
		if !strings.ContainsRune("\n\t ", rune(s[i])) {
			b.WriteString(color)
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// samePainting fails at the first line that differs.
func samePainting(t *testing.T, what, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		switch {
		case i >= len(g) || i >= len(w):
			t.Fatalf("%s: %d lines, want %d", what, len(g), len(w))
		case painting(g[i]) != painting(w[i]):
			t.Fatalf("%s: line %d is %q, want %q", what, i+1, g[i], w[i])
		}
	}
}
