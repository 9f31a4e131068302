package near

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// locksHere are the locks of this process.
func locksHere(t *testing.T, most int) int {
	t.Helper()
	n, err := locksOf(t.Context(), fmt.Sprintf("/proc/%d", os.Getpid()), most)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLocksOf counts locks of both kinds, of files that stay open.
func TestLocksOf(t *testing.T) {
	const each = 10
	before := locksHere(t, 1000)
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
	if got := locksHere(t, 1000); got != before+2*each {
		t.Errorf("%d locks, want %d", got, before+2*each)
	}
	if got := locksHere(t, before+5); got <= before+5 || got >= before+2*each {
		t.Errorf("%d locks where more than %d are too many", got, before+5)
	}
	_ = files[0].Close()
	if got := locksHere(t, 1000); got != before+each {
		t.Errorf("%d locks after a file was closed, want %d", got, before+each)
	}
	if got, err := locksOf(t.Context(), "/proc/0", 1000); got != 0 || err != nil {
		t.Errorf("nobody has %d locks, %v", got, err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locksOf(late, fmt.Sprintf("/proc/%d", os.Getpid()), 1000); !errors.Is(err, context.Canceled) {
		t.Errorf("too late: %v", err)
	}
}

// TestLocksOfHeadless: a process whose first thread has ended says nothing there of its files.
func TestLocksOfHeadless(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"fdinfo": "", "task/7/fdinfo": "", "task/8/fdinfo/3": "pos:\t0\nlock:\t1: POSIX\nlock:\t2: POSIX\n", "task/9/fdinfo/3": "pos:\t0\nlock:\t1: POSIX\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := locksOf(t.Context(), dir, 100); n != 2 || err != nil {
		t.Errorf("%d locks, %v, want the 2 of the first thread that has files", n, err)
	}
}
