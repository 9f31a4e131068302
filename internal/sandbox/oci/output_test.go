package oci_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
)

// lease takes a lease on a file inside, made if need be and possible.
func lease(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err == unix.EROFS {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return "open: " + err.Error()
	}
	defer unix.Close(fd)
	_, _, errno := unix.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	return outcome(errno)
}

// A lease on an output would hold up the daemon that opens it for writing.
func TestOutputTakesNoLease(t *testing.T) {
	f := newFixture(t)
	out := t.TempDir()
	if err := os.Chmod(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, "call"), []byte("output"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := f.Spec()
	spec.OutputDir = out
	l := f.create(spec)
	got := map[string]string{}
	text := l.out("cat " + sandbox.OutputDir + "/call >/dev/null && " + sandbox.AgentPath + " probe leases")
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	if got["output"] != "EACCES" {
		t.Errorf("lease on an output: %s, want EACCES", got["output"])
	}
	if got["own"] != "ok" {
		t.Errorf("control: lease on a file of the tool's own: %s", got["own"])
	}
}

// A creation gives back every descriptor but those of the sandbox itself.
func TestNoDescriptorsKept(t *testing.T) {
	f := newFixture(t)
	churn := func() {
		t.Helper()
		spec := f.Spec()
		spec.OutputDir = t.TempDir()
		spec.Worktree = sandbox.Worktree{Source: open(t, t.TempDir()), Mode: "bind", Target: sandbox.Workspace, UID: 4321, GID: 4321}
		sb, err := f.driver.Create(f.Ctx(), spec)
		if err != nil {
			t.Fatal(err)
		}
		sb.Close()
		if err := f.driver.Destroy(f.Ctx(), sb.Record()); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		churn()
	}
	if n := userNamespaces(t); n != 0 {
		t.Errorf("%d descriptors of user namespaces are left", n)
	}
}

func userNamespaces(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && (strings.HasPrefix(to, "user:[") || strings.HasSuffix(to, "/ns/user")) {
			n++
		}
	}
	return n
}
