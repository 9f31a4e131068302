package mount

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRemoveTreeStopsAtMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := t.TempDir()
	for _, d := range []string{"/a/b", "/victim"} {
		if err := os.MkdirAll(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/victim/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dir+"/victim", dir+"/a/b", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	err := RemoveTree(dir + "/a")
	if unmounted := unix.Unmount(dir+"/a/b", 0); unmounted != nil {
		t.Fatal(unmounted)
	}
	if err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(dir + "/victim/file"); err != nil {
		t.Error("removed what was mounted:", err)
	}
	if err := RemoveTree(dir + "/a"); err != nil {
		t.Error(err)
	}
	if err := RemoveTree(dir + "/a"); err != nil {
		t.Error("second time:", err)
	}
}
