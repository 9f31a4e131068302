package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/control"
	"github.com/toold/toold/internal/sandbox/near"
	"github.com/toold/toold/internal/sandbox/process"
)

// Sandbox is one live container. It has no Tree where the container's cgroup is not divided.
type Sandbox struct {
	*near.Sandbox
	d     *Driver
	rec   *record
	agent *control.Listener
}

func newSandbox(d *Driver, rec *record, proc *process.Process, l *control.Listener) *Sandbox {
	return &Sandbox{near.New(&rec.Base, proc, d.disks.Dir, l), d, rec, l}
}

// peer lets the agent alone connect, once it is known which process that is.
type peer struct {
	ready chan struct{}
	once  sync.Once
	pid   int
}

func newPeer() *peer { return &peer{ready: make(chan struct{})} }

// known says which process is the agent; 0: none is.
func (p *peer) known(pid int) {
	p.once.Do(func() { p.pid = pid; close(p.ready) })
}

var errStranger = errors.New("it is not the agent")

func (p *peer) check(c *unix.Ucred) error {
	<-p.ready
	if p.pid == 0 || int(c.Pid) != p.pid {
		return errStranger
	}
	return nil
}

// Dial implements sandbox.Sandbox.
func (s *Sandbox) Dial(ctx context.Context) (*net.UnixConn, error) {
	return s.Dialled(s.agent.Dial(ctx, s.Done()))
}

// Usage implements sandbox.Sandbox. Without the container's cgroup it asks the
// Engine.
func (s *Sandbox) Usage(ctx context.Context) (client.Usage, error) {
	if s.Tree != nil {
		return s.Sandbox.Usage(ctx)
	}
	err := s.Proc.Alive()
	var u client.Usage
	if err == nil {
		u, err = s.d.engine.usage(ctx, s.rec.Container)
	}
	if err != nil {
		return client.Usage{}, fmt.Errorf("usage of sandbox %s: %w", s.rec.SessionID, err)
	}
	u.DiskBytes = s.Held()
	return u, nil
}

// find opens the cgroups of a record's container.
func (s *Sandbox) find() error {
	if !s.rec.Divided {
		return nil
	}
	parent, name := path.Split(s.rec.Group)
	t, err := s.d.tree(path.Clean(parent))
	if err != nil {
		return err
	}
	if err := t.Owns(name, s.Proc); err != nil {
		return err
	}
	s.Tree, s.Group = t, name
	return nil
}
