package testrig

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CallCgroup is a cgroup for the calls of a rig, as a driver would hand it over.
// It skips where this process may not make one.
func CallCgroup(t testing.TB) *os.File {
	t.Helper()
	base := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(base + "/cgroup.procs"); err != nil {
		base = "/sys/fs/cgroup"
	}
	if _, err := os.Stat(base + "/cgroup.procs"); err != nil {
		Skipf(t, "oci", "no cgroup v2: %v", err)
	}
	dir, err := os.MkdirTemp(base, "toold-agent-unit-")
	if err != nil {
		Skipf(t, "oci", "cannot make a cgroup: %v", err)
	}
	Must(t, Doomed(filepath.Base(dir)))
	t.Cleanup(func() {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		subs, _ := filepath.Glob(dir + "/call-*")
		for _, s := range subs {
			t.Errorf("%s is left over", s)
			_ = os.Remove(s)
		}
		for deadline := time.Now().Add(time.Minute); os.Remove(dir) != nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("cannot remove %s", dir)
				return
			}
		}
	})
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		Skipf(t, "oci", "open_tree: %v", err)
	}
	f := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { f.Close() })
	return f
}
