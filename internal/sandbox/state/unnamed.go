package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// NewPrefix marks what is still being made, oldPrefix what is being removed.
const (
	NewPrefix = ".new-"
	oldPrefix = ".old-"
)

// IsUnnamed reports whether a name has one of these prefixes.
func IsUnnamed(name string) bool {
	return strings.HasPrefix(name, NewPrefix) || strings.HasPrefix(name, oldPrefix)
}

// ErrTaken means that the name is in use.
var ErrTaken = errors.New("the name is taken")

// MakeDir creates a directory with all that fill puts into it, in one step. The error is
// ErrTaken if path exists.
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

// Sweep removes from dir what a killed daemon was making or removing.
func Sweep(dir string) error {
	// MakeDir and Remove hold it shared: while they run, nothing is swept.
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
		if err := beneath.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Lock takes a lock that other processes respect, on the unnamed things in dir; how is an
// operation of flock. Closing the file releases it.
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
