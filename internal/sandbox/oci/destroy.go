package oci

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
	"github.com/toold/toold/internal/sandbox/state"
)

// Adopt implements sandbox.Driver.
func (d *Driver) Adopt(_ context.Context, rec sandbox.Record) (_ sandbox.Sandbox, err error) {
	defer sandbox.Failed(&err, "adopt", rec.SessionID)
	if !state.IsName(rec.SessionID) {
		return nil, sandbox.ErrGone
	}
	r, err := d.bundle(rec.SessionID).read()
	if err != nil {
		return nil, process.Gone(err)
	}
	if err := r.Lives(&rec.ID); err != nil {
		return nil, err
	}
	sb, err := d.open(r.PID, r, nil)
	if err != nil {
		return nil, err
	}
	return sb, nil
}

// Destroy implements sandbox.Driver.
func (d *Driver) Destroy(ctx context.Context, rec sandbox.Record) (err error) {
	defer sandbox.Failed(&err, "destroy", rec.SessionID)
	id := rec.SessionID
	if !state.IsName(id) {
		return errors.New("that is no session id")
	}
	found, err := d.lookup(id)
	if err != nil {
		return err
	}
	if found == nil || !found.Same(&rec.ID) {
		return nil // gone, or another has the name by now
	}
	if err := d.cg.KillAll(ctx, id); err != nil {
		return err
	}
	if err := d.forget(ctx, found); err != nil {
		return err
	}
	if err := d.cg.RemoveLimits(id); err != nil {
		return err
	}
	if err := d.bundle(id).remove(); err != nil {
		return err
	}
	return d.cg.Remove(id)
}

// forget removes the runtime's own state. All processes are dead: where the
// runtime is of no help any more, its files can simply go.
func (d *Driver) forget(ctx context.Context, rec *sandbox.Record) error {
	rt := runtime{name: rec.Runtime, path: d.cfg.Runtimes[rec.Runtime], root: d.runtimeRoot(rec.Runtime)}
	err := errors.New("it is not configured any more")
	if rt.path != "" {
		err = rt.remove(ctx, rec.SessionID)
	}
	state := filepath.Join(rt.root, rec.SessionID)
	if _, gone := os.Lstat(state); gone != nil {
		return nil
	}
	d.log.Warn("runtime does not remove a container; removing its state", "runtime", rec.Runtime, "sandbox", rec.SessionID, "error", err)
	return beneath.RemoveAll(state)
}
