package oci

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox/mount"
)

// Names of directories that are nobody's yet, or nobody's any more.
const (
	newPrefix = ".new-"
	oldPrefix = ".old-"
)

// remove removes the directory of a sandbox. Its record is in it until the
// directory has lost its name.
func (b bundle) remove() error {
	if err := mount.UnmountBelow(string(b)); err != nil {
		return err
	}
	entries, err := os.ReadDir(string(b))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != recordName {
			if err := mount.RemoveTree(b.path(e.Name())); err != nil {
				return err
			}
		}
	}
	lock, err := lockNames(filepath.Dir(string(b)), unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer lock.Close()
	old := filepath.Join(filepath.Dir(string(b)), oldPrefix+filepath.Base(string(b)))
	if err := os.Rename(string(b), old); err != nil {
		return err
	}
	return mount.RemoveTree(old)
}

// sweep removes what a killed daemon left without a name.
func sweep(dir string) error {
	// Whoever makes or removes a directory holds this too. When somebody does,
	// this is not the time.
	lock, err := lockNames(dir, unix.LOCK_EX|unix.LOCK_NB)
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
		if strings.HasPrefix(e.Name(), newPrefix) || strings.HasPrefix(e.Name(), oldPrefix) {
			if err := mount.RemoveTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// lockNames takes a lock, across processes, on the names in dir that are
// nobody's. It ends when the file is closed.
func lockNames(dir string, how int) (*os.File, error) {
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
