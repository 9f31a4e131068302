package inside

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/toold/toold/internal/sandbox"
)

func TestCheckTargets(t *testing.T) {
	for _, tt := range []struct {
		worktree string
		mounts   []string
		ok       bool
	}{
		{"/workspace", nil, true},
		{"/home/someone/project", []string{"/cache/deep", "/home/someone/project/modules"}, true},
		{"/workspace", []string{"/cache", "/cache/inner"}, true},
		{"/workspace", []string{"/cache", "/cache"}, false},
		{"/workspace/x", []string{"/workspace"}, false},
		{"/workspace", []string{"/workspace"}, false},
		{"/", nil, false},
		{"/etc", nil, false},
		{"/etc/x", nil, false},
		{"/run/toold/control", nil, false},
		{"/home", nil, false},
		{"/home/tool/x", nil, false},
		{"/tmp/x", nil, false},
		{"/var/tmp", nil, false},
		{"/var", nil, false},
		{"relative", nil, false},
		{"/a/../b", nil, false},
		{"/a\x00b", nil, false},
		{"/workspace", []string{"/proc/self"}, false},
	} {
		claim := &sandbox.Claim{Worktree: sandbox.Worktree{Target: tt.worktree}}
		for _, m := range tt.mounts {
			claim.Mounts = append(claim.Mounts, sandbox.Mount{Target: m})
		}
		err := checkTargets(claim)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, sandbox.ErrMountTarget) {
			t.Errorf("%s with %q: %v", tt.worktree, tt.mounts, err)
		}
	}
}

// The copy is another file, read-only, named for what is in it; older ones and
// unfinished ones go.
func TestCopyAgent(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "toolagent"), filepath.Join(dir, "state")
	write := func(content string) string {
		t.Helper()
		if err := os.WriteFile(from, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		path, err := CopyAgent(from, to)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := write("one")
	if err := os.WriteFile(filepath.Join(to, ".agent-left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again := write("one"); again != first {
		t.Errorf("the same agent is %s and %s", first, again)
	}
	second := write("two")
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) != 1 || filepath.Join(to, entries[0].Name()) != second || second == first {
		t.Errorf("the directory has %v, %v; want %s alone", entries, err, second)
	}
	a, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.Stat(second)
	if err != nil || os.SameFile(a, b) || b.Mode().Perm() != 0o555 {
		t.Errorf("the copy has mode %v, %v", b.Mode(), err)
	}
	if _, err := CopyAgent(filepath.Join(dir, "absent"), to); err == nil {
		t.Error("an agent that is not there was copied")
	}
}
