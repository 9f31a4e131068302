package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/control"
	"github.com/toold/toold/internal/sandbox/near"
	"github.com/toold/toold/internal/sandbox/process"
)

// Sandbox is one live container.
type Sandbox struct {
	*near.Sandbox
	d     *Driver
	rec   *record
	agent *control.Listener // where the agent dials; nil: it listens
}

// pid reads the pid file that the runtime wrote.
func (b bundle) pid() (int, error) {
	pid, err := readNumber(b.File("pid"))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("the runtime left no pid in %s", b.File("pid"))
	}
	return pid, nil
}

// open pins the agent. That it is the session's process is seen from its cgroup,
// where nothing else is born. stdio is what the agent prints; nil after Adopt.
func (d *Driver) open(pid int, rec *record, stdio *os.File) (*Sandbox, error) {
	proc, err := process.Open(pid, rec.PIDStart, func() { d.lastWords(rec.SessionID, stdio) })
	if err != nil {
		return nil, err
	}
	sb := &Sandbox{d: d, rec: rec}
	held := []io.Closer{}
	if err = errors.Join(d.cg.Owns(rec.SessionID, proc), proc.Alive()); err == nil && rec.Dials {
		if sb.agent, err = d.listenControl(rec); err == nil {
			held = append(held, sb.agent)
		}
	}
	if err != nil {
		return nil, errors.Join(err, proc.Close())
	}
	if stdio != nil {
		held = append(held, stdio)
	}
	rec.PID, rec.PIDStart = pid, proc.Start()
	sb.Sandbox = near.New(&rec.Base, proc, d.disksDir(), held...)
	sb.Tree, sb.Group, sb.Enclosed = d.cg, rec.SessionID, rec.Dials
	return sb, nil
}

// lastWords says what the agent of a sandbox has had to say at its end.
func (d *Driver) lastWords(session string, stdio *os.File) {
	if stdio == nil {
		return
	}
	if text := printed(stdio); text != "" {
		d.log.Warn("agent has exited with a message", "sandbox", session, "printed", text)
	}
}

// Dial implements sandbox.Sandbox.
func (s *Sandbox) Dial(ctx context.Context) (*net.UnixConn, error) {
	if s.agent != nil {
		return s.Dialled(s.agent.Dial(ctx, s.Done()))
	}
	return s.Dialled(dial(ctx, s.d.bundle(s.rec.SessionID)))
}

// SelfLimiting implements sandbox.SelfLimiting.
func (s *Sandbox) SelfLimiting() bool { return s.rec.Dials }

// Usage implements sandbox.Sandbox.
func (s *Sandbox) Usage(ctx context.Context) (client.Usage, error) {
	u, err := s.Sandbox.Usage(ctx)
	u.DiskBytes += s.diskBytes()
	return u, err
}
