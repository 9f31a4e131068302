package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/state"
)

// List implements sandbox.Driver. A sandbox is found by its directory, or where
// that is gone, by the label of its cgroup: of the two, one is made before
// anything else and the other removed after everything else.
func (d *Driver) List(_ context.Context, owner string) ([]sandbox.Record, error) {
	ids, err := d.ids()
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var list []sandbox.Record
	for id := range ids {
		rec, err := d.lookup(id)
		if err != nil {
			d.log.Warn("sandbox record cannot be read", "sandbox", id, "error", err)
		} else if rec != nil && rec.Owner == owner {
			list = append(list, *rec)
		}
	}
	return list, nil
}

// ids are the names under which there may be something.
func (d *Driver) ids() (map[string]bool, error) {
	ids := map[string]bool{}
	dirs, err := os.ReadDir(d.sandboxesDir())
	if err != nil {
		return nil, err
	}
	names, err := d.cg.IDs()
	if err != nil {
		return nil, err
	}
	for _, e := range dirs {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	for _, id := range names {
		if state.IsName(id) {
			ids[id] = true
		}
	}
	return ids, nil
}

// lookup reads whose an id is: nil when there is nothing of that name. Where the
// directory or its record is lost, the label of the cgroup says it. A loss of power may
// leave a record empty and no cgroup: sweepUnknown removes what that leaves.
func (d *Driver) lookup(id string) (*sandbox.Record, error) {
	r, err := d.bundle(id).read()
	if err == nil {
		return &r.Record, nil
	}
	rec, labelErr := d.cg.Label(id)
	if rec != nil {
		return rec, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return nil, errors.Join(err, labelErr)
}

// sweepUnknown removes directories of which nothing says any more whose they are,
// and which no cgroup belongs to: nothing of them is alive.
func (d *Driver) sweepUnknown() error {
	dirs, err := os.ReadDir(d.sandboxesDir())
	if err != nil {
		return err
	}
	for _, e := range dirs {
		id := e.Name()
		if !e.IsDir() || !state.IsName(id) {
			continue
		}
		_, unknown := d.lookup(id)
		if _, err := os.Lstat(d.cg.Dir(id)); unknown == nil || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		d.log.Warn("removing what is left of a sandbox that has lost its record", "sandbox", id, "error", unknown)
		for _, name := range d.names {
			if err := beneath.RemoveAll(filepath.Join(d.runtimeRoot(name), id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := d.bundle(id).remove(); err != nil {
			return err
		}
	}
	return nil
}
