package root

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// step is what becomes of one file in a transaction.
type step struct {
	FileChange
	p          *Replacement
	t          *temp  // the new content; nil where the file is removed
	fresh, old string // names beside the file: of the new content, and of what was there
	notKept    []string
	names      int // of the file that is replaced or moved, if several
	// alike: the content stays, so that of two files which change places nobody could say
	// which is the new one.
	alike bool

	placed bool   // the change is to be seen
	kept   string // the name that what was there has now; "" = none
}

// fill writes the new content, with what it takes on from another file.
func (s *step) fill(ctx context.Context, like *Replacement, o CommitOptions) (err error) {
	perm := uint32(0o666) // less the umask
	if like != nil {
		perm = 0o600
	}
	s.p.r.sweep(s.p.dirfd)
	s.t = &temp{fd: -1, dirfd: s.p.dirfd}
	if err := s.t.createAs(s.fresh, perm); err != nil {
		return owned(sysError("write in the directory of", s.Path, err), func(st *unix.Stat_t) error { return unix.Fstat(s.p.dirfd, st) })
	}
	if err := s.t.write(ctx, s.Content); err != nil {
		return sysError("write to", s.Path, err)
	}
	if like != nil && like.oldfd >= 0 {
		if s.notKept, err = s.t.adopt(like.oldfd, s.Path); err != nil {
			return err
		}
		s.names = like.names()
	}
	if s.Exec != nil {
		if err := s.t.setExec(*s.Exec); err != nil {
			return sysError("set the mode of", s.Path, err)
		}
	}
	if o.Durable {
		if err := unix.Fsync(s.t.fd); err != nil {
			return sysError("sync", s.Path, err)
		}
	}
	return nil
}

// setExec gives or takes the right to execute from all who may read.
func (t *temp) setExec(on bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(t.fd, &st); err != nil {
		return err
	}
	mode := st.Mode & 0o7666
	if on {
		mode |= mode & 0o444 >> 2
	}
	return unix.Fchmod(t.fd, mode)
}

// check proves that the file is still the one that was begun with.
func (s *step) check() error {
	if s.p.info.Exists {
		return s.p.check()
	}
	return nil // place finds out
}

// place is the moment at which the change is to be seen.
func (s *step) place(r *Root) error {
	dir, base := s.p.dirfd, s.p.base
	switch {
	case !s.p.info.Exists:
		err := rename(dir, s.fresh, base)
		if errors.Is(err, unix.EEXIST) {
			return errf(Stale, "%q has been created by somebody else meanwhile", s.Path)
		}
		if err != nil {
			return sysError("create", s.Path, err)
		}
		s.placed = true
	case s.Remove:
		if err := rename(dir, base, s.old); err != nil {
			return sysError("remove", s.Path, err)
		}
		s.placed, s.kept = true, s.old
	default:
		if err := s.exchange(r); err != nil {
			return sysError("replace", s.Path, err)
		}
	}
	if s.kept != "" && !s.holds(s.kept, s.p.oldfd) {
		return s.p.stale() // another has come there since it was checked
	}
	return nil
}

// exchange lets the old and the new file change places. Where the file system cannot do
// that at once, there is none for a moment.
func (s *step) exchange(r *Root) error {
	dir, base := s.p.dirfd, s.p.base
	err := error(unix.EINVAL)
	if !r.named && !s.alike {
		err = unix.Renameat2(dir, s.fresh, dir, base, unix.RENAME_EXCHANGE)
	}
	if err == nil {
		s.placed, s.kept = true, s.fresh
		return nil
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if err := rename(dir, base, s.old); err != nil {
		return err
	}
	s.kept = s.old
	r.at()
	if err := rename(dir, s.fresh, base); err != nil {
		return err
	}
	s.placed = true
	return nil
}

// rename renames within a directory, to a name that must be free.
func rename(dir int, from, to string) error {
	err := unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if err := unix.Linkat(dir, from, dir, to, 0); err != nil {
		return err
	}
	return unix.Unlinkat(dir, from, 0)
}

// holds reports whether a name means the file that fd is of.
func (s *step) holds(name string, fd int) bool {
	var a, b unix.Stat_t
	return unix.Fstatat(s.p.dirfd, name, &a, unix.AT_SYMLINK_NOFOLLOW) == nil && unix.Fstat(fd, &b) == nil && keyOf(&a) == keyOf(&b)
}

// settle removes what was there before, for good.
func (s *step) settle() {
	if s.kept != "" {
		_ = unix.Unlinkat(s.p.dirfd, s.kept, 0)
	}
	if s.t != nil {
		s.t.name = "" // it has its place, or its name is that of what is gone
	}
}

// errTheirs says that somebody else has changed a file.
var errTheirs = errors.New("it was changed meanwhile")

// undo puts back what was there. It changes nothing where somebody else has changed the file.
// What cannot be put back stays beside it, which the error says.
func (s *step) undo() error {
	if !s.placed && s.kept == "" {
		return nil
	}
	err := errTheirs
	if !s.placed || s.t == nil || s.holds(s.p.base, s.t.fd) {
		err = s.back()
	}
	if err == nil || s.kept == "" {
		return err
	}
	if s.kept == s.fresh {
		s.t.name = "" // so that it stays
	}
	return fmt.Errorf("%w; the file %q beside it has what was there", err, s.kept)
}

// back undoes a step that has been made, or a half of it.
func (s *step) back() error {
	dir, base := s.p.dirfd, s.p.base
	switch {
	case s.kept == "": // it was made
		return unix.Unlinkat(dir, base, 0)
	case s.kept == s.fresh:
		return unix.Renameat2(dir, s.fresh, dir, base, unix.RENAME_EXCHANGE)
	case s.placed && s.t != nil:
		return unix.Renameat(dir, s.old, dir, base)
	}
	return rename(dir, s.old, base)
}

// close removes what has no place.
func (s *step) close() {
	if s.t != nil {
		s.t.close()
	}
}
