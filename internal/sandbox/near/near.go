// Package near serves drivers whose sandboxes are processes of this host: it is what they
// do with one that lives. Package far is for the others.
package near

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/cgroup"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/process"
	"github.com/toold/toold/internal/sandbox/state"
)

// Base holds what is recorded of a sandbox of this host. The record of a driver embeds it.
type Base struct {
	state.Base
	// Own is the disk that comes with Furnish.
	Own    inside.Disk     `json:",omitzero"`
	Owners loopdisk.Owners `json:",omitzero"` // of its places
}

// Sandbox is one that lives. A driver embeds it, and has what is its own.
type Sandbox struct {
	Proc *process.Process // the agent
	// Tree has the sandbox's cgroup, by the name Group; nil where the tools have none of
	// their own.
	Tree  *cgroup.Tree
	Group string
	// Enclosed: its kernel is its own, so that the agent has cgroups that are not the host's.
	Enclosed bool

	rec   *Base
	late  loopdisk.Late
	close func() error
}

// New makes the Sandbox of a record. disks is the directory of disks. Close closes proc and
// then held; after an error of the driver's, the driver closes it.
func New(rec *Base, proc *process.Process, disks string, held ...io.Closer) *Sandbox {
	return &Sandbox{
		Proc: proc, rec: rec,
		late: loopdisk.Late{Dir: disks, Session: rec.SessionID, Disk: rec.Own, Owners: rec.Owners, Proc: proc},
		close: sync.OnceValue(func() error {
			err := proc.Close()
			for _, c := range held {
				err = errors.Join(err, c.Close())
			}
			return err
		}),
	}
}

// failed says of which sandbox an error is, and what could not be had.
func (s *Sandbox) failed(what string, err error) error {
	return fmt.Errorf("%s of sandbox %s: %w", what, s.rec.SessionID, process.Gone(err))
}

// Dialled is for the driver's Dial: what a connection to the agent, or the attempt, is to
// the caller. Nothing listens any more where the sandbox is gone.
func (s *Sandbox) Dialled(c *net.UnixConn, err error) (*net.UnixConn, error) {
	if errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("%w: %w", sandbox.ErrGone, err)
	}
	sandbox.Failed(&err, "dial", s.rec.SessionID)
	return c, err
}

// Record implements sandbox.Sandbox.
func (s *Sandbox) Record() sandbox.Record { return s.rec.Record }

// Held implements sandbox.Late.
func (s *Sandbox) Held() int64 { return s.late.Bytes() }

// Furnish implements sandbox.Late.
func (s *Sandbox) Furnish() error {
	if err := s.late.Furnish(); err != nil {
		return s.failed("disks", err)
	}
	return nil
}

// Attach implements sandbox.Sandbox.
func (s *Sandbox) Attach(_ context.Context, forkTID int) error {
	if s.Tree == nil || s.Enclosed || !s.Tree.AttachesThreads() {
		return nil
	}
	tid, err := s.Proc.Thread(forkTID)
	if err != nil {
		return s.failed("fork thread", err)
	}
	return s.Tree.AttachThread(s.Group, tid)
}

// CallCgroup implements sandbox.Sandbox. The descriptor is a mount of its own:
// a plain one would show the directories above by "..".
func (s *Sandbox) CallCgroup() (*os.File, error) {
	if s.Tree == nil || s.Enclosed {
		return nil, nil
	}
	f, err := s.Tree.OpenTools(s.Group)
	if err != nil {
		return nil, s.failed("call cgroup", err)
	}
	return f, nil
}

// Network is sandbox.Networked for sandboxes that have a network namespace of the host's.
func (s *Sandbox) Network() (*sandbox.Network, error) {
	n := new(sandbox.Network)
	if s.Tree != nil {
		n.Call = s.Tree.Call
	}
	var err error
	if n.Namespace, err = s.Proc.NetNamespace(); err == nil {
		n.Held, err = s.Proc.Sockets()
	}
	if err != nil {
		return nil, errors.Join(s.failed("network", err), n.Close())
	}
	return n, nil
}

// Notes implements sandbox.Sandbox.
func (s *Sandbox) Notes() (notes []string) {
	if s.Tree != nil {
		notes = s.Tree.Notes()
	}
	return append(notes, s.rec.Notes...)
}

// IDMap implements sandbox.Sandbox.
func (s *Sandbox) IDMap() string { return s.rec.IDMap }

// Usage implements sandbox.Sandbox where there is a Tree. Calls are not a driver's to know.
func (s *Sandbox) Usage(context.Context) (client.Usage, error) {
	if _, err := os.Stat(s.Tree.Dir(s.Group)); err != nil {
		return client.Usage{}, s.failed("usage", err)
	}
	u := s.Tree.Usage(s.Group)
	u.DiskBytes = s.Held()
	return u, nil
}

// IOBytes implements sandbox.Meter.
func (s *Sandbox) IOBytes() int64 { return s.count((*cgroup.Tree).IOBytes) }

// OOMKills implements sandbox.Sandbox.
func (s *Sandbox) OOMKills() int64 { return s.count((*cgroup.Tree).OOMKills) }

// PIDsHits implements sandbox.Sandbox.
func (s *Sandbox) PIDsHits() int64 { return s.count((*cgroup.Tree).PIDsHits) }

func (s *Sandbox) count(counter func(*cgroup.Tree, string) int64) int64 {
	if s.Tree == nil {
		return 0
	}
	return counter(s.Tree, s.Group)
}

// Done implements sandbox.Sandbox.
func (s *Sandbox) Done() <-chan struct{} { return s.Proc.Done() }

// Close implements sandbox.Sandbox.
func (s *Sandbox) Close() error { return s.close() }
