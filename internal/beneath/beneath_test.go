package beneath

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/thread"
)

// Who works on a file system that does not answer is left behind, and harms nobody.
func TestStuck(t *testing.T) {
	needs.OpenAt2(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	answer, ended := make(chan struct{}), make(chan error)
	over := errors.New("over")
	cancel(over)
	err = As(ctx, thread.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}, dir, func(fd int) error {
		<-answer
		_, err := Open(fd, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
		ended <- err
		return err
	})
	if !errors.Is(err, ErrStuck) || !errors.Is(err, over) {
		t.Errorf("got %v", err)
	}
	if err := dir.Close(); err != nil {
		t.Error(err)
	}
	close(answer)
	if err := <-ended; err != nil {
		t.Error("its directory was taken away:", err)
	}
}

// An open that does not end is left behind, and is the only one of its place until it does; what
// it gives after all is closed.
func TestOpenWithin(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answer := make(chan *os.File)
	place := t.TempDir()
	slow := func() (*os.File, error) { return <-answer, nil }
	if f, err := OpenWithin(ctx, place, slow); f != nil || !errors.Is(err, ErrStuck) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", f, err)
	}
	open := func() (*os.File, error) { return os.Open(place) }
	if f, err := OpenWithin(t.Context(), place, open); f != nil || !errors.Is(err, ErrStuck) {
		t.Errorf("another one, while it is waited for: %v, %v", f, err)
	}
	other, err := OpenWithin(t.Context(), t.TempDir(), open)
	if err != nil {
		t.Fatal("of another place: ", err)
	}
	answer <- other
	for { // it may not have been told yet
		if f, err := OpenWithin(t.Context(), place, open); err == nil {
			_ = f.Close()
			break
		} else if !errors.Is(err, ErrStuck) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	for other.Fd() != ^uintptr(0) {
		runtime.Gosched()
	}
}
