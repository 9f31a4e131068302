package session

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/cache/builtin"
	"github.com/toold/toold/internal/testrig"
)

// TestRealGitNotes: where git does not find the repository that the source belongs to,
// the session says so when it is made, and says what helps, which then does.
func TestRealGitNotes(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, ``, map[string]string{"repo/sub/file": "x\n", "plain/file": "x\n"})
	repo := filepath.Join(dir, "repo")
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = repo
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "HOME="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q")
	git("add", ".")
	git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m")
	git("worktree", "add", "-q", dir+"/linked")
	git("clone", "-q", repo, dir+"/clone")
	chown := exec.Command("chown", "-R", "--reference="+dir+"/plain", dir)
	if out, err := chown.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tt := range []struct {
		source, workdir string
		note            []string // parts of it; none: git works
	}{
		{"repo", "", nil},
		{"clone", "", nil},
		{"linked", "", []string{"git does not work", repo + "/.git/worktrees/linked", "git clone " + dir + "/linked DIR"}},
		{"repo/sub", "", []string{"git does not work", "part of the repository at " + repo, "workdir sub"}},
		{"repo", "sub", nil}, // as the note says
	} {
		for _, mode := range []client.WorktreeMode{client.WorktreeBind, client.WorktreeRO} {
			s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: filepath.Join(dir, tt.source), Mode: mode}})
			if err != nil {
				t.Fatal(err)
			}
			c := realCall(t, m, s.ID, "bash", object{"command": "git log --format=%s", "workdir": tt.workdir})
			notes := strings.Join(s.Notes, "\n")
			if works := !c.IsError && strings.HasPrefix(c.Output, "m"); works != (tt.note == nil) || strings.Contains(notes, "git does not work") == works {
				t.Errorf("%s, %s: git says %q, the notes %q", tt.source, mode, c.Output, notes)
			}
			for _, part := range tt.note {
				if !strings.Contains(notes, part) {
					t.Errorf("%s: %q is missing in %q", tt.source, part, notes)
				}
			}
			if brief := briefOf(t, m, s.ID); strings.Contains(brief, "work without it, and say so: who made the session can give it a clone.") != (tt.source == "linked") {
				t.Errorf("%s, %s: the brief %q", tt.source, mode, brief)
			}
			if _, err := m.End(t.Context(), mounter, s.ID, client.EndOptions{Force: true}); err != nil {
				t.Error(err)
			}
		}
	}
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir + "/plain"}})
	if err != nil || strings.Contains(strings.Join(s.Notes, "\n"), "git") {
		t.Errorf("no repository: %+v, %v", s, err)
	}
}

// briefOf is what a model is told of a session.
func briefOf(t *testing.T, m *Manager, session string) string {
	t.Helper()
	brief, err := m.Tools.Brief(t.Context(), mounter, session)
	testrig.Must(t, err)
	return brief
}

// TestRealGitIdentity: commits of a session have the identity that was asked for, else the
// configuration's, else the creator's, and the repository's own before all of them; where there
// is none, a note says so before the first commit fails.
func TestRealGitIdentity(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, "[permission]\nexternal_directory = \"allow\"\nbash = \"allow\"\n", map[string]string{"repo/file": "x\n"})
	repo := filepath.Join(dir, "repo")
	testrig.Must(t, exec.Command("git", "-C", repo, "init", "-q").Run())
	testrig.Must(t, exec.Command("chown", "-R", "--reference="+repo+"/file", repo).Run())
	odd := &client.GitIdentity{Name: `Ada "the first" \ O'Brien; # é`, Email: "ada+\"x\"@example.com"}
	creator := &client.GitIdentity{Name: "Creator", Email: "c@example.com", Creators: true}
	for _, tt := range []struct {
		name              string
		asked, configured *client.GitIdentity
		setup, want       string
	}{
		{name: "none"},
		{name: "asked", asked: odd, want: odd.Name + "|" + odd.Email},
		{name: "creator", asked: creator, want: "Creator|c@example.com"},
		{name: "configured", configured: &client.GitIdentity{Name: "Conf", Email: "f@x"}, want: "Conf|f@x"},
		{name: "configured, creator", asked: creator, configured: &client.GitIdentity{Name: "Conf", Email: "f@x"}, want: "Conf|f@x"},
		{name: "configured, asked", asked: odd, configured: &client.GitIdentity{Name: "Conf", Email: "f@x"}, want: odd.Name + "|" + odd.Email},
		{name: "repository", asked: odd, setup: "git config user.name Own; git config user.email own@x; ", want: "Own|own@x"},
	} {
		set := *m.settings.Load()
		set.Worktrees.Identity = tt.configured
		m.settings.Store(&set)
		for _, mode := range []client.WorktreeMode{client.WorktreeOverlay, client.WorktreeEmpty} {
			w := client.Worktree{Source: repo, Mode: mode, Identity: tt.asked}
			setup := tt.setup
			if mode == client.WorktreeEmpty {
				w.Source, setup = "", "git init -q; "+setup
			}
			s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: w})
			if err != nil {
				t.Fatal(tt.name, err)
			}
			c := realCall(t, m, s.ID, "bash", object{"command": setup + "git commit -q --allow-empty -m m && git log -1 --format='%an|%ae'"})
			if got := strings.TrimSpace(c.Output); c.IsError != (tt.want == "") || !c.IsError && got != tt.want {
				t.Errorf("%s, %s: %q, want %q", tt.name, mode, got, tt.want)
			}
			if noted := slices.Contains(s.Notes, authorless); noted != (tt.want == "" && mode == client.WorktreeOverlay) {
				t.Errorf("%s, %s: notes %q", tt.name, mode, s.Notes)
			}
			if told := strings.Contains(briefOf(t, m, s.ID), "nobody is named as author of commits: where `git commit` says so, use `git -c user.name=NAME"); mode == client.WorktreeOverlay && told != (tt.want == "") {
				t.Errorf("%s: the brief speaks of an author: %t", tt.name, told)
			}
			_, err = m.End(t.Context(), mounter, s.ID, client.EndOptions{Force: true, Discard: true})
			testrig.Must(t, err)
		}
	}
}

// TestRealGitElsewhere: git looks at a repository that is not in the worktree, where
// the session has it read-only, and at nothing else; it changes nothing.
func TestRealGitElsewhere(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	h := newRealHouse(t)
	m := openReal(t, h)
	realTree(t, m, "[permission]\nexternal_directory = \"allow\"\nbash = \"allow\"\n", nil)
	// Nothing can be shown at places below /tmp.
	if err := os.MkdirAll("/srv", 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/srv", "toold-git-")
	testrig.Must(t, err, testrig.Doomed(dir))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const owner = 12345
	build := exec.Command("sh", "-ec", `
		mkdir -p up repo/part/in secret && cd up && git init -q && echo x >x && git add . && git commit -qm upper
		cd ../repo && git init -q && echo one >part/in/file && echo other >other && git add . && git commit -qm message
		git submodule --quiet add ../up part/mod && git commit -qm submodule
		git worktree add -q ../linked && git worktree add -q ../evil
		cd ../secret && git init -q && echo s >s && git add . && git commit -qm secret
		echo "gitdir: $PWD/.git" >../evil/.git
		printf '#!/bin/sh\necho hook ran\n' >../repo/.git/hooks/pre-commit && chmod 755 ../repo/.git/hooks/pre-commit
		echo two >>../repo/part/in/file && echo two >>../linked/part/in/file && echo two >>../repo/part/mod/x
		cd .. && chown -Rh `+strconv.Itoa(owner)+` .`)
	build.Dir = dir
	build.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always",
		"GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const readOnly = "is read-only in this session, so that git commit fails"
	for _, tt := range []struct {
		source, target, place string // the last: where the git directory is, "" for nowhere
		file, message         string
		note                  string
	}{
		{"linked", "", dir + "/repo/.git", "part/in/file", "message", readOnly},
		{"linked", "/elsewhere/deep", dir + "/repo/.git", "part/in/file", "message", readOnly},
		{"repo/part", "/workspace/part", "/workspace/.git", "in/file", "message", "use git status . and git diff ."},
		{"repo/part/in", "/x/part/in", "/x/.git", "file", "message", "give bash the workdir part/in"},
		{"repo/part/mod", "/workspace/part/mod", "/workspace/.git/modules/part/mod", "x", "upper", readOnly},
		{"repo/part", "", "", "", "", "give it the target /workspace/part)"},
		{"repo/part/mod", "", "", "", "", "give it the target /workspace/part/mod)"},
		{"repo/part", "/part", "", "", "", "give it the target /workspace/part)"}, // /.git would be for all of the sandbox
		{"linked", dir + "/repo/.git/x", "", "", "", "lies above the worktree"},
		{"evil", "", "", "", "", "it does not name this worktree as one of its own"},
	} {
		for _, mode := range []client.WorktreeMode{client.WorktreeBind, client.WorktreeRO, client.WorktreeOverlay} {
			t.Run(tt.source+" at "+tt.target+" "+string(mode), func(t *testing.T) {
				s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: filepath.Join(dir, tt.source), Target: tt.target, Mode: mode}})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if _, err := m.End(t.Context(), mounter, s.ID, client.EndOptions{Force: true}); err != nil {
						t.Error(err)
					}
				}()
				bash := func(command string) string {
					t.Helper()
					out := realCall(t, m, s.ID, "bash", object{"command": command}).Output
					return out[:min(len(out), 1000)]
				}
				notes := strings.Join(s.Notes, "\n")
				if !strings.Contains(notes, tt.note) || strings.Contains(notes, "git does not work") != (tt.place == "") {
					t.Errorf("notes %q, want %q", notes, tt.note)
				}
				brief, elsewhere := briefOf(t, m, s.ID), "Its git repository is elsewhere: git may not find it, and does not change it. "
				if strings.HasPrefix(tt.source, "repo/part") && !strings.HasSuffix(tt.source, "/mod") {
					elsewhere = "It is a part of a git repository, which is read-only and has its other files elsewhere: `git status .`, `git diff .`."
				}
				if tt.place != "" && !strings.Contains(brief, elsewhere) {
					t.Errorf("the brief %q", brief)
				}
				if tt.place == "" {
					if got := bash("git log --format=%s"); !strings.Contains(got, "fatal: ") {
						t.Errorf("git log: %q", got)
					}
					return
				}
				for command, want := range map[string]string{
					"git log --format=%s -- " + tt.file:                  tt.message,
					"git status --short .":                               "M " + tt.file,
					"git diff " + tt.file:                                "+two",
					"git show --stat HEAD":                               "Date:",
					"git commit --no-verify -am x":                       "Read-only file system",
					"git -c user.name=n -c user.email=e commit -am x":    "Read-only file system",
					"touch " + tt.place + "/x":                           "Read-only file system",
					tt.place + "/hooks/pre-commit; true":                 map[bool]string{true: "Permission denied", false: "No such file"}[!strings.Contains(tt.source, "mod")],
					"git config core.checkStat":                          "minimal",
					"cd /tmp && git status":                              "not a git repository",
					"cd /tmp && git init -q x && git -C x status":        "No commits yet",
					"grep ' " + tt.place + " ' /proc/self/mountinfo":     "ro,nosuid,nodev,noexec,",
					"grep -c ' " + dir + "/secret' /proc/self/mountinfo": "0",
				} {
					if got := bash(command); !strings.Contains(got, want) {
						t.Errorf("%s: %q, want %q", command, got, want)
					}
				}
				if facts := s.Worktree.Target; !strings.HasPrefix(bash("pwd"), facts) {
					t.Errorf("the worktree is not at %s", facts)
				}
			})
		}
	}
	t.Run("a place of the root filesystem", func(t *testing.T) {
		if _, err := os.Stat("/opt"); err != nil {
			t.Skip("needs /opt, which is shown to sandboxes")
		}
		opt, err := os.MkdirTemp("/opt", "toold-git-")
		testrig.Must(t, err, testrig.Doomed(opt))
		defer os.RemoveAll(opt)
		add := exec.Command("sh", "-ec", "cp -r "+dir+"/secret "+opt+"/repo && chown -R 0:0 "+opt+" && cd "+opt+"/repo && git worktree add -q ../linked")
		if out, err := add.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: opt + "/linked"}})
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, "git does not work") || !strings.Contains(notes, "this sandbox has no place for it") {
			t.Errorf("notes %q", notes)
		}
		if _, err := m.End(t.Context(), mounter, s.ID, client.EndOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	for _, mode := range []client.WorktreeMode{client.WorktreeBind, client.WorktreeOverlay} {
		t.Run("a place that a cache hides, "+string(mode), func(t *testing.T) {
			set := *m.settings.Load()
			own := builtin.Cache{Name: "own", Dirs: []builtin.Dir{{Name: "own"}}}
			set.Caches = cache.Settings{{Cache: own, Path: dir, Mode: client.CacheCow, Size: 32 << 20}}
			m.Reload(set)
			s, err := m.Create(t.Context(), mounter, client.SessionCreate{
				Worktree: client.Worktree{Source: dir + "/linked", Mode: mode}, Caches: []client.CacheUse{{Name: "own"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, "this sandbox has no place for it") {
				t.Errorf("notes %q", notes)
			}
			if c := realCall(t, m, s.ID, "bash", object{"command": "echo new | tee made " + dir + "/made && ls " + dir}); c.IsError || c.Output != "new\nmade\n" {
				t.Errorf("%q, %v", c.Output, c.Error)
			}
			if _, err := m.End(t.Context(), mounter, s.ID, client.EndOptions{Force: true}); err != nil {
				t.Error(err)
			}
			_ = os.Remove(dir + "/linked/made")
		})
	}
	status := exec.Command("git", "-c", "safe.directory=*", "-C", dir+"/linked", "status", "--short")
	if out, err := status.CombinedOutput(); err != nil || string(out) != " M part/in/file\n" {
		t.Errorf("the host's repository: %s, %v", out, err)
	}
}
