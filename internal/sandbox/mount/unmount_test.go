package mount

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Mounts are found by whatever path leads to them.
func TestUnmountBelow(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"run/a b/c", "run/other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("run", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	left, err := privately(func() ([]*mountinfo.Info, error) {
		for _, at := range []string{"run/a b", "run/other"} {
			if err := unix.Mount("tmpfs", filepath.Join(dir, at), "tmpfs", 0, ""); err != nil {
				return nil, err
			}
		}
		if err := UnmountBelow(filepath.Join(dir, "link/a b")); err != nil {
			return nil, err
		}
		return mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	})
	if want := filepath.Join(dir, "run/other"); err != nil || len(left) != 1 || left[0].Mountpoint != want {
		t.Errorf("left are %v, want %q; %v", left, want, err)
	}
	if err := UnmountBelow(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
}
