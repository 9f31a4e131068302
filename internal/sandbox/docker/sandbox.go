package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/cgroup"
	"github.com/toold/toold/internal/sandbox/control"
	"github.com/toold/toold/internal/sandbox/process"
)

// Sandbox is one live container.
type Sandbox struct {
	d     *Driver
	rec   *record
	proc  *process.Process // the agent
	agent *control.Listener
	tree  *cgroup.Tree // nil: the container's cgroup is not divided
	group string       // the session's in it
	close func() error
}

func newSandbox(d *Driver, rec *record, proc *process.Process, l *control.Listener) *Sandbox {
	sb := &Sandbox{d: d, rec: rec, proc: proc, agent: l}
	sb.close = sync.OnceValue(func() error { return errors.Join(proc.Close(), l.Close()) })
	return sb
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

// Record implements sandbox.Sandbox.
func (s *Sandbox) Record() sandbox.Record { return s.rec.Record }

// Dial implements sandbox.Sandbox.
func (s *Sandbox) Dial(ctx context.Context) (*net.UnixConn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// One that is dead never dials.
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-s.Done():
			cancel(sandbox.ErrGone)
		case <-ctx.Done():
		}
	})
	c, err := s.agent.Dial(ctx)
	cancel(nil)
	watch.Wait()
	if err != nil {
		return nil, fmt.Errorf("dial sandbox %s: %w", s.rec.SessionID, err)
	}
	return c, nil
}

// Attach implements sandbox.Sandbox.
func (s *Sandbox) Attach(_ context.Context, forkTID int) error {
	if s.tree == nil || !s.tree.AttachesThreads() {
		return nil
	}
	tid, err := s.proc.Thread(forkTID)
	if err != nil {
		return fmt.Errorf("sandbox %s: find fork thread: %w", s.rec.SessionID, err)
	}
	return s.tree.AttachThread(s.group, tid)
}

// CallCgroup implements sandbox.Sandbox.
func (s *Sandbox) CallCgroup() (*os.File, error) {
	if s.tree == nil {
		return nil, nil
	}
	f, err := s.tree.OpenTools(s.group)
	if err != nil {
		return nil, fmt.Errorf("call cgroup of sandbox %s: %w", s.rec.SessionID, err)
	}
	return f, nil
}

// Notes implements sandbox.Sandbox.
func (s *Sandbox) Notes() []string {
	if s.tree == nil {
		return slices.Clone(s.rec.Notes)
	}
	return append(s.tree.Notes(), s.rec.Notes...)
}

// IDMap implements sandbox.Sandbox.
func (s *Sandbox) IDMap() string { return s.rec.IDMap }

// Usage implements sandbox.Sandbox. Without the container's cgroup it asks the
// Engine.
func (s *Sandbox) Usage(ctx context.Context) (client.Usage, error) {
	if err := s.proc.Alive(); err != nil {
		return client.Usage{}, fmt.Errorf("usage of sandbox %s: %w", s.rec.SessionID, err)
	}
	if s.tree != nil {
		return s.tree.Usage(s.group), nil
	}
	u, err := s.d.engine.usage(ctx, s.rec.Container)
	if err != nil {
		return client.Usage{}, fmt.Errorf("usage of sandbox %s: %w", s.rec.SessionID, err)
	}
	return u, nil
}

// IOBytes implements sandbox.Meter.
func (s *Sandbox) IOBytes() int64 {
	if s.tree == nil {
		return 0
	}
	return s.tree.IOBytes(s.group)
}

// OOMKills implements sandbox.Sandbox.
func (s *Sandbox) OOMKills() int64 {
	if s.tree == nil {
		return 0
	}
	return s.tree.OOMKills(s.group)
}

// PIDsHits implements sandbox.Sandbox.
func (s *Sandbox) PIDsHits() int64 {
	if s.tree == nil {
		return 0
	}
	return s.tree.PIDsHits(s.group)
}

// Done implements sandbox.Sandbox.
func (s *Sandbox) Done() <-chan struct{} { return s.proc.Done() }

// Close implements sandbox.Sandbox.
func (s *Sandbox) Close() error { return s.close() }

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
	if err := t.Owns(name, s.proc); err != nil {
		return err
	}
	s.tree, s.group = t, name
	return nil
}
