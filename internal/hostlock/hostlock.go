// Package hostlock has what all daemons of a host agree on: locks on the bytes of private files
// in one directory, wherever the daemons keep the rest. The kernel gives a lock to one open file
// at a time and takes it back when that is closed, so no daemon that was killed leaves one.
package hostlock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir is the directory, which is root's alone and stays until the host starts again. Containers
// with a daemon must have the host's. Another user than root, whose daemons would have no rights
// to anything that another's work on, has one of its own.
func Dir() string {
	if os.Geteuid() == 0 {
		return "/run/toold-uids"
	}
	home, err := os.UserCacheDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, "toold-uids")
}

// File is an open file with locks. They are that of the opening: whoever shares the descriptor
// shares them, and who opens the file again, be it in the same process, is another.
type File struct{ *os.File }

// Open opens or makes a file, which nobody else may be able to open: who holds locks on it could
// keep a daemon from its work.
func Open(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return File{}, err
	}
	fi, err := f.Stat()
	if err == nil {
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok || !fi.Mode().IsRegular() || int(st.Uid) != os.Geteuid() || fi.Mode().Perm()&0o077 != 0 {
			err = &fs.PathError{Op: "open", Path: path, Err: errors.New("it must be a regular file of toold's user that nobody else can open; remove it")}
		}
	}
	if err != nil {
		return File{}, errors.Join(err, f.Close())
	}
	return File{f}, nil
}

// Lock gives this opening the lock on a byte, F_WRLCK for itself alone or F_RDLCK with others, or
// gives it back with F_UNLCK. It is false, at once, when another has it.
func (f File) Lock(kind int16, at int64) (bool, error) {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: at, Len: 1})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// Locked says whether another opening has a lock on a byte.
func (f File) Locked(at int64) (bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l)
	return err == nil && l.Type != unix.F_UNLCK, err
}
