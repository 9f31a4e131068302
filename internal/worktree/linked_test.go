package worktree_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree"
)

// TestLinked: git's lists of linked worktrees are found wherever git itself puts them, and
// what a session would find of them at its own path is its own.
func TestLinked(t *testing.T) {
	needs.OpenAt2(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	const repo = "git init -q repo && cd repo && git commit -q --allow-empty -m one && "
	tests := []struct {
		name, script, source string
		target               string // "" is where the source is on the host
		want                 []string
	}{
		{"none", repo + "true", "repo", "", nil},
		{"outside", repo + "git worktree add -q ../x", "repo", "", []string{".git/worktrees []"}},
		{"the last one gone", repo + "git worktree add -q ../x && rm -r .git/worktrees/x", "repo", "", []string{".git/worktrees []"}},
		{"inside", repo + "git worktree add -q ../x && git worktree add -q .worktrees/y", "repo", "", []string{".git/worktrees [y]"}},
		{"inside, at another place", repo + "git worktree add -q .worktrees/y", "repo", "/workspace", []string{".git/worktrees []"}},
		{"inside, by a session", repo + "git worktree add -q y && echo /workspace/y/.git >.git/worktrees/y/gitdir", "repo", "/workspace", []string{".git/worktrees [y]"}},
		{"inside, relative", repo + "git worktree add -q y && echo ../../../y/.git >.git/worktrees/y/gitdir", "repo", "/workspace", []string{".git/worktrees [y]"}},
		{"inside, removed", repo + "git worktree add -q y && rm -r y", "repo", "", []string{".git/worktrees []"}},
		{"beside each other", repo + "git worktree add -q ../x", ".", "", []string{"repo/.git/worktrees [x]"}},
		{"a linked worktree", repo + "git worktree add -q ../x", "x", "", nil},
		{"bare", "git init -q --bare b && git -C b worktree add -q --orphan x ../x 2>/dev/null || { cd b; git commit-tree -m x $(git mktree </dev/null) >../c; git worktree add -q ../x $(cat ../c); }", "b", "", []string{"worktrees []"}},
		{"bare below", repo + "git clone -q --bare . ../p/.bare && cd ../p && echo 'gitdir: ./.bare' >.git && git worktree add -q main2", "p", "", []string{".bare/worktrees [main2]"}},
		{"bare below, another place", repo + "git clone -q --bare . ../p/.bare && cd ../p && echo \"gitdir: $PWD/.bare\" >.git && git worktree add -q main2", "p", "/workspace", []string{".bare/worktrees []"}},
		{"by a link", repo + "git worktree add -q ../x && mv .git real && ln -s real .git", "repo", "", []string{"real/worktrees []"}},
		{"a submodule", "git init -q sub && git -C sub commit -q --allow-empty -m one && " + repo + "git -c protocol.file.allow=always submodule --quiet add ../sub sub && git -C sub worktree add -q ../../x", "repo", "", []string{".git/modules/sub/worktrees []"}},
		{"a submodule in a directory", "git init -q sub && git -C sub commit -q --allow-empty -m one && " + repo + "git -c protocol.file.allow=always submodule --quiet add ../sub vendor/in/foo && git -C vendor/in/foo worktree add -q $PWD/../x", "repo", "", []string{".git/modules/vendor/in/foo/worktrees []"}},
		{"a submodule of a submodule", "git init -q sub && git -C sub commit -q --allow-empty -m one && git init -q mid && git -C mid -c protocol.file.allow=always submodule --quiet add ../sub deep/sub && git -C mid commit -qm two && " + repo + "git -c protocol.file.allow=always submodule --quiet add ../mid mid && git -c protocol.file.allow=always submodule --quiet update --init --recursive && git -C mid/deep/sub worktree add -q $PWD/../x", "repo", "", []string{".git/modules/mid/modules/deep/sub/worktrees []"}},
		{"a submodule of a linked worktree", "git init -q sub && git -C sub commit -q --allow-empty -m one && " + repo + "git -c protocol.file.allow=always submodule --quiet add ../sub sub && git commit -qm two && git worktree add -q ../w && cd ../w && git -c protocol.file.allow=always submodule --quiet update --init && git -C sub worktree add -q $PWD/../x", "repo", "", []string{".git/worktrees []", ".git/worktrees/w/modules/sub/worktrees []"}},
		{"deep", "mkdir -p top/packages/in && cd top/packages/in && " + repo + "git worktree add -q $PWD/../../../../x", "top", "", []string{"packages/in/repo/.git/worktrees []"}},
		{"below what looks like git's own", "mkdir -p top/objects/refs && cd top/objects/refs && " + repo + "git worktree add -q $PWD/../../../../x", "top", "", []string{"objects/refs/repo/.git/worktrees []"}},
		{"below a bare one", "git init -q --bare b && mkdir b/in && cd b/in && " + repo + "git worktree add -q $PWD/../../../x", "b", "", []string{"in/repo/.git/worktrees []"}},
		{"in what npm fills", "mkdir -p top/node_modules && cd top/node_modules && " + repo + "git worktree add -q ../../../x", "top", "", nil},
		{"the list is a link", repo + "git worktree add -q ../x && mv .git/worktrees .git/w && ln -s w .git/worktrees", "repo", "", []string{".git/worktrees [] a link leads there"}},
		{"the list is a file", repo + "touch .git/worktrees", "repo", "", nil},
		{"the list is a link from the root", repo + "git worktree add -q ../x && mv .git/worktrees .git/w && ln -s $PWD/.git/w .git/worktrees", "repo", "", []string{".git/worktrees [] a link leads there"}},
		{"an entry is a link", repo + "git worktree add -q y && mv .git/worktrees/y .git/y && ln -s ../y .git/worktrees/y", "repo", "", []string{".git/worktrees []"}},
		{"an entry names a FIFO", repo + "git worktree add -q y && rm y/.git && mkfifo y/.git", "repo", "", []string{".git/worktrees []"}},
		{"an entry is one", repo + "git worktree add -q y && rm .git/worktrees/y/gitdir && mkfifo .git/worktrees/y/gitdir", "repo", "", []string{".git/worktrees []"}},
		{"an entry leads out", repo + "git worktree add -q y && echo ../../../../out/.git >.git/worktrees/y/gitdir && mkdir ../out && touch ../out/.git", "repo", "", []string{".git/worktrees []"}},
		{".git leads out", repo + "git worktree add -q ../x && mkdir ../p && echo 'gitdir: ../repo/.git' >../p/.git", "p", "", nil},
		{".git leads to itself", "mkdir p && ln -s .git p/.git", "p", "", nil},
		{"strange names", repo + `git worktree add -q --detach "../a
b" && git worktree add -q --detach "c 'd\""`, "repo", "", []string{".git/worktrees [c-'d\"]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh", "-ec", tt.script)
			cmd.Dir = base
			cmd.Env = append(os.Environ(), "HOME="+base, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			user := &thread.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
			source := filepath.Join(base, tt.source)
			target := tt.target
			if target == "" {
				target = source
			}
			if got := linked(t, source, worktree.Rules{Roots: []string{base}, User: user, Linked: target}); strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// linked describes what is found in a directory.
func linked(t *testing.T, source string, rules worktree.Rules) (got []string) {
	t.Helper()
	d, err := worktree.Pin(source, rules)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, l := range d.Linked {
		got = append(got, strings.TrimSpace(fmt.Sprint(l.List, " ", l.Own, " ", l.Why)))
	}
	return got
}

// TestLinkedMany: what is too much to look at, or to mount, is said.
func TestLinkedMany(t *testing.T) {
	needs.OpenAt2(t)
	make := func(t *testing.T, n int, name string) string {
		t.Helper()
		base := t.TempDir()
		for i := range n {
			if err := os.MkdirAll(filepath.Join(base, fmt.Sprintf(name, i)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return base
	}
	last := func(t *testing.T, base, target string, lists int, why string) {
		t.Helper()
		got := linked(t, base, worktree.Rules{Roots: []string{base}, Linked: target})
		if len(got) != lists || !strings.Contains(got[lists-1], why) {
			t.Errorf("%d lists, %q, want %d and %q", len(got), got, lists, why)
		}
	}
	t.Run("repositories", func(t *testing.T) {
		last(t, make(t, 18, "%d/.git/worktrees"), "/w", 17, "more than 16 repositories")
	})
	t.Run("names", func(t *testing.T) {
		last(t, make(t, 4097, "in/%d"), "/w", 1, "in [] not all below it was looked at")
	})
	t.Run("directories", func(t *testing.T) {
		last(t, make(t, 2048, "%d"), "/w", 1, ". [] not all below it was looked at")
	})
	t.Run("of its own", func(t *testing.T) {
		base := make(t, 65, ".git/worktrees/%d")
		for i := range 65 {
			if err := os.WriteFile(fmt.Sprintf("%s/.git/worktrees/%d/gitdir", base, i), []byte("/w/x/.git\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(base+"/x", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(base+"/x/.git", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		last(t, base, "/w", 1, "more than 64 of them lie in it")
	})
}

// TestLinkedOfOthers: a user learns of no list that is closed to him.
func TestLinkedOfOthers(t *testing.T) {
	needs.SetIDBits(t)
	base := t.TempDir()
	for dir, mode := range map[string]os.FileMode{filepath.Dir(base): 0o755, base: 0o755, base + "/.git/worktrees": 0o755, base + "/.git": 0o700} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() != 0 || unix.Access(base, unix.R_OK) != nil {
		t.Skip("needs root")
	}
	if got := linked(t, base, worktree.Rules{Roots: []string{base}, User: &thread.User{UID: 41, GID: 42}, Linked: "/w"}); got != nil {
		t.Errorf("%q", got)
	}
	if got := linked(t, base, worktree.Rules{Roots: []string{base}, Linked: "/w"}); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
