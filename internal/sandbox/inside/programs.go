package inside

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox/state"
)

// CopyAgent copies the agent into dir, which it makes, and gives the copy's path: an
// inode of its own to execute, so that nothing that a sandbox can open is a file that
// the host runs. The name is the content's hash, so that sandboxes of an older
// version keep theirs.
func CopyAgent(from, dir string) (string, error) {
	name, err := copied(dir, "agent", func(tmp string, hash io.Writer) (string, error) {
		agent := filepath.Join(tmp, "agent")
		return agent, copyInto(agent, from, hash)
	})
	if err != nil {
		return "", err
	}
	return name, beneath.RemoveMatching(filepath.Join(dir, "agent-*"), name)
}

// CopyRipgrep is CopyAgent for the directory that scripts/install-ripgrep makes. Copies
// of other versions stay: sandboxes that still have one open its files by name.
func CopyRipgrep(from, dir string) (string, error) {
	return copied(dir, "ripgrep", func(tmp string, hash io.Writer) (string, error) {
		files, err := os.ReadDir(from)
		for _, f := range files {
			info, infoErr := f.Info()
			if infoErr != nil {
				return "", infoErr
			}
			fmt.Fprintf(hash, "%q %d\n", f.Name(), info.Size())
			if err := copyInto(filepath.Join(tmp, f.Name()), filepath.Join(from, f.Name()), hash); err != nil {
				return "", err
			}
		}
		return tmp, errors.Join(err, os.Chmod(tmp, 0o555))
	})
}

// copied gives what fill makes in a temporary directory, and says where, a name with the
// hash of what it tells. One that is there already stays. Whoever copies into dir holds a
// lock: what lies there unfinished is from one that was killed.
func copied(dir, kind string, fill func(tmp string, hash io.Writer) (string, error)) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	lock, err := state.Lock(dir, unix.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	unfinished := "." + kind + "-*"
	if err := beneath.RemoveMatching(filepath.Join(dir, unfinished), ""); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, unfinished)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	hash := sha256.New()
	made, err := fill(tmp, hash)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, kind+"-"+hex.EncodeToString(hash.Sum(nil))[:32])
	if err := os.Rename(made, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return name, nil
}

// copyInto copies a program to a new file, and to w.
func copyInto(to, from string, w io.Writer) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.MultiWriter(f, w), src)
	return errors.Join(err, f.Chmod(0o555), f.Sync(), f.Close())
}
