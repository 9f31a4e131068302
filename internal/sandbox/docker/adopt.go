package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/control"
	"github.com/toold/toold/internal/sandbox/process"
	"github.com/toold/toold/internal/sandbox/state"
)

// Adopt implements sandbox.Driver. It does not need the Engine.
func (d *Driver) Adopt(_ context.Context, rec sandbox.Record) (_ sandbox.Sandbox, err error) {
	defer sandbox.Failed(&err, "adopt", rec.SessionID)
	if !state.IsName(rec.SessionID) {
		return nil, sandbox.ErrGone
	}
	r, err := d.place(rec.SessionID).read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("nothing is left of it: %w", sandbox.ErrGone)
	}
	if err == nil {
		err = r.Lives(&rec.ID)
	}
	if err != nil {
		return nil, err
	}
	proc, err := process.Open(r.PID, r.PIDStart, nil)
	if err != nil {
		return nil, err
	}
	agent := newPeer()
	agent.known(r.PID)
	l, err := control.Listen(d.place(rec.SessionID).control(), agent.check)
	if err != nil {
		return nil, errors.Join(err, proc.Close())
	}
	sb := newSandbox(d, r, proc, l)
	if err := errors.Join(sb.find(), proc.Alive()); err != nil {
		return nil, errors.Join(err, sb.Close())
	}
	return sb, nil
}
