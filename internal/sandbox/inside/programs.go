package inside

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// newAgent and newRipgrep are the patterns of copies that are not finished.
const (
	newAgent   = ".agent-*"
	newRipgrep = ".ripgrep-*"
)

// CopyAgent copies the agent into dir, which it makes, and gives the copy's path: an
// inode of its own to execute, so that nothing that a sandbox can open is a file that
// the host runs. The name is the content's hash, so that sandboxes of an older
// version keep theirs.
func CopyAgent(from, dir string) (string, error) {
	return copied(dir, func() (string, error) {
		if err := removeMatching(filepath.Join(dir, newAgent), ""); err != nil {
			return "", err
		}
		tmp, err := os.CreateTemp(dir, newAgent)
		if err != nil {
			return "", err
		}
		defer os.Remove(tmp.Name())
		defer tmp.Close()
		hash := sha256.New()
		if err := copyFile(io.MultiWriter(tmp, hash), from); err != nil {
			return "", err
		}
		if err := errors.Join(tmp.Chmod(0o555), tmp.Sync()); err != nil {
			return "", err
		}
		name := filepath.Join(dir, "agent-"+hex.EncodeToString(hash.Sum(nil))[:32])
		if err := os.Rename(tmp.Name(), name); err != nil {
			return "", err
		}
		return name, removeMatching(filepath.Join(dir, "agent-*"), name)
	})
}

// CopyRipgrep is CopyAgent for the directory that scripts/install-ripgrep makes. Copies
// of other versions stay: sandboxes that still have one open its files by name.
func CopyRipgrep(from, dir string) (string, error) {
	return copied(dir, func() (string, error) {
		if err := removeMatching(filepath.Join(dir, newRipgrep), ""); err != nil {
			return "", err
		}
		files, err := os.ReadDir(from)
		if err != nil {
			return "", err
		}
		tmp, err := os.MkdirTemp(dir, newRipgrep)
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(tmp)
		hash := sha256.New()
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				return "", err
			}
			fmt.Fprintf(hash, "%q %d\n", f.Name(), info.Size())
			if err := copyInto(filepath.Join(tmp, f.Name()), filepath.Join(from, f.Name()), hash); err != nil {
				return "", err
			}
		}
		name := filepath.Join(dir, "ripgrep-"+hex.EncodeToString(hash.Sum(nil))[:32])
		if _, err := os.Stat(name); err == nil {
			return name, nil
		}
		return name, errors.Join(os.Chmod(tmp, 0o555), os.Rename(tmp, name))
	})
}

// copied does the work of a copy. Whoever copies into dir holds a lock: what lies there
// unfinished is from one that was killed.
func copied(dir string, work func() (string, error)) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", &os.PathError{Op: "flock", Path: dir, Err: err}
	}
	return work()
}

// copyInto copies a program to a new file, and to w.
func copyInto(to, from string, w io.Writer) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555)
	if err != nil {
		return err
	}
	return errors.Join(copyFile(io.MultiWriter(f, w), from), f.Chmod(0o555), f.Sync(), f.Close())
}

func copyFile(w io.Writer, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	_, err = io.Copy(w, src)
	return err
}

// removeMatching removes all that matches a pattern but for one.
func removeMatching(pattern, but string) error {
	found, err := filepath.Glob(pattern)
	for _, f := range found {
		if f != but {
			err = errors.Join(err, os.RemoveAll(f))
		}
	}
	return err
}
