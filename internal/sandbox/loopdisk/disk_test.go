package loopdisk

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/testrig"
)

// disk makes one in a directory of the test's.
func disk(t *testing.T) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	dir = t.TempDir()
	err := Create(dir, "one", Least)
	if errors.Is(err, ErrNone) {
		testrig.Skipf(t, "loop", "no disks in files: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mounted(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := Mount(path)
	if errors.Is(err, ErrNone) {
		testrig.Skipf(t, "loop", "no disks in files: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// put writes a file to a mount by its descriptor.
func put(t *testing.T, root *os.File, name string, data []byte) error {
	t.Helper()
	fd, err := unix.Openat(int(root.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func get(t *testing.T, root *os.File, name string) []byte {
	t.Helper()
	fd, err := unix.Openat(int(root.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var all bytes.Buffer
	if _, err := all.ReadFrom(f); err != nil {
		t.Fatal(err)
	}
	return all.Bytes()
}

// flush waits until all is on the disk.
func flush(t *testing.T, root *os.File) {
	t.Helper()
	fd, err := unix.Openat(int(root.Fd()), ".", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		t.Fatal(err)
	}
}

// devices are those that the files of a directory are attached to.
func devices(t *testing.T, dir string) (all []string) {
	t.Helper()
	names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && strings.HasPrefix(string(b), dir+"/") {
			all = append(all, n)
		}
	}
	return all
}

// TestMountTwice: a file is on one device, however often it is mounted, and on none when
// its last mount is gone, with what was written in it.
func TestMountTwice(t *testing.T) {
	dir := disk(t)
	path := filepath.Join(dir, "one")
	a := mounted(t, path)
	if err := put(t, a, "x", []byte("1")); err != nil {
		t.Fatal(err)
	}
	b := mounted(t, path)
	if got := get(t, b, "x"); string(got) != "1" {
		t.Errorf("the second mount has %q", got)
	}
	if d := devices(t, dir); len(d) != 1 {
		t.Errorf("two mounts are on %v", d)
	}
	_ = a.Close()
	if err := put(t, b, "y", []byte("2")); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	if d := devices(t, dir); len(d) != 0 {
		t.Errorf("no mount is left, and %v are", d)
	}
	c := mounted(t, path)
	if got := get(t, c, "y"); string(got) != "2" {
		t.Errorf("mounted again it has %q", got)
	}
}

// TestOtherOfThatName: the device of another file with the same name is not taken for its own.
func TestOtherOfThatName(t *testing.T) {
	one, other := disk(t), disk(t)
	a := mounted(t, filepath.Join(one, "one"))
	b := mounted(t, filepath.Join(other, "one"))
	if err := put(t, a, "x", nil); err != nil {
		t.Fatal(err)
	}
	if err := unix.Faccessat(int(b.Fd()), "x", 0, 0); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the file of another disk: %v", err)
	}
}

// TestPowerCut: what was on the disk when the power went is a whole file system afterwards.
func TestPowerCut(t *testing.T) {
	dir := disk(t)
	a := mounted(t, filepath.Join(dir, "one"))
	for i := range 500 {
		if err := put(t, a, "f"+strconv.Itoa(i), bytes.Repeat([]byte{byte(i)}, i)); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			_ = unix.Unlinkat(int(a.Fd()), "f"+strconv.Itoa(i/2), 0)
		}
	}
	flush(t, a)
	from, err := os.Open(filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	after, err := os.Create(filepath.Join(dir, "after"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(copySparse(after, from), after.Close()); err != nil {
		t.Fatal(err)
	}
	b := mounted(t, after.Name())
	for i := 400; i < 500; i++ {
		if got := get(t, b, "f"+strconv.Itoa(i)); len(got) != i {
			t.Errorf("f%d has %d bytes", i, len(got))
		}
	}
	_ = b.Close()
	if out, err := exec.Command("/usr/sbin/e2fsck", "-fn", after.Name()).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestBounds: bytes and files have an end, and what is removed goes back to the host.
func TestBounds(t *testing.T) {
	dir := disk(t)
	root := mounted(t, filepath.Join(dir, "one"))
	if err := put(t, root, "x", make([]byte, Least)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("as much as the disk: %v", err)
	}
	flush(t, root)
	if s := Look(dir); len(s.Failed) > 0 {
		t.Errorf("it is full, and has failed: %v", s.Failed)
	}
	if err := unix.Unlinkat(int(root.Fd()), "x", 0); err != nil {
		t.Fatal(err)
	}
	flush(t, root)
	for used := int64(Least); used > int64(Least/2); time.Sleep(time.Millisecond) { // the kernel takes its time
		fi, err := os.Stat(filepath.Join(dir, "one"))
		if err != nil {
			t.Fatal(err)
		}
		used = fi.Sys().(*syscall.Stat_t).Blocks * 512
	}
	for i := 0; ; i++ {
		err := put(t, root, "f"+strconv.Itoa(i), nil)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		if err != nil || i > int(Least)/(4<<10) {
			t.Fatalf("file %d: %v", i, err)
		}
	}
}

// TestHostFull: a disk that could not write, since the host's was full, has failed until it is
// mounted anew, when there is room; until then what is there can be read.
func TestHostFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := Create(dir, "d_one", Least); errors.Is(err, ErrNone) {
		testrig.Skipf(t, "loop", "no disks in files: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	path, neighbour := filepath.Join(dir, "d_one"), filepath.Join(dir, "neighbour")
	root := mounted(t, path)
	if err := put(t, root, "before", []byte("1")); err != nil {
		t.Fatal(err)
	}
	flush(t, root)
	if s := Look(dir); len(s.Failed) > 0 {
		t.Errorf("failed with room: %v", s.Failed)
	}
	if err := os.WriteFile(neighbour, make([]byte, 24<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := put(t, root, "lost", make([]byte, 4<<20)); err != nil {
		t.Fatal(err)
	}
	_ = beneath.Sync(int(root.Fd())) // kernels differ in what they tell
	_ = put(t, root, "more", nil)    // which finds that the journal has ended
	s := Look(dir)
	if len(s.Failed) != 1 || !s.Has("ses_1", "d_one") || s.Has("ses_1") {
		t.Errorf("failed are %v", s.Failed)
	}
	again := mounted(t, path)
	if got := get(t, again, "before"); string(got) != "1" {
		t.Errorf("what was there is %q", got)
	}
	_ = errors.Join(again.Close(), root.Close(), os.Remove(neighbour))
	root = mounted(t, path)
	if s := Look(dir); len(s.Failed) > 0 || string(get(t, root, "before")) != "1" {
		t.Errorf("mounted anew with room: %v", s.Failed)
	}
	if err := put(t, root, "after", nil); err != nil {
		t.Error(err)
	}
	_ = root.Close()
}
