package near

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLocksOf counts locks of both kinds, of files that stay open.
func TestLocksOf(t *testing.T) {
	t.Parallel()
	const each = 10
	dir := fmt.Sprintf("/proc/%d/fdinfo", os.Getpid())
	before := locksOf(dir, 1000)
	var files []*os.File
	for _, how := range []int{unix.F_SETLK, unix.F_OFD_SETLK} {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
		for i := range each {
			l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * i), Len: 1}
			if err := unix.FcntlFlock(f.Fd(), how, &l); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := locksOf(dir, 1000); got != before+2*each {
		t.Errorf("%d locks, want %d", got, before+2*each)
	}
	if got := locksOf(dir, before+5); got <= before+5 || got >= before+2*each {
		t.Errorf("%d locks where more than %d are too many", got, before+5)
	}
	_ = files[0].Close()
	if got := locksOf(dir, 1000); got != before+each {
		t.Errorf("%d locks after a file was closed, want %d", got, before+each)
	}
	if got := locksOf("/proc/0/fdinfo", 1000); got != 0 {
		t.Errorf("nobody has %d locks", got)
	}
}
