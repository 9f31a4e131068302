package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox/mount"
)

// NewPrefix begins the names of what is nobody's yet, oldPrefix of what is nobody's any
// more.
const (
	NewPrefix = ".new-"
	oldPrefix = ".old-"
)

// IsUnnamed says whether a name is that of something that is nobody's.
func IsUnnamed(name string) bool {
	return strings.HasPrefix(name, NewPrefix) || strings.HasPrefix(name, oldPrefix)
}

// ErrTaken: there is something of that name.
var ErrTaken = errors.New("the name is taken")

// MakeDir makes a directory that is there with all that fill puts into it, or not at
// all. The error is ErrTaken where something is there.
func MakeDir(path string, fill func(dir string) error) error {
	above := filepath.Dir(path)
	lock, err := Lock(above, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer lock.Close()
	tmp, err := os.MkdirTemp(above, NewPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // a no-op after the rename
	if err := fill(tmp); err != nil {
		return err
	}
	err = os.Rename(tmp, path)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %w", ErrTaken, err)
	}
	return err
}

// Sweep removes from dir what a killed daemon left without a name.
func Sweep(dir string) error {
	// Whoever makes or removes a directory holds this too. When somebody does,
	// this is not the time.
	lock, err := Lock(dir, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	} else if err != nil {
		return err
	}
	defer lock.Close()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !IsUnnamed(e.Name()) {
			continue
		}
		if err := mount.RemoveTree(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Lock takes a lock, across processes, on the names in dir that are nobody's; how is
// flock's. It ends when the file is closed.
func Lock(dir string, how int) (*os.File, error) {
	f, err := os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "flock", Path: dir, Err: err}
	}
	return f, nil
}
