package apply

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/toold/toold/internal/beneath"
)

// A base is what a session began with at a path. A file of the source that has not changed
// since is that, and is kept in the session's private directory: when a call has written to
// it (Look.Keep), and when a job of another session is about to replace or remove it. There is
// at most one of each path. It is a line of JSON, which
// tells whether it is whole, and the content.
const baseDir = "base"

// maxBases is how many bytes of bases a job keeps, for all sessions together.
const maxBases = 256 << 20

// baseHead is the first line of a base.
type baseHead struct {
	Perm uint32 `json:"perm"`
	Sum  raw    `json:"sum"`
}

// baseName is the file of a path for a session that began then.
func baseName(path string, since int64) string {
	sum := sha256.Sum256([]byte(path))
	return fmt.Sprintf("%s/%s-%d", baseDir, hex.EncodeToString(sum[:]), since)
}

// began says whether the session began with a file that has that change time.
func (o Other) began(ctime int64) bool { return ctime <= o.Since-o.Back }

// share keeps what is about to be replaced for others that began with it. A base that
// cannot be kept is none: those have a conflict then.
func (s *survey) share() {
	room := int64(maxBases)
	for _, c := range s.changes {
		if c.left != chosen || c.done || !c.kept || c.now.Kind != beneath.File {
			continue
		}
		for _, o := range s.job.Others {
			if room -= c.now.Size; room >= 0 && o.began(c.now.CTime) && s.spool.room(c.now.Size) == nil {
				_ = o.keep(c, io.NewSectionReader(s.spool.f, c.ours, c.now.Size))
				step("base kept")
			}
		}
	}
}

// keep keeps a base, if there is none.
func (o Other) keep(c *change, content io.Reader) error {
	return keepBase(filepath.Join(o.Dir, baseName(c.path, o.Since)), baseHead{c.now.Perm, c.now.Sum}, content)
}

func keepBase(name string, head baseHead, content io.Reader) error {
	if _, err := os.Lstat(name); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), newSuffix)
	if err != nil {
		return err
	}
	err = json.NewEncoder(f).Encode(head)
	if err == nil {
		_, err = io.Copy(f, content)
	}
	// Not synced: after a crash the sum tells.
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// readBase gives what a session began with at a path; errNoBase where that is not known.
func (d *state) readBase(path string, since int64) (content []byte, perm uint32, err error) {
	all, err := os.ReadFile(d.path(baseName(path, since)))
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, errNoBase
	}
	if err != nil {
		return nil, 0, err
	}
	line, content, _ := bytes.Cut(all, []byte{'\n'})
	var head baseHead
	if json.Unmarshal(line, &head) != nil || string(head.Sum) != sumOf(string(content)) {
		return nil, 0, errNoBase
	}
	return content, head.Perm, nil
}

// bases are the names of all bases in a private directory. Who has the ids of a source's owner
// cannot look into it.
type bases map[string]bool

func (d *state) bases() (bases, error) {
	entries, err := os.ReadDir(d.path(baseDir))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	all := make(bases, len(entries))
	for _, e := range entries {
		all[baseDir+"/"+e.Name()] = true
	}
	return all, err
}

// has says whether a session is known to have begun with a file at a path.
func (b bases) has(path string, since int64) bool { return len(b) > 0 && b[baseName(path, since)] }

// Given says that the session has been given what earlier jobs of a directory merged: it
// makes its next changes from that.
func Given(dir string) error {
	d, err := openState(dir)
	if err != nil {
		return err
	}
	defer d.close()
	all, err := d.readOwn()
	if err != nil {
		return err
	}
	for path, o := range all {
		o.Of = ""
		all[path] = o
	}
	return d.addOwn(all)
}

// Forget finishes what is under way in a directory, and removes it: the session is gone,
// or goes on from the source as it is.
func Forget(ctx context.Context, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	d, err := openState(dir)
	if err != nil {
		return err
	}
	defer d.close()
	if _, err := d.recover(ctx); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
