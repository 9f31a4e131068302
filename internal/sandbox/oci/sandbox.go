package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/control"
	"github.com/toold/toold/internal/sandbox/process"
)

// Sandbox is one live container.
type Sandbox struct {
	d     *Driver
	rec   *record
	proc  *process.Process  // the agent
	stdio *os.File          // what the agent prints; nil after Adopt
	agent *control.Listener // where the agent dials; nil: it listens
	close func() error
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
// where nothing else is born.
func (d *Driver) open(pid int, rec *record, stdio *os.File) (*Sandbox, error) {
	sb := &Sandbox{d: d, rec: rec, stdio: stdio}
	sb.close = sync.OnceValue(sb.closeFiles)
	var err error
	if rec.Dials {
		if sb.agent, err = d.listenControl(rec); err != nil {
			return nil, err
		}
	}
	if sb.proc, err = process.Open(pid, rec.PIDStart, sb.exited); err != nil {
		return nil, errors.Join(err, sb.stopListening())
	}
	if err := errors.Join(d.cg.Owns(rec.SessionID, sb.proc), sb.proc.Alive()); err != nil {
		return nil, errors.Join(err, sb.proc.Close(), sb.stopListening())
	}
	rec.PID, rec.PIDStart = pid, sb.proc.Start()
	return sb, nil
}

// stopListening ends Dial for an agent that dials.
func (s *Sandbox) stopListening() error {
	if s.agent == nil {
		return nil
	}
	return s.agent.Close()
}

// exited says what the agent has had to say at its end, and that it dials no more.
func (s *Sandbox) exited() {
	_ = s.stopListening()
	if s.stdio == nil {
		return
	}
	if text := printed(s.stdio); text != "" {
		s.d.log.Warn("agent has exited with a message", "sandbox", s.rec.SessionID, "printed", text)
	}
}

func gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", sandbox.ErrGone, err)
	}
	return err
}

func (s *Sandbox) closeFiles() error {
	err := errors.Join(s.proc.Close(), s.stopListening())
	if s.stdio != nil {
		err = errors.Join(err, s.stdio.Close())
	}
	return err
}

// Record implements sandbox.Sandbox.
func (s *Sandbox) Record() sandbox.Record { return s.rec.Record }

// Dial implements sandbox.Sandbox.
func (s *Sandbox) Dial(ctx context.Context) (*net.UnixConn, error) {
	var c *net.UnixConn
	var err error
	if s.agent != nil {
		c, err = s.agent.Dial(ctx)
	} else {
		c, err = dial(ctx, s.d.bundle(s.rec.SessionID))
	}
	if errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("%w: %w", sandbox.ErrGone, err)
	}
	if err != nil {
		return nil, fmt.Errorf("dial sandbox %s: %w", s.rec.SessionID, err)
	}
	return c, nil
}

// SelfLimiting implements sandbox.SelfLimiting.
func (s *Sandbox) SelfLimiting() bool { return s.rec.Dials }

// Attach implements sandbox.Sandbox.
func (s *Sandbox) Attach(_ context.Context, forkTID int) error {
	if s.rec.Dials {
		return nil
	}
	if !s.d.cg.AttachesThreads() {
		return nil
	}
	tid, err := s.proc.Thread(forkTID)
	if err != nil {
		return fmt.Errorf("sandbox %s: find fork thread: %w", s.rec.SessionID, err)
	}
	return s.d.cg.AttachThread(s.rec.SessionID, tid)
}

// CallCgroup implements sandbox.Sandbox. The descriptor is a mount of its own:
// a plain one would show the directories above by "..".
func (s *Sandbox) CallCgroup() (*os.File, error) {
	if s.rec.Dials {
		return nil, nil // the agent has one of its own
	}
	f, err := s.d.cg.OpenTools(s.rec.SessionID)
	if err != nil {
		return nil, fmt.Errorf("call cgroup of sandbox %s: %w", s.rec.SessionID, err)
	}
	return f, nil
}

// Notes implements sandbox.Sandbox.
func (s *Sandbox) Notes() []string { return append(s.d.cg.Notes(), s.rec.Notes...) }

// IDMap implements sandbox.Sandbox.
func (s *Sandbox) IDMap() string { return s.rec.IDMap }

// Usage implements sandbox.Sandbox. Calls are not the driver's to know.
func (s *Sandbox) Usage(context.Context) (client.Usage, error) {
	if _, err := os.Stat(s.d.cg.Dir(s.rec.SessionID)); err != nil {
		return client.Usage{}, fmt.Errorf("usage of sandbox %s: %w", s.rec.SessionID, gone(err))
	}
	u := s.d.cg.Usage(s.rec.SessionID)
	u.DiskBytes = s.diskBytes()
	return u, nil
}

// IOBytes implements sandbox.Meter.
func (s *Sandbox) IOBytes() int64 { return s.d.cg.IOBytes(s.rec.SessionID) }

// OOMKills implements sandbox.Sandbox.
func (s *Sandbox) OOMKills() int64 { return s.d.cg.OOMKills(s.rec.SessionID) }

// PIDsHits implements sandbox.Sandbox.
func (s *Sandbox) PIDsHits() int64 { return s.d.cg.PIDsHits(s.rec.SessionID) }

// Done implements sandbox.Sandbox.
func (s *Sandbox) Done() <-chan struct{} { return s.proc.Done() }

// Close implements sandbox.Sandbox.
func (s *Sandbox) Close() error { return s.close() }
