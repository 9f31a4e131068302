package cgroup

import (
	"errors"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultParent is the cgroup above those of the sessions where nothing else is said.
const DefaultParent = "/toold"

// Parent is the cgroup above those of the sessions, as long as a daemon uses it.
// Several daemons may use the same; the last of them removes it. A lock keeps one that
// is about to make a session from finding its parent gone: each daemon holds it, for its
// whole life, together with the others, and removes only when it holds it alone. The
// kernel takes the lock from a daemon that was killed.
type Parent struct {
	path string
	file *os.File
}

// OpenParent comes before Open of the same path. The locks are in a file that all daemons
// of the host open and nobody else can; each path has a byte of it.
func OpenParent(file, path string) (*Parent, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	p := &Parent{path, f}
	if err := p.lock(unix.F_OFD_SETLKW, unix.F_RDLCK); err != nil { // a removal takes no time
		return nil, errors.Join(err, f.Close())
	}
	return p, nil
}

// lock is an operation on the lock of the path. Locks belong to the open file, so that
// two daemons in one process are two.
func (p *Parent) lock(op int, kind int16) error {
	h := fnv.New32a()
	_, _ = h.Write([]byte(p.path)) // a hash takes everything
	for {
		err := unix.FcntlFlock(p.file.Fd(), op, &unix.Flock_t{Type: kind, Start: int64(h.Sum32()), Len: 1})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Close removes the cgroup if nothing is in it and no other daemon uses it.
func (p *Parent) Close() error {
	defer p.file.Close()
	// Unlocked first: of two that close at once and keep what they have, neither would
	// get it alone.
	if err := p.lock(unix.F_OFD_SETLK, unix.F_UNLCK); err != nil {
		return err
	}
	err := p.lock(unix.F_OFD_SETLK, unix.F_WRLCK)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil // the other one removes it
	}
	if err != nil {
		return err
	}
	return removeParent(p.path)
}

// removeParent removes an empty cgroup from all hierarchies. One with the name of a unit
// is systemd's to remove.
func removeParent(path string) error {
	if strings.HasSuffix(path, ".service") || strings.HasSuffix(path, ".slice") || strings.HasSuffix(path, ".scope") {
		return nil
	}
	t, err := find(path)
	if err != nil {
		return nil // then Open has made nothing either
	}
	if t.detached != nil {
		defer t.detached.Close()
	}
	for i, mount := range append([]string{t.v2}, t.v1all...) {
		dir := filepath.Join(mount, path)
		switch e := unix.Rmdir(dir); e {
		case nil, unix.ENOENT, unix.EROFS:
		case unix.EBUSY: // it is not empty
			if i == 0 {
				return nil // each session has a cgroup on v2
			}
		default:
			err = errors.Join(err, &fs.PathError{Op: "rmdir", Path: dir, Err: e})
		}
	}
	return err
}
