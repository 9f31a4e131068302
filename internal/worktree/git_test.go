package worktree_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree"
)

// TestGitElsewhere: a repository that is not in the directory is found, by what is in
// the directory and above it, and by nothing that hangs or runs.
func TestGitElsewhere(t *testing.T) {
	needs.OpenAt2(t)
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		t.Helper()
		p := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("repo/.git/HEAD", "ref: refs/heads/main\n")
	write("repo/sub/deep/file", "")
	write("repo/module/.git", "gitdir: ../.git/modules/module\n")
	write("repo/odd/.git/config", "") // no repository
	write("linked/.git", "gitdir: /elsewhere/.git/worktrees/linked\n")
	write("inside/.git", "gitdir: .repo\n")
	write("absolute/.git", "gitdir: "+base+"/absolute/.repo\n")
	write("nonsense/.git", strings.Repeat("x", 1<<20))
	write("empty/.git", "")
	write("plain/file", "")
	write("linkrepo/file", "")
	write("fifo/file", "")
	if err := os.Symlink("../repo/.git", base+"/linkrepo/.git"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(base+"/fifo/.git", 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		source string
		roots  string // below base
		want   *worktree.Elsewhere
	}{
		{"repo", "", nil},
		{"repo/odd", "", nil}, // .git of the directory itself decides
		{"repo/sub", "", &worktree.Elsewhere{Path: base + "/repo", Allowed: true}},
		{"repo/sub/deep", "", &worktree.Elsewhere{Path: base + "/repo", Allowed: true}},
		{"repo/sub/deep", "repo/sub", &worktree.Elsewhere{Path: base + "/repo"}},
		{"repo/module", "", &worktree.Elsewhere{Linked: true, Path: base + "/repo/.git/modules/module"}},
		{"linked", "", &worktree.Elsewhere{Linked: true, Path: "/elsewhere/.git/worktrees/linked"}},
		{"linkrepo", "", &worktree.Elsewhere{Linked: true, Path: base + "/repo/.git"}},
		{"inside", "", nil},
		{"absolute", "", &worktree.Elsewhere{Linked: true, Path: base + "/absolute/.repo"}},
		{"nonsense", "", nil},
		{"empty", "", nil},
		{"plain", "", nil},
		{"fifo", "", nil},
	} {
		for who, user := range map[string]*thread.User{"toold": nil, "a user": {UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}} {
			d, err := worktree.Pin(filepath.Join(base, tt.source), worktree.Rules{Roots: []string{filepath.Join(base, tt.roots)}, User: user, Git: true})
			if err != nil {
				t.Fatal(err)
			}
			got := d.Git
			if (got == nil) != (tt.want == nil) || got != nil && (got.Linked != tt.want.Linked || got.Path != tt.want.Path || got.Allowed != tt.want.Allowed) {
				t.Errorf("%s below %q, by %s: %+v, want %+v", tt.source, tt.roots, who, got, tt.want)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	d, err := worktree.Pin(base+"/linked", worktree.Rules{Roots: []string{base}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Git != nil {
		t.Errorf("nobody asked: %+v", d.Git)
	}
}

// TestGitOfOthers: what the user may not look into is not told.
func TestGitOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	base, err := os.MkdirTemp("", "git")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if err := os.MkdirAll(base+"/repo/.git", 0o755); err != nil {
		t.Fatal(err)
	}
	for p, mode := range map[string]os.FileMode{base: 0o755, base + "/repo": 0o755, base + "/repo/sub": 0o777, base + "/linked": 0o755} {
		if err := os.MkdirAll(p, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(base+"/repo/.git/HEAD", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(base+"/linked/.git", []byte("gitdir: /secret/place\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base+"/repo/.git", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"/repo/sub", "/linked"} {
		for uid, want := range map[uint32]bool{0: true, 65534: false} {
			d, err := worktree.Pin(base+source, worktree.Rules{Roots: []string{base}, User: &thread.User{UID: uid, GID: uid}, Git: true})
			if err != nil {
				t.Fatal(err)
			}
			if (d.Git != nil) != want {
				t.Errorf("%s, uid %d: %+v", source, uid, d.Git)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
