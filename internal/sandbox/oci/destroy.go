package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/toold/toold/internal/sandbox"
)

// Adopt implements sandbox.Driver.
func (d *Driver) Adopt(_ context.Context, rec sandbox.Record) (sandbox.Sandbox, error) {
	sb, err := d.adopt(rec)
	if err != nil {
		return nil, fmt.Errorf("adopt sandbox %s: %w", rec.SessionID, err)
	}
	return sb, nil
}

func (d *Driver) adopt(rec sandbox.Record) (*Sandbox, error) {
	if !safeName.MatchString(rec.SessionID) {
		return nil, sandbox.ErrGone
	}
	r, err := d.bundle(rec.SessionID).read()
	if err != nil {
		return nil, gone(err)
	}
	switch {
	case r.Owner != rec.Owner || r.Incarnation != rec.Incarnation:
		return nil, fmt.Errorf("the name is taken by another: %w", sandbox.ErrGone)
	case r.BootID != bootID():
		return nil, fmt.Errorf("the host was restarted: %w", sandbox.ErrGone)
	case r.PID == 0:
		return nil, fmt.Errorf("it was never finished: %w", sandbox.ErrGone)
	}
	return d.open(r.PID, r)
}

// List implements sandbox.Driver.
func (d *Driver) List(_ context.Context, owner string) ([]sandbox.Record, error) {
	entries, err := os.ReadDir(d.sandboxesDir())
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var list []sandbox.Record
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		r, err := d.bundle(e.Name()).read()
		if err != nil {
			d.log.Warn("unreadable sandbox record", "sandbox", e.Name(), "error", err)
			continue
		}
		if r.Owner == owner {
			list = append(list, r.Record)
		}
	}
	return list, nil
}

// Destroy implements sandbox.Driver.
func (d *Driver) Destroy(ctx context.Context, rec sandbox.Record) error {
	if err := d.destroy(ctx, rec); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", rec.SessionID, err)
	}
	return nil
}

func (d *Driver) destroy(ctx context.Context, rec sandbox.Record) error {
	if !safeName.MatchString(rec.SessionID) {
		return errors.New("that is no session id")
	}
	b := d.bundle(rec.SessionID)
	r, err := b.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if r != nil && (r.Owner != rec.Owner || r.Incarnation != rec.Incarnation) {
		return nil // the one that rec names is gone already
	}
	if err := d.cg.killAll(ctx, rec.SessionID); err != nil {
		return err
	}
	rt, err := d.runtime(rec.Runtime)
	if err != nil {
		return err
	}
	if err := rt.remove(ctx, rec.SessionID); err != nil {
		return err
	}
	if err := d.cg.remove(rec.SessionID); err != nil {
		return err
	}
	return os.RemoveAll(string(b))
}

// notes say what this host cannot give to any sandbox.
func (d *Driver) notes() []string { return nil }
