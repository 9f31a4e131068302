// Package transfer moves worktrees to where they cannot be mounted, and brings back
// what has changed there.
//
// Pack writes a directory as a tar archive and remembers, in a Manifest, what went
// in. Apply takes an archive of how it looks afterwards, which is hostile: its
// sandbox could write anything there. Names are checked; nothing is opened but
// beneath the pinned directory and without following a link; all of it is done with
// the ids that the session has there, so that nothing is read or written that they
// could not.
// What has changed on this side meanwhile is left as it is, and reported.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/thread"
)

// Owner has the ids with which a directory is read and written: as a rule those of
// who owns it.
type Owner struct{ UID, GID uint32 }

// Limits bound a transfer.
type Limits struct {
	Bytes int64 // of all files together
	Files int   // files, directories and links
}

// names bounds the names of all entries together, in bytes: they are held in memory,
// and each may have four kilobytes.
func (l Limits) names() int { return 256 * l.Files }

// DefaultLimits are those of a large repository.
var DefaultLimits = Limits{Bytes: 4 << 30, Files: 200_000}

// ErrTooLarge: there is more than the limits allow.
var ErrTooLarge = errors.New("too large to be copied")

const (
	maxPath  = 4095
	maxDepth = 256
)

// beneath opens what a path names below a directory, and nothing else: no link on
// the way or at its end, no mount.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// openTries is how often a lookup is tried that the kernel gives up because
// something was renamed meanwhile.
const openTries = 64

func openat(dir int, path string, flags int, mode uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: mode, Resolve: beneath}
	for try := 1; ; try++ {
		fd, err := unix.Openat2(dir, path, &how)
		if err == unix.EINTR || err == unix.EAGAIN && try < openTries {
			continue
		}
		return fd, err
	}
}

// stuckTime is how long f of as has to see that its time is over.
const stuckTime = 2 * time.Second

var errStuck = errors.New("its file system does not answer")

// as runs f on a thread that has an owner's ids and that ends with f, with a descriptor
// of dir that is its own. f must start no goroutine that touches files, and look at ctx
// between two of them. When ctx is done and f is not, as leaves it behind: a file
// system may be served by a program of its owner's, that never answers. What f works on
// is then f's alone.
func as(ctx context.Context, o Owner, dir *os.File, f func(dir int) error) error {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fmt.Errorf("keep a descriptor: %w", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := thread.Run(func() (struct{}, error) {
			defer unix.Close(fd)
			if err := (thread.User{UID: o.UID, GID: o.GID}).Assume(); err != nil {
				return struct{}{}, err
			}
			return struct{}{}, f(fd)
		})
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(stuckTime):
		return fmt.Errorf("%w: %w", errStuck, context.Cause(ctx))
	}
}
