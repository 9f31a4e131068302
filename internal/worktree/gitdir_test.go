package worktree_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree"
)

// gitTree is what git itself makes: a repository with a part, two linked worktrees, one
// of them with relative paths as newer git writes them, two submodules; another one with
// alternates; and a directory that is its own repository's elsewhere.
func gitTree(t *testing.T) string {
	t.Helper()
	needs.OpenAt2(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(`
		mkdir -p repo/sub other secret up && cd up && git init -q && echo x >x && git add . && git commit -qm up
		cd repo && git init -q && echo a >sub/a && git add . && git commit -qm one
		cd repo && git submodule --quiet add ../up mod && git submodule --quiet add ../up deep/"mod ;" && git commit -qm mods
		cd repo && git worktree add -q ../linked && git worktree add -q ../relative
		echo 'gitdir: ../repo/.git/worktrees/relative' >relative/.git && echo '../../../../relative/.git' >repo/.git/worktrees/relative/gitdir
		git clone -q --shared repo borrower && cd borrower && git worktree add -q ../borrowed
		cd secret && git init -q && echo s >s && git add . && git commit -qm secret && git worktree add -q ../open
		git init -q --separate-git-dir=apart.git apart
		cp -r linked copy`), "\n") {
		cmd := exec.Command("sh", "-ec", line)
		cmd.Dir = base
		cmd.Env = append(os.Environ(), "HOME="+base, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always",
			"GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	return base
}

// pinGit pins a directory below base and describes what was found of its repository.
func pinGit(t *testing.T, base, source string, rules worktree.Rules) string {
	t.Helper()
	rules.Git = true
	if rules.Roots == nil {
		rules.Roots = []string{base}
	}
	d, err := worktree.Pin(filepath.Join(base, source), rules)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Git == nil {
		return "none"
	}
	if d.Git.Dir == nil {
		return "not shown: " + d.Git.Why
	}
	if _, err := os.Stat("/proc/self/fd/" + strconv.Itoa(int(d.Git.Dir.Fd())) + "/HEAD"); err != nil {
		t.Errorf("%s: what is shown: %v", source, err)
	}
	got := strings.Join([]string{d.Git.Dir.Path, d.Git.Names, d.Git.Back}, " ")
	if d.Git.Alternates {
		got += " alternates"
	}
	return strings.ReplaceAll(got, base, "BASE")
}

const (
	outside  = "not shown: it is not below a directory that sessions may be given"
	unopened = "not shown: it is no directory that you may open, or a link is on the way"
	noGit    = "not shown: it is not a git directory"
	foreign  = "not shown: it belongs to another user than the worktree"
	notBack  = "not shown: it does not name this worktree as one of its own"
)

// TestGitDir: the directory that git needs is found for what git itself has made.
func TestGitDir(t *testing.T) {
	base := gitTree(t)
	user := &thread.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	for source, want := range map[string]string{
		"repo":            "none",
		"linked":          "BASE/repo/.git BASE/repo/.git ",
		"relative":        "BASE/repo/.git ../repo/.git ",
		"borrowed":        "BASE/borrower/.git BASE/borrower/.git  alternates",
		"repo/sub":        "BASE/repo/.git ../.git ../sub",
		"repo/mod":        "BASE/repo/.git/modules/mod ../.git/modules/mod ../../../mod",
		"repo/deep/mod ;": "BASE/repo/.git/modules/deep/mod ; ../../.git/modules/deep/mod ; ../../../../deep/mod ;",
		"apart":           notBack, // it names nobody
		"copy":            notBack, // it names the one that was copied
	} {
		for _, u := range []*thread.User{nil, user} {
			if got := pinGit(t, base, source, worktree.Rules{User: u}); got != want {
				t.Errorf("%s: %s, want %s", source, got, want)
			}
		}
	}
}

// TestGitDirHostile: .git of a worktree that a session wrote to leads to nothing that
// does not name the worktree itself, and to nothing outside the roots.
func TestGitDirHostile(t *testing.T) {
	base := gitTree(t)
	if err := os.Symlink("repo", base+"/link"); err != nil {
		t.Fatal(err)
	}
	linked := func(text string) func() error {
		return func() error { return os.WriteFile(base+"/linked/.git", []byte(text), 0o644) }
	}
	for _, tt := range []struct {
		name    string
		change  func() error
		sources string
		roots   []string
		want    string
	}{
		{"outside the roots", nil, "linked", []string{base + "/linked"}, outside},
		{"of a part, outside the roots", nil, "repo/sub", []string{base + "/repo/sub"}, outside},
		{"own directory within the roots, the common one not", nil, "linked", []string{base + "/linked", base + "/repo/.git/worktrees"}, outside},
		{"another repository", linked("gitdir: " + base + "/secret/.git\n"), "linked", nil, notBack},
		{"another's worktree", linked("gitdir: " + base + "/secret/.git/worktrees/open\n"), "linked", nil, notBack},
		{"another's submodule", linked("gitdir: " + base + "/repo/.git/modules/mod\n"), "linked", nil, notBack},
		{"/etc", linked("gitdir: /etc\n"), "linked", nil, outside},
		{"/etc of all", linked("gitdir: /etc\n"), "linked", []string{"/"}, outside},
		{"up and out", linked("gitdir: ../../../../../../../../../../etc\n"), "linked", []string{"/"}, outside},
		{"process", linked("gitdir: /proc/self/cwd\n"), "linked", []string{"/"}, outside},
		{"a link on the way", linked("gitdir: " + base + "/link/.git/worktrees/linked\n"), "linked", nil, unopened},
		{"a file", linked("gitdir: " + base + "/repo/.git/HEAD\n"), "linked", nil, unopened},
		{"nothing", linked("gitdir: " + base + "/nothing\n"), "linked", nil, unopened},
		{"no git directory", linked("gitdir: " + base + "/other\n"), "linked", nil, notBack},
		{"itself", linked("gitdir: .git\n"), "linked", nil, "none"},
		{"itself, absolute", linked("gitdir: " + base + "/linked/.git\n"), "linked", nil, unopened},
		{"1 MiB", linked("gitdir: " + strings.Repeat("x", 1<<20)), "linked", nil, "none"},
		{"1 MiB of slashes", linked("gitdir: " + base + strings.Repeat("/", 1<<20) + "secret/.git"), "linked", nil, "none"},
		{"a NUL", linked("gitdir: " + base + "/secret/.git\x00"), "linked", nil, "none"},
		{"a loop of links", func() error {
			return os.Symlink(base+"/loop/.git", base+"/loop/.git")
		}, "loop", nil, unopened},
		{"a link to another repository", func() error {
			return os.Symlink(base+"/secret/.git", base+"/way/.git")
		}, "way", nil, notBack},
		// What one writes who may write to a repository, about his own.
		{"commondir elsewhere", func() error {
			return os.WriteFile(base+"/repo/.git/worktrees/relative/commondir", []byte(base+"/secret/.git\n"), 0o644)
		}, "relative", nil, notBack},
		{"commondir is a link", func() error {
			return replaceLink(base+"/repo/.git/worktrees/relative/commondir", "gitdir")
		}, "relative", nil, notBack},
		{"own configuration is huge", func() error {
			return os.WriteFile(base+"/repo/.git/modules/mod/config", []byte("[core]\nworktree = ../../../mod\n"+strings.Repeat("#\n", 1<<20)), 0o644)
		}, "repo/mod", nil, notBack},
		{"no HEAD", func() error { return os.Remove(base + "/borrower/.git/HEAD") }, "borrowed", nil, noGit},
		{"objects are a link", func() error { return replaceLink(base+"/secret/.git/objects", "../../repo/.git/objects") }, "open", nil, noGit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, dir := range []string{"loop", "way"} {
				if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if tt.change != nil {
				if err := tt.change(); err != nil {
					t.Fatal(err)
				}
			}
			if got := pinGit(t, base, tt.sources, worktree.Rules{Roots: tt.roots}); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func replaceLink(path, to string) error {
	if err := os.Rename(path, path+".old"); err != nil {
		return err
	}
	return os.Symlink(to, path)
}

// TestGitDirOfOthers: a user gets no git directory that he may not open, or that is
// another's, also where that one would name his worktree.
func TestGitDirOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	base := gitTree(t)
	const alice, bob = 12345, 12346
	chown := func(uid int, names ...string) {
		t.Helper()
		for _, name := range names {
			if out, err := exec.Command("chown", "-Rh", strconv.Itoa(uid), filepath.Join(base, name)).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	for p := base; p != "/tmp" && p != "/"; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	as := func(uid uint32, source string) string {
		return pinGit(t, base, source, worktree.Rules{User: &thread.User{UID: uid, GID: uid}})
	}
	const shown = "BASE/repo/.git BASE/repo/.git "
	chown(alice, "repo", "linked")
	if got := as(alice, "linked"); got != shown {
		t.Errorf("her own: %s", got)
	}
	if got := as(bob, "linked"); got != foreign {
		t.Errorf("bob, who may read alice's: %s", got)
	}
	chown(bob, "linked", "repo/sub")
	for _, source := range []string{"linked", "repo/sub"} {
		if got := as(bob, source); got != foreign {
			t.Errorf("bob's worktree %s of alice's repository: %s", source, got)
		}
		// toold itself may open all: the owner of the worktree is who counts.
		if got := pinGit(t, base, source, worktree.Rules{}); got != foreign {
			t.Errorf("bob's worktree %s, for an admin: %s", source, got)
		}
	}
	if err := os.Chmod(base+"/repo/.git", 0o700); err != nil {
		t.Fatal(err)
	}
	if got := as(bob, "linked"); got != unopened {
		t.Errorf("closed to bob: %s", got)
	}
	// A git directory of bob's own that names alice's worktree gives him alice's
	// worktree as little as before, and her sessions his repository never.
	chown(bob, "secret")
	chown(alice, "linked")
	for _, f := range []struct{ name, text string }{
		{"secret/.git/worktrees/open/gitdir", base + "/linked/.git\n"}, {"linked/.git", "gitdir: " + base + "/secret/.git/worktrees/open\n"},
	} {
		if err := os.WriteFile(filepath.Join(base, f.name), []byte(f.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := as(alice, "linked"); got != foreign {
		t.Errorf("bob's repository in alice's session: %s", got)
	}
	if err := unix.Chmod(base+"/secret/.git/config", 0o600); err != nil {
		t.Fatal(err)
	}
	chown(alice, "secret/.git", "linked")
	if got := as(alice, "linked"); got != "BASE/secret/.git BASE/secret/.git " {
		t.Errorf("the same, all alice's: %s", got)
	}
}
