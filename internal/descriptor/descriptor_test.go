package descriptor_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/descriptor"
)

// What the function says is passed on; a closed file is one's own error, and nothing is called.
func TestUse(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	peek := func(fd int) (int, error) { return unix.Read(fd, make([]byte, 1)) }
	if _, err := descriptor.Use(r, peek); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("an empty pipe: %v; it blocks, or its error is lost", err)
	}
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if n, err := descriptor.Use(r, peek); n != 1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	r.Close()
	called := false
	if _, err := descriptor.Use(r, func(int) (bool, error) { called = true; return true, nil }); err == nil || called {
		t.Errorf("a closed file: %v, called %v", err, called)
	}
}

// TestShare: a third of the limit of this process as it is now, and never nothing.
func TestShare(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
			t.Error(err)
		}
	})
	for limit, want := range map[uint64]int{0: 1, 2: 1, 90: 30, 100: 33} {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: own.Max}); err != nil {
			t.Fatal(err)
		}
		if got := descriptor.Share(); got != want {
			t.Errorf("of %d: got %d, want %d", limit, got, want)
		}
	}
}
