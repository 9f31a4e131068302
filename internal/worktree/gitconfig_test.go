package worktree

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestCoreWorktreeAsGit: of random configurations git reads the same value, or we none.
func TestCoreWorktreeAsGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	pieces := []string{
		"[core]", "[core]\n", "[CORE]\n", "[core \"x\"]\n", "[x \"[core]\"]\n", "[ core ]\n", "[other]\n", "[core] ; x\n", "\t", " ", "\n", "\r\n", "\\\n", "\ufeff",
		"worktree", "WorkTree = ", "worktree=", "\tworktree = ../../../mod\n", "\tworktree = \"../mod ;\"\n", "bare = false\n", "x = y \\\n", "a", "/b", "\"", "\\\"", "\\", ";", "#", "=", "]", "[",
	}
	file := t.TempDir() + "/config"
	r := rand.New(rand.NewPCG(1, 2))
	same := 0
	for range 600 {
		var b strings.Builder
		some := func() {
			for range r.IntN(4) {
				b.WriteString(pieces[r.IntN(len(pieces))])
			}
		}
		some()
		b.WriteString([]string{"", "\n[core]\nworktree = ../a b", "\n[core]\n\tworktree = ../../../mod\n", "\n\tworktree = \"../mod ;\"\n"}[r.IntN(4)])
		some()
		config := []string{"", "[core]\n"}[r.IntN(2)] + b.String()
		if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("git", "config", "-z", "-f", file, "--get", "core.worktree")
		cmd.Env = []string{"HOME=/", "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}
		out, err := cmd.Output()
		if got := coreWorktree(config); err == nil && got != "" {
			if same++; got != strings.TrimSuffix(string(out), "\x00") {
				t.Errorf("%q: %q, git says %q", config, got, out)
			}
		}
	}
	if same < 60 {
		t.Errorf("only %d configurations had a value", same)
	}
}
