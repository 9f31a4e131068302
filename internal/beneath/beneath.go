// Package beneath works on hostile trees from outside: nothing is opened but beneath a
// pinned directory, over no link and no mount, on a thread that has the ids of the tree's
// owner and nothing else.
package beneath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/thread"
)

// MaxPath is how many bytes a path below a directory may have.
const MaxPath = 4095

// Kind is what a file is.
type Kind string

// The kinds that have a content here; what is none of them has the kind "".
const (
	File Kind = "file"
	Dir  Kind = "dir"
	Link Kind = "link"
)

// KindOf is the kind of what has that mode.
func KindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Link
	}
	return ""
}

// resolve lets a path name what is below a directory, and nothing else: no link on the
// way or at its end, no mount.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// openTries is how often a lookup is tried that the kernel gives up because
// something was renamed meanwhile.
const openTries = 64

// Open opens what a path names below a directory. A link at its end is opened with O_PATH
// and O_NOFOLLOW alone. The descriptor is closed on exec.
func Open(dir int, path string, flags int, mode uint32) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(mode), Resolve: resolve}
	for try := 1; ; try++ {
		fd, err := unix.Openat2(dir, path, &how)
		if err == unix.EINTR || err == unix.EAGAIN && try < openTries {
			continue
		}
		return fd, err
	}
}

// OpenLong is Open without a bound for the path, which the kernel is then given in parts.
func OpenLong(dir int, path string, flags int) (int, error) {
	at := dir
	leave := func() {
		if at != dir {
			_ = unix.Close(at)
		}
	}
	for len(path) > MaxPath {
		n := strings.LastIndexByte(path[:MaxPath], '/')
		if n <= 0 {
			leave()
			return -1, unix.ENAMETOOLONG
		}
		next, err := Open(at, path[:n], unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		leave()
		if err != nil {
			return -1, err
		}
		at, path = next, path[n+1:]
	}
	fd, err := Open(at, path, flags, 0)
	leave()
	return fd, err
}

// OpenFile is Open for a file, whose errors name the path.
func OpenFile(dir *os.File, path string, flags int, mode uint32) (*os.File, error) {
	fd, err := Open(int(dir.Fd()), path, flags, mode)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Handle gives the handle of an open directory its type and its bytes, which no other
// file of its file system ever has; nil where that has none. O_PATH will do.
func Handle(fd int) ([]byte, error) {
	h, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOVERFLOW):
		return nil, nil
	case err != nil:
		return nil, os.NewSyscallError("name_to_handle_at", err)
	case h.Type() <= 0 || h.Type() > 0xff:
		return nil, nil
	}
	return append([]byte{byte(h.Type())}, h.Bytes()...), nil
}

// Lstat is of what a directory has by a name, a single one.
func Lstat(dir int, name string) (st unix.Stat_t, err error) {
	return st, unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
}

// Sync waits until all that was written to the file system of a directory is on its disk.
// O_PATH will do for the directory.
func Sync(dir int) error {
	fd, err := Open(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		return fmt.Errorf("syncfs: %w", err)
	}
	return nil
}

// Extent is where the next bytes of a file lie between two offsets; both are to where the rest is
// a hole. A file system that knows of none has all in one. It moves the file's own offset.
func Extent(fd int, from, to int64) (begin, end int64) {
	begin, err := unix.Seek(fd, from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return to, to
	}
	if err == nil {
		end, err = unix.Seek(fd, begin, unix.SEEK_HOLE)
	}
	if err != nil {
		return from, to
	}
	return min(begin, to), min(end, to)
}

// stuckTime is how long f of As has to see that its time is over.
const stuckTime = 2 * time.Second

// ErrStuck: the file system of the directory does not answer.
var ErrStuck = errors.New("its file system does not answer")

// As runs f on a thread that has an owner's ids and that ends with f, with a descriptor
// of dir that is its own. f must start no goroutine that touches files, and look at ctx
// between two of them. When ctx is done and f is not, As leaves it behind, with ErrStuck:
// a file system may be served by a program of its owner's, that never answers. What f
// works on is then f's alone.
func As(ctx context.Context, owner thread.User, dir *os.File, f func(dir int) error) error {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fmt.Errorf("keep a descriptor: %w", err)
	}
	done := make(chan error, 1)
	go func() {
		err := owner.Do(func() error { return f(fd) })
		_ = unix.Close(fd)
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
		return fmt.Errorf("%w: %w", ErrStuck, context.Cause(ctx))
	}
}

// opening has the places of which an open was left behind by OpenWithin.
var opening sync.Map

// OpenWithin opens what is at a place, its absolute path, by open, until ctx ends; then it gives
// ErrStuck. The goroutine of such an open is left behind, and closes the file if the kernel gives
// it one after all. Until then others who ask for the same place fail at once: a file system that
// hangs takes few threads.
func OpenWithin(ctx context.Context, place string, open func() (*os.File, error)) (*os.File, error) {
	if _, stuck := opening.Load(place); stuck {
		return nil, fmt.Errorf("open %s: %w: it is still waited for", place, ErrStuck)
	}
	type opened struct {
		f   *os.File
		err error
	}
	done, tired := make(chan opened), make(chan struct{})
	go func() {
		f, err := open()
		select {
		case done <- opened{f, err}:
		case <-tired:
			opening.Delete(place)
			if f != nil {
				_ = f.Close() // nobody waits for it
			}
		}
	}()
	select {
	case o := <-done:
		return o.f, o.err
	case <-ctx.Done():
		opening.Store(place, struct{}{})
		close(tired)
		return nil, fmt.Errorf("open %s: %w: %w", place, ErrStuck, context.Cause(ctx))
	}
}
