package session

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
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
			if _, err := m.End(t.Context(), mounter, s.ID, EndOptions{Force: true}); err != nil {
				t.Error(err)
			}
		}
	}
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir + "/plain"}})
	if err != nil || strings.Contains(strings.Join(s.Notes, "\n"), "git") {
		t.Errorf("no repository: %+v, %v", s, err)
	}
}
