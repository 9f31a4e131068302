package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// Source is a directory of the host that a session was given. Its birth tells it from one that has
// got its inode; 0 where the file system knows none.
type Source struct {
	Path   string `json:"path"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Birth  int64  `json:"birth,omitempty"` // ns
	// Link says that a symbolic link was at the path, as an administrator's roots may be one: what counts is where it
	// leads. false in records of earlier versions.
	Link bool `json:"link,omitempty"`
}

// AstrayError is that a Source is not at its path any more. Is says in fixed words what is there.
type AstrayError struct{ Path, Is string }

func (e *AstrayError) Error() string {
	return fmt.Sprintf("%s is not the directory that the session began with: %s", e.Path, e.Is)
}

// What may be at the path of a Source.
const (
	isNothing = "nothing is there"
	isNoDir   = "a file or a link is there"
	isOther   = "another directory is there"
	isMounted = "something is mounted there"
)

// SourceOf says what an open directory is that was found at a path, over no link. Directory has it of one that
// was pinned, perhaps over a link.
func SourceOf(path string, f *os.File) (Source, error) {
	s, _, err := statSource(path, f)
	return s, err
}

// statSource also says whether it is the root of a mount.
func statSource(path string, f *os.File) (s Source, mounted bool, err error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return s, false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	s = Source{Path: path, Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		s.Birth = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return s, st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// sourcePatience bounds how long a source is waited for.
const sourcePatience = 5 * time.Second

// Open opens the source again. What is at its path must be the very directory that it
// was, however that came there: *AstrayError says that it is not. beneath.ErrStuck: its file system
// does not answer.
func (s Source) Open(ctx context.Context) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, sourcePatience)
	defer cancel()
	return beneath.OpenWithin(ctx, s.Path, s.open)
}

func (s Source) open() (*os.File, error) {
	flags := unix.O_PATH | unix.O_DIRECTORY
	if !s.Link {
		flags |= unix.O_NOFOLLOW
	}
	f, err := os.OpenFile(s.Path, flags, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, &AstrayError{s.Path, isNothing}
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, &AstrayError{s.Path, isNoDir}
	case err != nil:
		return nil, err
	}
	now, mounted, err := statSource(s.Path, f)
	now.Link = s.Link
	switch {
	case err == nil && now == s:
		return f, nil
	case err == nil && mounted && now.Device != s.Device:
		err = &AstrayError{s.Path, isMounted}
	case err == nil:
		err = &AstrayError{s.Path, isOther}
	}
	return nil, errors.Join(err, f.Close())
}

// Astray says what is at the path of the source instead of it, "" where it is there. An error says
// that this cannot be told.
func (s Source) Astray(ctx context.Context) (is string, err error) {
	f, err := s.Open(ctx)
	if e, ok := errors.AsType[*AstrayError](err); ok {
		return e.Is, nil
	}
	if err != nil {
		return "", err
	}
	return "", f.Close()
}
