package testrig

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Hanging gives a directory below which every look-up hangs until the function is
// called: a FUSE file system that nobody serves, mounted nowhere, so that nothing
// of it outlives this process.
func Hanging(t testing.TB) (dir string, abort func()) {
	t.Helper()
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no FUSE here: ", err)
	}
	abort = func() { device.Close() }
	t.Cleanup(abort)
	fsfd, err := unix.Fsopen("fuse", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Skip("no FUSE here: ", err)
	}
	defer unix.Close(fsfd)
	for _, option := range [][2]string{
		{"source", "test"}, {"fd", fmt.Sprint(device.Fd())}, {"rootmode", "40000"}, {"user_id", "0"}, {"group_id", "0"},
	} {
		if err := unix.FsconfigSetString(fsfd, option[0], option[1]); err != nil {
			t.Fatalf("%s: %v", option[0], err)
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		t.Fatal(err)
	}
	mount, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(mount) })
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(base, "hanging")
	if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", mount), dir); err != nil {
		t.Fatal(err)
	}
	return dir, abort
}
