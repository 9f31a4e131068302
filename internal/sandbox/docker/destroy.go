package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
	"github.com/toold/toold/internal/sandbox/state"
)

// Destroy implements sandbox.Driver. The sandbox's processes are killed first, for
// which the Engine is not needed; while that is down, its container stays in it, and
// the record of it here, for List to find.
func (d *Driver) Destroy(ctx context.Context, rec sandbox.Record) (err error) {
	defer sandbox.Failed(&err, "destroy", rec.SessionID)
	if !state.IsName(rec.SessionID) {
		return errors.New("that is no session id")
	}
	p := d.place(rec.SessionID)
	r, err := p.read()
	if errors.Is(err, fs.ErrNotExist) {
		return d.removeLabelled(ctx, &rec)
	} else if err != nil {
		return err
	}
	if !r.Same(&rec.ID) {
		return nil // gone, or another has the name by now
	}
	if err := d.kill(ctx, r); err != nil {
		return err
	}
	if err := d.removeLabelled(ctx, &rec); err != nil {
		return err
	}
	if err := d.removeGroup(r); err != nil {
		return err
	}
	return p.Remove()
}

// removeLabelled removes the container that has the session's name and its labels.
func (d *Driver) removeLabelled(ctx context.Context, rec *sandbox.Record) error {
	st, err := d.engine.inspect(ctx, containerName(rec.SessionID))
	if errors.Is(err, errNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	if found, ok := labelled(st.Name, st.Config.Labels); !ok || !found.Same(&rec.ID) {
		return nil
	}
	return d.engine.remove(ctx, st.ID)
}

// kill ends all processes of a sandbox, if it lives.
func (d *Driver) kill(ctx context.Context, r *record) error {
	if r.BootID != state.BootID() || r.PID == 0 {
		return nil // what lives, the Engine kills
	}
	if r.Group != "" {
		parent, name := path.Split(r.Group)
		t, err := d.tree(path.Clean(parent))
		if err != nil {
			return err
		}
		return t.KillAll(ctx, name)
	}
	// It is the init process of a pid namespace: all others end with it.
	proc, err := process.Open(r.PID, r.PIDStart, nil)
	if errors.Is(err, sandbox.ErrGone) {
		return nil
	} else if err != nil {
		return err
	}
	err = proc.Signal(unix.SIGKILL)
	if err == nil {
		select {
		case <-proc.Done():
		case <-ctx.Done():
			err = fmt.Errorf("the agent does not die: %w", context.Cause(ctx))
		}
	}
	return errors.Join(ignoreGone(err), proc.Close())
}

func ignoreGone(err error) error {
	if errors.Is(err, sandbox.ErrGone) {
		return nil
	}
	return err
}

// removeGroup removes what is left of the container's cgroups: those that were made
// in it.
func (d *Driver) removeGroup(r *record) error {
	if r.Group == "" {
		return nil
	}
	parent, name := path.Split(r.Group)
	t, err := d.tree(path.Clean(parent))
	if err != nil {
		return err
	}
	return errors.Join(t.RemoveLimits(name), t.Remove(name))
}
