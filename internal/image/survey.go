package image

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// survey is what a look at a whole unpacked image has found.
type survey struct {
	size  int64 // of regular files, each inode once
	files int64 // inodes

	linked map[uint64]struct{} // inodes with several names that were counted
}

// surveyTree counts what is in an unpacked image, and makes sure that it holds
// nothing that none may hold: a second look at what unpacking has decided, by
// other means.
func surveyTree(dirfd int, name string) (*survey, error) {
	s := &survey{linked: map[uint64]struct{}{}, files: 1}
	return s, s.directory(dirfd, name)
}

func (s *survey) directory(dirfd int, name string) error {
	return eachName(dirfd, name, func(fd int, name string) error {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if err := s.inode(&st); err != nil {
			return fmt.Errorf("%q: %w", quotable(name), err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return s.directory(fd, name)
		}
		return nil
	})
}

func (s *survey) inode(st *unix.Stat_t) error {
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind != unix.S_IFDIR && kind != unix.S_IFREG && kind != unix.S_IFLNK && kind != unix.S_IFIFO:
		return fmt.Errorf("%w: a device or a socket", ErrRefused)
	case kind != unix.S_IFLNK && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return fmt.Errorf("%w: a set-uid or set-gid bit", ErrRefused)
	case st.Uid > maxID || st.Gid > maxID:
		return fmt.Errorf("%w: an owner above %d", ErrRefused, maxID)
	}
	if kind != unix.S_IFDIR && st.Nlink > 1 {
		if _, ok := s.linked[st.Ino]; ok {
			return nil
		}
		s.linked[st.Ino] = struct{}{}
	}
	s.files++
	if kind == unix.S_IFREG {
		s.size += st.Size
	}
	return nil
}
