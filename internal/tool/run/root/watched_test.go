package root

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
)

// watched gives the names that have changed in a directory while f ran, as a program that watches it sees them.
func watched(t *testing.T, dir string, f func()) (names []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	testrig.Must(t, err)
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO)
	testrig.Must(t, err)
	f()
	buf := make([]byte, 64<<10)
	n, err := unix.Read(fd, buf)
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	testrig.Must(t, err)
	for at := 0; at < n; {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
		at += unix.SizeofInotifyEvent
		name := strings.TrimRight(string(buf[at:at+int(e.Len)]), "\x00")
		if at += int(e.Len); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// TestWatchersSee: who watches a directory sees of a file that is made there no name but its own, where the file system has files
// without names; of one that is replaced a name of ours for a moment, as docs/tools.md says.
func TestWatchersSee(t *testing.T) {
	t.Parallel()
	r, dir := newRoot(t)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Skip("this file system has no files without names: ", err)
	}
	testrig.Must(t, unix.Close(fd))
	write := func(path, text string) {
		p, err := r.Begin(t.Context(), path, BeginOptions{})
		testrig.Must(t, err)
		defer p.Close()
		_, err = p.ReadOld(t.Context(), 1<<20)
		testrig.Must(t, err)
		_, err = p.Commit(t.Context(), []byte(text), CommitOptions{Durable: true})
		testrig.Must(t, err)
	}
	ours := func(name string) bool { return strings.HasPrefix(name, tempPrefix) }
	if names := watched(t, dir, func() { write("/new", "one") }); !slices.Equal(names, []string{"new"}) {
		t.Errorf("a file that is made: %q", names)
	}
	names := watched(t, dir, func() { write("/new", "two") })
	if got := slices.DeleteFunc(slices.Clone(names), ours); !slices.Equal(got, []string{"new"}) || len(names) > 2 {
		t.Errorf("a file that is replaced: %q", names)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("left over: %v, %v", all, err)
	}
}
