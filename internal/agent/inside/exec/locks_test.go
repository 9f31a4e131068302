package exec

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLocksBehind: a lock is named wherever git takes one, from wherever the command ran.
func TestLocksBehind(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for name, text := range map[string]string{
		"r/.git/HEAD": "", "r/.git/index.lock": "", "r/.git/objects/pack.lock": "", "r/.git/refs/heads/a/b.lock": "",
		"r/.git/worktrees/w/index.lock": "", "r/.git/worktrees/w/HEAD": "", "r/.git/worktrees/w/commondir": "../..\n",
		"r/.git/modules/v/m/HEAD": "", "r/.git/modules/v/m/index.lock": "", "r/v/m/.git": "gitdir: ../../.git/modules/v/m\n", "r/sub/f": "",
		"w/.git": "gitdir: " + base + "/r/.git/worktrees/w\n", "astray/.git": "gitdir: ../etc\n", "etc/passwd.lock": "",
		"huge/.git": "gitdir: " + strings.Repeat("x", 10000),
	} {
		file := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"r/.git/index.lock", "r/.git/modules/v/m/index.lock", "r/.git/refs/heads/a/b.lock", "r/.git/worktrees/w/index.lock"}
	for dir, want := range map[string][]string{
		"r": all, "r/sub": all, "w": all, "r/v/m": {"r/.git/modules/v/m/index.lock"}, "astray": nil, "huge": nil, "etc": nil,
	} {
		var got []string
		for _, lock := range locksBehind(filepath.Join(base, dir), time.Now()) {
			got = append(got, strings.TrimPrefix(lock, base+"/"))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
	if got := locksBehind(filepath.Join(base, "r"), time.Now().Add(time.Hour)); len(got) > 0 {
		t.Errorf("of another call: %q", got)
	}
}
