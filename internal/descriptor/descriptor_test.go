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
