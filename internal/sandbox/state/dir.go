package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// RecordName is the name of the record's file in a Dir.
const RecordName = "record.json"

// Dir is the directory of one sandbox. Its base name is the session's id.
type Dir struct {
	Path string
	// Sync makes writes survive a loss of power. Without it a record may be empty
	// afterwards.
	Sync bool
}

// ID gives the session's id.
func (d Dir) ID() string { return filepath.Base(d.Path) }

// File gives the path of a file in the directory.
func (d Dir) File(name string) string { return filepath.Join(d.Path, name) }

// Make creates the directory with its record and what fill puts into it. It appears in one
// step, so a directory without a record is never seen.
func (d Dir) Make(r Record, fill func(dir string) error) error {
	err := MakeDir(d.Path, func(tmp string) error {
		return errors.Join(fill(tmp), Dir{tmp, d.Sync}.Write(r))
	})
	if errors.Is(err, ErrTaken) {
		return errors.New("there is a sandbox of that name")
	}
	return err
}

// Write writes the record.
func (d Dir) Write(r Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return d.Keep(RecordName, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Keep replaces a file of the directory. After an error the old one is still there.
func (d Dir) Keep(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(d.File(name+".new"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = write(f)
	if d.Sync {
		err = errors.Join(err, f.Sync())
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), d.File(name)); err != nil || !d.Sync {
		return err
	}
	dir, err := os.Open(d.Path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Read reads the record R of a driver. The error is fs.ErrNotExist if there is none.
func Read[R any, P interface {
	*R
	Record
}](d Dir) (*R, error) {
	data, err := os.ReadFile(d.File(RecordName))
	if err != nil {
		return nil, err
	}
	r := new(R)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", d.File(RecordName), err)
	}
	if id := P(r).base().SessionID; id != d.ID() {
		return nil, fmt.Errorf("%s: it is of %q", d.File(RecordName), id)
	}
	return r, nil
}

// Remove removes the directory. The record stays readable until all else is gone. A mount
// in the directory is an error.
func (d Dir) Remove() error {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == RecordName {
			continue
		}
		if err := beneath.RemoveAll(d.File(e.Name())); err != nil {
			return err
		}
	}
	above := filepath.Dir(d.Path)
	lock, err := Lock(above, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer lock.Close()
	old := filepath.Join(above, oldPrefix+d.ID())
	if err := os.Rename(d.Path, old); err != nil {
		return err
	}
	return beneath.RemoveAll(old)
}
