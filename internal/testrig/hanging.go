package testrig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Hanging is a directory below which every look-up hangs until the function is called: a
// FUSE file system that nobody serves.
func Hanging(t testing.TB) (dir string, abort func()) {
	t.Helper()
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		Skipf(t, "fuse", "no FUSE here: %v", err)
	}
	abort = func() { device.Close() }
	t.Cleanup(abort)
	return tree(t, "fuse", [][2]string{{"fd", fmt.Sprint(device.Fd())}, {"rootmode", "40000"}, {"user_id", "0"}, {"group_id", "0"}, {"source", "test"}}), abort
}

// Waited reports, as often as it is asked, whether somebody waits for the file system of a Hanging directory.
func Waited(t testing.TB, dir string) func() bool {
	t.Helper()
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &st); err != nil { // which asks nobody
		t.Fatal(err)
	}
	waiting := filepath.Join(tree(t, "fusectl", nil), fmt.Sprint(st.Dev_minor), "waiting")
	return func() bool {
		text, err := os.ReadFile(waiting)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text)) > "1" // the kernel itself waits until the connection is served
	}
}

// SmallTree is a directory of a file system of its own, in memory, with room for so many bytes.
func SmallTree(t testing.TB, bytes int64) (dir string) {
	t.Helper()
	return tree(t, "tmpfs", [][2]string{{"size", fmt.Sprint(bytes)}, {"source", "test"}})
}

// tree makes a file system that is mounted nowhere, so that nothing of it outlives this process.
// The directory is a symbolic link to it.
func tree(t testing.TB, kind string, options [][2]string) string {
	t.Helper()
	fsfd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		Skipf(t, kind, "no %s here: %v", kind, err)
	}
	defer unix.Close(fsfd)
	for _, option := range options {
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
	dir := filepath.Join(base, kind)
	if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), mount), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
