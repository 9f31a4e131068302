package beneath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// deepest is how far Empty goes down at once: each step holds a descriptor, and
	// whoever made the tree may have made it as deep as the disk allows.
	deepest = 64
	// someNames is how many names of a directory are held at a time.
	someNames = 1024
	// passes is how often a directory is looked through, for what is made meanwhile.
	passes = 4
)

// RemoveAll removes what has that path, with all that others have made in it, as Empty does:
// should the host's directories ever turn out to be mounted there, that is an error and not
// the end of them. Nobody else may use the directory itself, as a place for names.
func RemoveAll(path string) error {
	parent, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := RemoveAt(int(parent.Fd()), filepath.Base(path)); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// RemoveAt is RemoveAll for a name in an open directory.
func RemoveAt(dir int, name string) error {
	r := removal{ctx: context.Background()}
	return r.remove(dir, name, 0)
}

// RemoveMatching removes all that a pattern of filepath.Glob matches but for one path: what
// a program that was killed has left. Nobody else may use the directory.
func RemoveMatching(pattern, but string) error {
	found, err := filepath.Glob(pattern)
	for _, f := range found {
		if f != but {
			err = errors.Join(err, os.RemoveAll(f))
		}
	}
	return err
}

// Empty removes all that is in a directory. It goes over no link and no mount, and holds
// few descriptors however deep the tree is. What cannot be removed keeps it from nothing
// else; its error is that of the first of those. Others may go on making files: it looks
// through each directory a few times, and gives up when ctx ends. There need be no directory.
func Empty(ctx context.Context, dir string) error {
	top, err := os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	r := removal{ctx: ctx, top: top}
	return r.empty(top, 0)
}

// removal is what goes on in Empty.
type removal struct {
	ctx   context.Context //nolint:containedctx // of the one removal that it lives for
	top   *os.File        // what is too deep is moved here, and comes in its turn; nil at first
	moved int             // how many were
}

// empty removes all that a directory has, as far as that can be.
func (r *removal) empty(dir *os.File, depth int) error {
	for n := 0; ; {
		moved := r.moved
		removed, err := r.pass(dir, depth)
		if dir != r.top || r.moved == moved {
			n++ // nothing has come here by our doing
		}
		if r.ctx.Err() != nil || removed == 0 || n == passes {
			return err
		}
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

// pass tries to remove each entry once.
func (r *removal) pass(dir *os.File, depth int) (removed int, first error) {
	for {
		names, err := dir.Readdirnames(someNames)
		for _, name := range names {
			if r.ctx.Err() != nil {
				return removed, context.Cause(r.ctx)
			}
			if err := r.remove(int(dir.Fd()), name, depth+1); err == nil {
				removed++
			} else if first == nil {
				first = fmt.Errorf("%q: %w", name, err)
			}
		}
		if err != nil {
			return removed, cmp.Or(first, notEOF(err))
		}
	}
}

// remove removes one name, or moves what is too deep to the top.
func (r *removal) remove(parent int, name string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err == nil {
		return nil
	}
	if depth > deepest {
		return r.raise(parent, name)
	}
	fd, err := Open(parent, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.EACCES) {
		fd, err = openShut(parent, name)
	}
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	if r.top == nil {
		r.top = dir
	}
	if err := r.empty(dir, depth); err != nil {
		return err
	}
	return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
}

// openShut opens a directory that its owner, who works here, has shut to himself.
func openShut(parent int, name string) (int, error) {
	fd, err := Open(parent, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700); err != nil {
		return -1, err
	}
	return Open(parent, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// raise moves a directory to the top, under a name that nothing has.
func (r *removal) raise(parent int, name string) error {
	for {
		r.moved++
		err := unix.Renameat2(parent, name, int(r.top.Fd()), fmt.Sprintf(".deep-%d", r.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// Usage is what a directory and all below it take on the disk, in bytes, a file with more
// names once. Others may change the tree meanwhile: what they move away may not count.
// It holds one descriptor however deep the tree is.
func Usage(dir string) (bytes int64, err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return 0, err
	}
	u := usage{bytes: st.Blocks * 512}
	if err := u.enter(fd, &st); err != nil {
		return u.bytes, err
	}
	for err == nil && len(u.way) > 0 {
		err = u.step()
	}
	u.dir.Close()
	return u.bytes, err
}

// usage is what goes on in Usage: a walk that goes up by "..", where it checks that it is
// the directory that it came from.
type usage struct {
	bytes int64
	dir   *os.File
	way   []level
}

// level is a directory on the way to where the walk is.
type level struct {
	dev, ino uint64
	left     []string // directories in it that are not counted yet
}

// step counts the next directory below, or goes up.
func (u *usage) step() error {
	here := &u.way[len(u.way)-1]
	if len(here.left) == 0 {
		return u.up()
	}
	name := here.left[len(here.left)-1]
	here.left = here.left[:len(here.left)-1]
	fd, err := Open(int(u.dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil // it is gone, or something else by now
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	return u.enter(fd, &st)
}

// enter makes an open directory the one where the walk is, and counts what is in it.
func (u *usage) enter(fd int, st *unix.Stat_t) error {
	if u.dir != nil {
		u.dir.Close()
	}
	u.dir = os.NewFile(uintptr(fd), "directory")
	l := level{dev: st.Dev, ino: st.Ino}
	for {
		names, err := u.dir.Readdirnames(someNames)
		if len(names) == 0 {
			u.way = append(u.way, l)
			return notEOF(err)
		}
		for _, n := range names {
			st, err := Lstat(fd, n)
			if err != nil {
				continue // it is gone
			}
			u.bytes += st.Blocks * 512
			switch {
			case st.Mode&unix.S_IFMT == unix.S_IFDIR:
				l.left = append(l.left, n)
			case st.Nlink > 1:
				u.bytes -= st.Blocks * 512 * int64(st.Nlink-1) / int64(st.Nlink)
			}
		}
	}
}

// up goes to the directory above.
func (u *usage) up() error {
	u.way = u.way[:len(u.way)-1]
	if len(u.way) == 0 {
		return nil
	}
	fd, err := unix.Openat(int(u.dir.Fd()), "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	above := u.way[len(u.way)-1]
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != above.dev || st.Ino != above.ino {
		unix.Close(fd)
		return errors.Join(err, errors.New("a directory was moved while it was counted"))
	}
	u.dir.Close()
	u.dir = os.NewFile(uintptr(fd), "directory")
	return nil
}

// notEOF is nil for the end of a directory.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
