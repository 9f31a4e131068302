package loopdisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
)

// TestLosses: a disk has failed when the kernel has dropped what was written to it, data or names,
// since the host's disk was full, although nobody waited for it; with and without a journal. A disk
// that is only full itself, whatever warnings that gives, or whose data Flush wrote in time, has not.
func TestLosses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	disks := map[string]*os.File{}
	for _, name := range []string{"own-data", "own-names", "own-flushed", "own-full", "own-idle", "d_data", "d_flushed", "d_full"} {
		var err error
		if own, ok := strings.CutPrefix(name, ownPrefix); ok {
			disks[name], err = Unnamed(dir, own, Least)
		} else if err = Create(dir, name, Least); err == nil {
			disks[name], err = Mount(filepath.Join(dir, name))
		}
		if errors.Is(err, ErrNone) {
			testrig.Skipf(t, "loop", "no disks in files: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = disks[name].Close() })
	}
	full := false // a disk whose kernel has written by itself meanwhile has lost something already
	lost := func(err error) bool { return full && (errors.Is(err, unix.EROFS) || errors.Is(err, unix.EIO)) }
	write := func(what string, files map[string]int) {
		t.Helper()
		for name, root := range disks {
			if n := files[name[strings.LastIndexAny(name, "-_")+1:]]; n > 0 {
				if err := put(t, root, what, make([]byte, n)); err != nil && n < int(Least) && !lost(err) {
					t.Fatal(name, err)
				}
			}
		}
	}
	write("before", map[string]int{"data": 1, "names": 1, "flushed": 4 << 20, "full": int(Least)})
	for name, root := range disks {
		for i := 0; strings.HasSuffix(name, "full"); i++ {
			if err := unix.Mkdirat(int(root.Fd()), fmt.Sprint("f", i), 0o700); err != nil {
				break
			}
		}
	}
	if err := Flush(dir); err != nil {
		t.Fatal(err)
	}
	losses := &Losses{Dir: dir}
	look := func(l *Losses) Survey {
		t.Helper()
		s := Look(dir)
		news := l.News(s)
		looked, err := l.Find(s)
		if err != nil || looked != news || l.News(s) {
			t.Errorf("there were news: %v, it looked: %v, %v; then there are: %v", news, looked, err, l.News(s))
		}
		s = Look(dir)
		slices.Sort(s.Failed)
		return s
	}
	if s := look(losses); len(s.Failed) > 0 || s.Unwritten != 0 {
		t.Fatalf("with room: %+v", s)
	}

	neighbour := filepath.Join(dir, "neighbour")
	if err := os.WriteFile(neighbour, make([]byte, 128<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	full = true
	write("lost", map[string]int{"data": 4 << 20})
	for i := range 300 {
		if err := put(t, disks["own-names"], fmt.Sprint(i, strings.Repeat("n", 200)), nil); err != nil && !lost(err) {
			t.Fatal(err)
		}
	}
	_ = Flush(dir) // as the kernel does by itself after half a minute; kernels differ in what they tell
	if err := os.Remove(neighbour); err != nil {
		t.Fatal(err)
	}
	// What reads names is what touches the tables of a disk.
	fd, err := unix.Openat(int(disks["own-names"].Fd()), ".", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	root := os.NewFile(uintptr(fd), ".")
	defer root.Close()
	_, _ = root.Readdirnames(-1)

	want := []string{"d_data", "own-data", "own-names"}
	for _, l := range []*Losses{losses, losses, {Dir: dir}} { // the last one is of the next daemon
		if s := look(l); !slices.Equal(s.Failed, want) {
			t.Errorf("failed are %v, want %v", s.Failed, want)
		}
	}
	if err := put(t, disks["own-data"], "more", nil); !errors.Is(err, unix.EROFS) {
		t.Errorf("a disk that has lost something is written to: %v", err)
	}
	for _, name := range []string{"own-data", "d_data"} {
		if got := get(t, disks[name], "before"); len(got) != 1 {
			t.Errorf("%s has %q", name, got)
		}
	}
}
