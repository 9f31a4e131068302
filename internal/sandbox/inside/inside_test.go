package inside

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
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
		path, err := copyAgent(from, to)
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
	if _, err := copyAgent(filepath.Join(dir, "absent"), to); err == nil {
		t.Error("an agent that is not there was copied")
	}
}

// TestProgramsComeBack: whatever of the copies is removed or cut off is there again for the next
// sandbox, in the same places; files of another version are not taken.
func TestProgramsComeBack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the copies are of a daemon of root's: nobody else can change them, nor remove their directory")
	}
	for name, hurt := range map[string]func(p *Programs) error{
		"agent removed":          func(p *Programs) error { return os.Remove(p.Agent) },
		"agent cut off":          func(p *Programs) error { return os.Truncate(p.Agent, 1) },
		"ripgrep removed":        func(p *Programs) error { return os.RemoveAll(p.Ripgrep) },
		"a file of it removed":   func(p *Programs) error { return os.Remove(filepath.Join(p.Ripgrep, "rg")) },
		"a file of it cut off":   func(p *Programs) error { return os.Truncate(filepath.Join(p.Ripgrep, "rg"), 0) },
		"the directory removed":  func(p *Programs) error { return os.RemoveAll(p.dir) },
		"a link in rg's place":   func(p *Programs) error { return relink(filepath.Join(p.Ripgrep, "rg")) },
		"a link in agent's":      func(p *Programs) error { return relink(p.Agent) },
		"all of it but the name": func(p *Programs) error { return errors.Join(os.RemoveAll(p.Ripgrep), os.Mkdir(p.Ripgrep, 0o555)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			agent, ripgrep := filepath.Join(dir, "toolagent"), filepath.Join(dir, "ripgrep")
			put := func(path, text string) {
				t.Helper()
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			put(agent, "the agent")
			put(filepath.Join(ripgrep, "rg"), "ripgrep")
			put(filepath.Join(ripgrep, "version"), "15")
			p, err := CopyPrograms(agent, ripgrep, filepath.Join(dir, "state"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := CopyPrograms(agent, ripgrep, filepath.Join(dir, "state")); err != nil {
				t.Fatal(err)
			}
			for range 2 { // also what was copied again
				if err := errors.Join(hurt(p), p.Ready()); err != nil {
					t.Fatal(err)
				}
				for path, want := range map[string]string{p.Agent: "the agent", p.Ripgrep + "/rg": "ripgrep", p.Ripgrep + "/version": "15"} {
					fi, err := os.Lstat(path)
					text, readErr := os.ReadFile(path)
					if err != nil || readErr != nil || string(text) != want || fi.Mode() != 0o555 {
						t.Errorf("%s is %q, %v, %v", path, text, err, readErr)
					}
				}
			}
			put(agent, "another")
			put(filepath.Join(ripgrep, "rg"), "another")
			if err := p.Ready(); err != nil {
				t.Errorf("the copies are there, and it says %v", err)
			}
			if err := hurt(p); err != nil {
				t.Fatal(err)
			}
			if err := p.Ready(); err == nil || !strings.Contains(err.Error(), "restart toold") {
				t.Errorf("with another version beside the daemon: %v", err)
			}
		})
	}
}

// relink puts a link in a file's place.
func relink(path string) error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) }

// TestCopiesStay: what is there is not written again, which a full disk would not take.
func TestCopiesStay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the copies are of a daemon of root's: nobody else can change them, nor remove their directory")
	}
	dir := t.TempDir()
	agent, ripgrep, state := filepath.Join(dir, "toolagent"), filepath.Join(dir, "ripgrep"), filepath.Join(dir, "state")
	testrig.Must(t, os.Mkdir(ripgrep, 0o755), os.WriteFile(agent, []byte("the agent"), 0o755),
		os.WriteFile(filepath.Join(dir, "rg"), []byte("ripgrep"), 0o755), os.Symlink("../rg", filepath.Join(ripgrep, "rg")))
	inode := func() (all [2]uint64) {
		p, err := CopyPrograms(agent, ripgrep, state)
		testrig.Must(t, err)
		for i, path := range []string{p.Agent, filepath.Join(p.Ripgrep, "rg")} {
			var st unix.Stat_t
			testrig.Must(t, unix.Stat(path, &st))
			all[i] = st.Ino
		}
		return all
	}
	first := inode()
	if again := inode(); again != first {
		t.Errorf("copied again: %v, %v", first, again)
	}
	p, err := CopyPrograms(agent, ripgrep, state)
	testrig.Must(t, err, os.Chmod(p.Agent, 0o755), os.WriteFile(p.Agent, []byte("no agent!"), 0o755))
	if again := inode(); again[0] == first[0] {
		t.Error("a copy that somebody changed is taken")
	}
}

// TestCopyRuns: a copy can be run at once, while this process starts others.
func TestCopyRuns(t *testing.T) {
	t.Parallel()
	from, err := exec.LookPath("true")
	testrig.Must(t, err)
	dir := t.TempDir()
	var starters sync.WaitGroup
	for n := range 8 {
		starters.Go(func() {
			for i := range 40 {
				to := filepath.Join(dir, fmt.Sprint(n, "-", i))
				testrig.Must(t, writeInto(to, from), exec.Command(to).Run())
			}
		})
	}
	starters.Wait()
}
