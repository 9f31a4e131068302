package loopdisk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox/mount"
)

// eachKernel runs a test as this kernel does it, and as kernels before 6.15 do.
func eachKernel(t *testing.T, f func(t *testing.T)) {
	t.Run("as this kernel", f)
	t.Run("before 6.15", func(t *testing.T) {
		defer mount.LikeBefore615()()
		f(t)
	})
}

// TestClones: a directory of a disk, which is mounted nowhere, is mounted with other ids, without
// writing, and below and above others in an overlay; all see the same files, and the device goes
// with the last of them.
func TestClones(t *testing.T) {
	eachKernel(t, func(t *testing.T) {
		dir := disk(t)
		before, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		root := mounted(t, filepath.Join(dir, "one"))
		open := func(path string) *os.File {
			t.Helper()
			f, err := beneath.OpenFile(root, path, unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			return f
		}
		clone := func(of *os.File, attributes uint64, userns *os.File) *os.File {
			t.Helper()
			f, err := mount.Detach(of, attributes, userns)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			return f
		}
		odd := "it's\n\\012 (deleted)"
		for _, d := range []string{"l_1", "l_1/root", "l_2", odd} {
			if err := unix.Mkdirat(int(root.Fd()), d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		lower := clone(open("l_1/root"), unix.MOUNT_ATTR_RDONLY, nil)
		if err := put(t, root, "l_1/root/x", []byte("1")); err != nil {
			t.Fatal(err)
		}
		if got := get(t, lower, "x"); string(got) != "1" {
			t.Errorf("the clone has %q", got)
		}
		if err := put(t, lower, "y", nil); !errors.Is(err, unix.EROFS) {
			t.Errorf("wrote to a read-only clone: %v", err)
		}
		if err := put(t, clone(open(odd), 0, nil), "z", nil); err != nil {
			t.Error(err)
		}
		ids := []mount.Range{{FS: 0, Host: 4321, Size: 1}}
		userns, err := mount.UserNamespace(ids, ids)
		if err != nil {
			t.Fatal(err)
		}
		defer userns.Close()
		var st unix.Stat_t
		if err := unix.Fstatat(int(clone(open("l_1/root"), 0, userns).Fd()), "x", &st, 0); err != nil || st.Uid != 4321 {
			t.Errorf("with an id map it is %d's, %v", st.Uid, err)
		}
		upper := clone(open("l_2"), 0, nil)
		if err := mount.PrepareUpper(upper, 0, 0, 0o755); err != nil {
			t.Fatal(err)
		}
		over, err := mount.Overlay(dir, []*os.File{lower}, upper, mount.RenamesRedirect)
		if err != nil {
			t.Fatal(err)
		}
		defer over.Close()
		if err := put(t, over, "new", []byte("2")); err != nil {
			t.Fatal(err)
		}
		if got := get(t, root, "l_2/root/new"); string(got) != "2" || string(get(t, over, "x")) != "1" {
			t.Errorf("the upper layer has %q", got)
		}
		if after, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(after, []byte(dir)) && !bytes.Contains(before, []byte(dir)) {
			t.Errorf("the host sees a mount: %v", err)
		}
	})
}

// TestClonesOnlyDisks: a mount that is attached nowhere and is of no disk is refused as the
// kernel does, and so is a directory that was removed.
func TestClonesOnlyDisks(t *testing.T) {
	dir := disk(t)
	defer mount.LikeBefore615()()
	memory, err := mount.New("tmpfs", "tmpfs", nil, unix.MOUNT_ATTR_NODEV)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	root := mounted(t, filepath.Join(dir, "one"))
	if err := unix.Mkdirat(int(root.Fd()), "gone", 0o755); err != nil {
		t.Fatal(err)
	}
	gone, err := beneath.OpenFile(root, "gone", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	if err := unix.Unlinkat(int(root.Fd()), "gone", unix.AT_REMOVEDIR); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkdirat(int(root.Fd()), "gone (deleted)", 0o755); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]*os.File{"memory": memory, "a removed directory": gone} {
		if m, err := mount.Detach(f, 0, nil); !errors.Is(err, unix.EINVAL) {
			t.Errorf("clone of %s: %v, %v", what, m, err)
		}
	}
}
