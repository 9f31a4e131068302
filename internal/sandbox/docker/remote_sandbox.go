package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/far"
)

// watchPause is how long to wait before a lost Engine is asked again about a
// container.
const watchPause = time.Second

// RemoteSandbox is one container of an Engine on another host.
type RemoteSandbox struct {
	r     *Remote
	rec   *record
	done  chan struct{} // closed when the container has ended
	stop  context.CancelFunc
	ctx   context.Context // of what the sandbox does by itself
	work  sync.WaitGroup
	conns far.Tunnel
	close func() error
}

func newRemoteSandbox(r *Remote, rec *record) *RemoteSandbox {
	s := &RemoteSandbox{r: r, rec: rec, done: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.work.Go(s.watch)
	s.close = sync.OnceValue(func() error {
		s.stop()
		s.conns.Close()
		s.work.Wait()
		return nil
	})
	return s
}

// watch waits for the container's end. An Engine that does not answer is asked
// again: the container may live.
func (s *RemoteSandbox) watch() {
	for {
		ended, failed := s.r.d.engine.c.ContainerWait(s.ctx, s.rec.Container, container.WaitConditionNotRunning)
		select {
		case <-ended:
		case <-failed: //nolint:errcheck // the container itself is looked at then
		case <-s.ctx.Done():
			return
		}
		if errors.Is(s.r.running(s.ctx, s.rec.Container), sandbox.ErrGone) {
			close(s.done)
			return
		}
		select {
		case <-time.After(watchPause):
		case <-s.ctx.Done():
			return
		}
	}
}

// Record implements sandbox.Sandbox.
func (s *RemoteSandbox) Record() sandbox.Record { return s.rec.Record }

// Dial implements sandbox.Sandbox: the Engine starts a process in the container that
// carries this one connection.
func (s *RemoteSandbox) Dial(ctx context.Context) (_ *net.UnixConn, err error) {
	defer sandbox.Failed(&err, "dial", s.rec.SessionID)
	conn, reader, err := s.r.d.engine.execAttach(ctx, s.rec.Container, []string{sandbox.AgentPath, "connect", sandbox.ControlDir + "/socket"})
	if err != nil {
		if gone := s.r.running(ctx, s.rec.Container); errors.Is(gone, sandbox.ErrGone) {
			err = gone
		}
		return nil, err
	}
	return s.conns.Carry(conn, func(to io.Writer) error { return demultiplex(to, reader) })
}

// demultiplex takes the standard output out of what the Engine sends: frames with a
// header of eight bytes, the first of them the stream, the last four the length.
func demultiplex(w io.Writer, r io.Reader) error {
	var header [8]byte
	for {
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return err
		}
		to := w
		if header[0] != 1 {
			to = io.Discard
		}
		if _, err := io.CopyN(to, r, int64(binary.BigEndian.Uint32(header[4:]))); err != nil {
			return err
		}
	}
}

// Patience implements sandbox.Distant.
func (s *RemoteSandbox) Patience() time.Duration { return time.Minute }

// Attach implements sandbox.Sandbox: the Engine's limits hold for all processes.
func (s *RemoteSandbox) Attach(context.Context, int) error { return nil }

// CallCgroup implements sandbox.Sandbox: there is none on this host.
func (s *RemoteSandbox) CallCgroup() (*os.File, error) { return nil, nil }

// Notes implements sandbox.Sandbox.
func (s *RemoteSandbox) Notes() []string { return slices.Clone(s.rec.Notes) }

// IDMap implements sandbox.Sandbox.
func (s *RemoteSandbox) IDMap() string { return s.rec.IDMap }

// Usage implements sandbox.Sandbox.
func (s *RemoteSandbox) Usage(ctx context.Context) (client.Usage, error) {
	u, err := s.r.d.engine.usage(ctx, s.rec.Container)
	if err != nil {
		return client.Usage{}, fmt.Errorf("usage of sandbox %s: %w", s.rec.SessionID, err)
	}
	return u, nil
}

// OOMKills implements sandbox.Sandbox; the Engine does not say.
func (s *RemoteSandbox) OOMKills() int64 { return 0 }

// PIDsHits implements sandbox.Sandbox; the Engine does not say.
func (s *RemoteSandbox) PIDsHits() int64 { return 0 }

// Done implements sandbox.Sandbox.
func (s *RemoteSandbox) Done() <-chan struct{} { return s.done }

// Close implements sandbox.Sandbox.
func (s *RemoteSandbox) Close() error { return s.close() }
