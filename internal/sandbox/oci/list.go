package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/mount"
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

// lookup reads whose an id is: nil when there is nothing of that name. A loss of
// power may leave a record empty; then the label of the cgroup says it, and after
// a restart of the host, when there is no cgroup, the runtime's configuration.
func (d *Driver) lookup(id string) (*sandbox.Record, error) {
	r, err := d.bundle(id).read()
	if err == nil {
		return &r.Record, nil
	}
	missing := errors.Is(err, fs.ErrNotExist)
	rec, labelErr := d.cg.Label(id)
	switch {
	case rec != nil:
		return rec, nil
	case missing:
		return nil, labelErr
	}
	rec, specErr := d.bundle(id).annotated(id)
	if specErr != nil {
		return nil, errors.Join(err, labelErr, specErr)
	}
	return rec, nil
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
			if err := mount.RemoveTree(filepath.Join(d.runtimeRoot(name), id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := d.bundle(id).remove(); err != nil {
			return err
		}
	}
	return nil
}
