package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownDir makes dir with this mode, or takes one that is there when it is ours
// alone. Anything else may have been put there by somebody who waits for a
// daemon to write into it.
func ownDir(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%s is not a directory (a symbolic link is none): remove it", dir)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := checkOwned(dir, f); err != nil {
		return err
	}
	return f.Chmod(mode)
}

// makeOrCheck is ownDir where there is no directory. One that is there keeps its mode, and may be
// behind a link.
func makeOrCheck(dir string, mode fs.FileMode) (made bool, err error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return true, ownDir(dir, mode)
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	return false, checkOwned(dir, f)
}

// checkOwned refuses a directory that is not ours or that others can write.
func checkOwned(dir string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (uid %d): somebody made it before toold did; remove it", dir, st.Uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s can be written by others (mode %04o): chmod go-w %s", dir, info.Mode().Perm(), dir)
	}
	return nil
}

// lockDir takes a lock that ends with the process, so that two daemons never
// share a directory.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir+"/lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another toold uses %s: stop it, or give this one its own --state-dir, --run-dir and --socket", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}
