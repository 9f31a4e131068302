package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// freeTime bounds freeTmp: a tool may make files as fast as they are removed.
	freeTime = 8 * time.Second
	// freeRewinds is how often a directory is looked through again for what was
	// made meanwhile.
	freeRewinds = 3
)

// freeTmp removes all that is in dirs, as the tool user, on a thread of its own
// that ends with it.
func (s *spawner) freeTmp(ctx context.Context, dirs ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, freeTime,
		fmt.Errorf("not done after %v; something makes files as fast as they are removed, end it first", freeTime))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread's ids are not the agent's
		if s.uid >= 0 {
			if err := setEffective(s.uid, s.gid); err != nil {
				done <- err
				return
			}
		}
		var errs []error
		for _, dir := range dirs {
			if dir != "" {
				errs = append(errs, emptyDir(ctx, dir))
			}
		}
		done <- errors.Join(errs...)
	}()
	return <-done
}

// maxDepth bounds how deep a tree is followed; what is deeper is reached by
// moving it up.
const maxDepth = 64

func emptyDir(ctx context.Context, path string) error {
	fd, err := openDirAt(unix.AT_FDCWD, path, unix.RESOLVE_NO_MAGICLINKS)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	top := os.NewFile(uintptr(fd), path)
	defer top.Close()
	return (&sweep{top: top}).empty(ctx, top, 0)
}

func openDirAt(dirfd int, name string, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: resolve}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(dirfd, name, &how)
		if (err == unix.EINTR || err == unix.EAGAIN) && try < 100 {
			continue
		}
		return fd, err
	}
}

// sweep empties the directory top.
type sweep struct {
	top   *os.File
	moved int // directories that were too deep and are now in top
}

// empty removes all entries of dir. Its own errors are those of the first entry
// that could not be removed in the last pass; the others are tried all the same.
func (s *sweep) empty(ctx context.Context, dir *os.File, depth int) error {
	for rewinds := 0; ; {
		moved := s.moved
		removed, err := s.pass(ctx, dir, depth)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if dir != s.top || s.moved == moved {
			// Nothing has come here by our doing.
			rewinds++
		}
		if removed == 0 || rewinds > freeRewinds {
			return err
		}
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

// pass tries to remove each entry once.
func (s *sweep) pass(ctx context.Context, dir *os.File, depth int) (removed int, first error) {
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if ctx.Err() != nil {
				return removed, context.Cause(ctx)
			}
			if err := s.remove(ctx, dir, name, depth); err == nil {
				removed++
			} else if first == nil {
				first = err
			}
		}
		if err == io.EOF {
			return removed, first
		}
		if err != nil {
			return removed, errors.Join(first, err)
		}
	}
}

func (s *sweep) remove(ctx context.Context, dir *os.File, name string, depth int) error {
	dirfd := int(dir.Fd())
	err := unix.Unlinkat(dirfd, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	if err := unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR); err == nil {
		return nil
	}
	if depth >= maxDepth {
		// A name that is not in use: the directory's own inode is unique here.
		var st unix.Stat_t
		if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		s.moved++
		return unix.Renameat(dirfd, name, int(s.top.Fd()), fmt.Sprintf(".toold-free-%d", st.Ino))
	}
	sub, err := openDirAt(dirfd, name, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
	if errors.Is(err, unix.EACCES) {
		_ = unix.Fchmodat(dirfd, name, 0o700, 0) // it is the tool user's own
		sub, err = openDirAt(dirfd, name, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
	}
	if err != nil {
		return fmt.Errorf("open %q: %w", name, err)
	}
	f := os.NewFile(uintptr(sub), name)
	err = s.empty(ctx, f, depth+1)
	f.Close()
	if err != nil {
		return err
	}
	return unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR)
}
