package beneath

import (
	"context"
	"errors"
	"os"
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
