package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// toolctl runs toolctl against the rig's daemon and returns what it printed.
func (r *rig) toolctl(t *testing.T, args ...string) string {
	t.Helper()
	return r.shell(t, `exec toolctl "$@"`, args...)
}

// shell runs a script that finds the rig's daemon and programs; it must exit with 0.
func (r *rig) shell(t *testing.T, script string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{"-eu", "-o", "pipefail", "-c", script, "bash"}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = []string{"PATH=" + programs + ":" + os.Getenv("PATH"), "HOME=" + r.dir, "TOOLD_SOCKET=" + r.socket}
	// Files: a program that stays in the background may keep them open.
	var files [2]*os.File
	for i, name := range []string{"stdout", "stderr"} {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	err := cmd.Run()
	out, rerr := os.ReadFile(files[0].Name())
	if err != nil || rerr != nil {
		said, _ := os.ReadFile(files[1].Name())
		t.Fatalf("%v, %v\n%s\n%s%s", err, rerr, script, out, said)
	}
	return string(out)
}

// newDaemon starts a daemon with everything of its own.
func newDaemon(t *testing.T, flags ...string) *rig {
	t.Helper()
	return newDaemonThrough(t, nil, flags...)
}

// newDaemonThrough has a program start the daemon.
func newDaemonThrough(t *testing.T, through []string, flags ...string) *rig {
	t.Helper()
	if why != "" {
		t.Skip(why)
	}
	r, err := openRig()
	if err != nil {
		t.Fatal(err)
	}
	r.through = through
	t.Cleanup(func() { r.close(t) })
	if err := os.Chmod(r.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := r.start(flags); err != nil {
		t.Fatal(err)
	}
	return r
}

// A copy that was made as documented, while calls are being made, has what was on
// record; a daemon that is given it touches nothing of the one that it was copied from.
func TestBackup(t *testing.T) {
	r := newDaemon(t)
	r.toolctl(t, "session", "create", "--name", "work")
	r.toolctl(t, "call", "work", "bash", `{"command": "echo remembered"}`)
	long := strings.Fields(r.toolctl(t, "call", "work", "bash", `{"command": "seq 100000"}`, "-o", "name"))[0]
	busy := exec.CommandContext(t.Context(), filepath.Join(programs, "toolctl"), "--socket", r.socket, "call", "work", "bash",
		`{"command": "while sleep 0.01; do echo busy; done"}`)
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = busy.Wait() })

	backups := filepath.Join(r.dir, "backups")
	r.shell(t, r.block(t, "docs/operations.md", "backup", "/var/backups", backups))

	other, err := openRig()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.close(t) })
	if err := os.Chmod(other.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	other.shell(t, "B=$(echo "+backups+"/*)\n"+other.block(t, "docs/operations.md", "restore"))
	if err := other.start(nil); err != nil {
		t.Fatal(err)
	}
	if got := other.toolctl(t, "session", "list", "--all"); !strings.Contains(got, "lost") {
		t.Errorf("the session is not lost in the copy:\n%s", got)
	}
	id := strings.Fields(r.toolctl(t, "session", "list", "-o", "name"))[0]
	if got := other.toolctl(t, "session", "logs", id); !strings.Contains(got, "remembered") {
		t.Errorf("the copy does not know the call:\n%s", got)
	}
	want := r.shell(t, `curl -sS --unix-socket "$TOOLD_SOCKET" "http://toold/v1/calls/$1/output"`, long)
	got := other.shell(t, `curl -sS --unix-socket "$TOOLD_SOCKET" "http://toold/v1/calls/$1/output"`, long)
	if got != want || !strings.HasSuffix(want, "\n100000\n") {
		t.Errorf("the whole output has %d bytes, and %d in the copy", len(want), len(got))
	}
	other.toolctl(t, "audit", "verify", filepath.Join(other.dir, "state/audit"))

	// Both work on, each by itself.
	for _, each := range []*rig{r, other} {
		name := "work"
		if each == other {
			each.toolctl(t, "session", "create", "--name", name)
		}
		if got := each.toolctl(t, "call", name, "bash", `{"command": "echo works on"}`); !strings.Contains(got, "works on") {
			t.Errorf("got %q", got)
		}
	}
}
