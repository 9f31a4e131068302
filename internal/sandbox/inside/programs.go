package inside

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox/state"
)

// Programs are the private copies of what the daemon brings into sandboxes: inodes of their
// own to execute, so that nothing that a sandbox can open is a file that the host runs. Their
// names are hashes of their content, so that sandboxes of an older version keep theirs.
type Programs struct {
	Agent   string // a file
	Ripgrep string // a directory, as scripts/install-ripgrep makes it

	agent, ripgrep string // what they are copies of
	dir            string // that the copies are in
	files          map[string]shape
	mending        sync.Mutex // held while they are copied again
}

// CopyPrograms copies the agent and ripgrep into dir, which it makes.
func CopyPrograms(agent, ripgrep, dir string) (*Programs, error) {
	p := &Programs{agent: agent, ripgrep: ripgrep, dir: dir}
	var err error
	if p.Agent, err = copyAgent(agent, dir); err != nil {
		return nil, fmt.Errorf("copy agent: %w", err)
	}
	if p.Ripgrep, err = copyRipgrep(ripgrep, dir); err != nil {
		return nil, fmt.Errorf("copy ripgrep: %w", err)
	}
	p.files, err = p.measure()
	return p, err
}

// Ready looks whether the copies are all there, and makes those again that somebody has removed
// or cut off. Whoever makes a sandbox asks it before. What is beside the daemon may be newer by
// then, and is not taken: it goes with the daemon of its version.
func (p *Programs) Ready() error {
	p.mending.Lock()
	defer p.mending.Unlock()
	if files, err := p.measure(); err == nil && maps.Equal(files, p.files) {
		return nil
	}
	again, err := CopyPrograms(p.agent, p.ripgrep, p.dir)
	if err != nil {
		return fmt.Errorf("the programs that sandboxes get were removed from %s, and cannot be copied again: %w; run make build or make install again", p.dir, err)
	}
	if again.Agent != p.Agent || again.Ripgrep != p.Ripgrep {
		return fmt.Errorf("the programs that sandboxes get were removed from %s, and those beside toold are of another version by now: restart toold; sessions go on", p.dir)
	}
	return nil
}

// shape is what shows without reading a file that it is not whole.
type shape struct {
	mode fs.FileMode
	size int64
}

// measure gives the shapes of all files of the copies.
func (p *Programs) measure() (map[string]shape, error) {
	shapes := make(map[string]shape)
	files, err := os.ReadDir(p.Ripgrep)
	if err != nil {
		return nil, err
	}
	paths := []string{p.Agent}
	for _, f := range files {
		paths = append(paths, filepath.Join(p.Ripgrep, f.Name()))
	}
	for _, path := range paths {
		fi, err := os.Lstat(path)
		if err != nil {
			return nil, err
		}
		shapes[path] = shape{fi.Mode(), fi.Size()}
	}
	return shapes, nil
}

// copyAgent removes the copies of other versions: sandboxes have theirs open.
func copyAgent(from, dir string) (string, error) {
	name, err := copied(dir, "agent", from, func(tmp string) (string, error) {
		agent := filepath.Join(tmp, "agent")
		return agent, copyInto(agent, from)
	})
	if err != nil {
		return "", err
	}
	return name, beneath.RemoveMatching(filepath.Join(dir, "agent-*"), name)
}

// copyRipgrep leaves copies of other versions: sandboxes that still have one open its files by
// name.
func copyRipgrep(from, dir string) (string, error) {
	return copied(dir, "ripgrep", from, func(tmp string) (string, error) {
		files, err := os.ReadDir(from)
		for _, f := range files {
			if err := copyInto(filepath.Join(tmp, f.Name()), filepath.Join(from, f.Name())); err != nil {
				return "", err
			}
		}
		return tmp, errors.Join(err, os.Chmod(tmp, 0o555))
	})
}

// copied gives a copy of a program, or of a directory of them, that fill makes in a temporary
// directory, and says where. Its name has the hash of its content. One that is there already and
// whole is not written again, for the disk may be full by now; a directory that is there stays,
// with its files made whole: sandboxes have it. Whoever copies into dir holds a
// lock: what lies there unfinished is from one that was killed.
func copied(dir, kind, from string, fill func(tmp string) (string, error)) (string, error) {
	hash, err := sum(from)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, kind+"-"+hash)
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
	if have, err := sum(name); err == nil && have == hash && executable(name) {
		return name, nil
	}
	tmp, err := os.MkdirTemp(dir, unfinished)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	made, err := fill(tmp)
	if err != nil {
		return "", err
	}
	if got, err := sum(made); err != nil || got != hash {
		return "", errors.Join(err, fmt.Errorf("%s is changed while it is copied: try again when it is there", from))
	}
	err = os.Rename(made, name)
	if errors.Is(err, fs.ErrExist) {
		err = mend(name, made)
	}
	return name, err
}

// sum is the hash of a file's content, or of the names, sizes and contents of a directory's files.
func sum(path string) (string, error) {
	hash := sha256.New()
	files, err := os.ReadDir(path)
	if errors.Is(err, unix.ENOTDIR) {
		err = read(path, hash)
		return hex.EncodeToString(hash.Sum(nil))[:32], err
	}
	for _, f := range files {
		info, err := os.Stat(filepath.Join(path, f.Name())) // of what is behind a link, which is copied
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%q %d\n", f.Name(), info.Size())
		if err := read(filepath.Join(path, f.Name()), hash); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:32], err
}

// executable reports whether a copy has the modes that copyInto gives.
func executable(path string) bool {
	ok := true
	err := filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		ok = ok && err == nil && info.Mode().Perm() == 0o555
		return err
	})
	return ok && err == nil
}

func read(path string, into io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(into, f)
	return err
}

// mend gives a directory the files of another one that it has not, or not whole.
func mend(dir, from string) error {
	files, err := os.ReadDir(from)
	for _, f := range files {
		path, whole := filepath.Join(dir, f.Name()), filepath.Join(from, f.Name())
		want, wantErr := os.Lstat(whole)
		if wantErr != nil {
			return wantErr
		}
		if have, haveErr := os.Lstat(path); haveErr == nil && have.Mode() == want.Mode() && have.Size() == want.Size() {
			continue
		}
		if err := os.Rename(whole, path); err != nil {
			return err
		}
	}
	return err
}

// copyInto copies a program to a new file.
func copyInto(to, from string) error {
	if err := writeInto(to, from); err != nil {
		return err
	}
	f, err := os.Open(to)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// writeInto is copyInto without waiting for the disk. While the file is open for writing this
// process starts no other: that one would have the descriptor too until it executes a program
// itself, and nobody can execute a file that somebody may write to (ETXTBSY).
func writeInto(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, src)
	return errors.Join(err, f.Chmod(0o555), f.Close())
}
