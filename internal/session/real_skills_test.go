package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/skill"
)

// TestRealSkillScripts: skills with scripts are in the sandbox, read-only, but for those that
// rules deny and those that have none.
func TestRealSkillScripts(t *testing.T) {
	m := openReal(t, newRealHouse(t))
	script := "#!/bin/sh\necho ran \"$(cat \"$(dirname \"$0\")\"/word)\"\n"
	dir := skillDir(t, map[string]string{"release": "x", "secret": "x", "words": "x"},
		map[string]string{"release/bin/run": script, "release/bin/word": "here", "secret/run": script})
	for _, name := range []string{"release/bin/run", "secret/run"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/shadow", filepath.Join(dir, "release/link")); err != nil {
		t.Fatal(err)
	}
	set := *m.settings.Load()
	set.Skills, set.Policy = skill.Load([]string{dir}), rules(t, "permission = { \"*\" = \"allow\", external_directory = \"allow\", skill = { secret = \"deny\" } }")
	m.Reload(set)
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	loaded := realCall(t, m, s.ID, "skill", object{"name": "release"})
	if want := "(It is at /skills/release, read-only, in sandboxes"; loaded.IsError || !strings.Contains(loaded.Output, want) {
		t.Errorf("no %q in\n%s", want, loaded.Output)
	}
	for command, want := range map[string]string{
		"/skills/release/bin/run":           "ran here",
		"echo /skills/*":                    "/skills/release\n",
		"echo x >/skills/release/bin/word":  "Read-only",
		"touch /skills/release/new":         "Read-only",
		"cat /skills/release/link 2>&1; id": "uid=1000",
	} {
		if c := realCall(t, m, s.ID, "bash", object{"command": command}); !strings.Contains(c.Output, want) {
			t.Errorf("%s: got %q, want %q", command, c.Output, want)
		}
	}
	if _, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Target: "/skills/mine"}}); err == nil {
		t.Error("a worktree among the skills was taken")
	}
}
