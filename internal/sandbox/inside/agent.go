package inside

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// newAgent is the pattern of a copy that is not finished.
const newAgent = ".agent-*"

// CopyAgent copies the agent into dir, which it makes, and gives the copy's path: an
// inode of its own to execute, so that nothing that a sandbox can open is a file that
// the host runs. The name is the content's hash, so that sandboxes of an older
// version keep theirs.
func CopyAgent(from, dir string) (string, error) {
	src, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer src.Close()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// Whoever copies holds this: what lies there is from one that was killed.
	lock, err := os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", &os.PathError{Op: "flock", Path: dir, Err: err}
	}
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
	if _, err := io.Copy(io.MultiWriter(tmp, hash), src); err != nil {
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
}

// removeMatching removes all files that match a pattern but for one.
func removeMatching(pattern, but string) error {
	files, err := filepath.Glob(pattern)
	for _, f := range files {
		if f != but {
			err = errors.Join(err, os.Remove(f))
		}
	}
	return err
}
