package inside

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// welcome turns a stranger into the peer, or drops it.
func (s *Server) welcome(c *net.UnixConn) {
	known := func() { <-s.strangers }
	g := &greeting{UnixConn: c}
	in := wire.NewReader(g, wire.MaxHello)
	h, fd, held, err := s.greet(g, in)
	if err != nil {
		known()
		in.Release()
		s.over(c)
		s.cfg.Log.Warn("connection refused", "error", err)
		return
	}
	p := &peer{c: c, out: wire.NewWriter(c, 0), wg: &s.wg, at: make(map[uint64]*attached)}
	err = s.takeOver(p, h, fd)
	s.hold(held, err == nil)
	known()
	if err != nil {
		in.Release()
		s.lost(p) // it may be the peer, of whom nobody will read
		s.over(c)
		s.cfg.Log.Error("session not set up", "error", err)
		return
	}
	in.Follow(c, wire.MaxDown)
	s.listen(p, in)
}

// hold keeps descriptors in the place of those of the connection before, or closes them.
func (s *Server) hold(fds []int, peer bool) {
	if peer {
		s.mu.Lock()
		fds, s.held = s.held, fds
		s.mu.Unlock()
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// greeting is a connection whose reads also take descriptors, for as long as
// the first frame has not been read.
type greeting struct {
	*net.UnixConn
	fds []int
}

// Read implements net.Conn.
func (g *greeting) Read(p []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4*(1+wire.MaxHeld)))
	n, oobn, _, _, err := g.ReadMsgUnix(p, oob)
	if msgs, perr := unix.ParseSocketControlMessage(oob[:oobn]); perr == nil {
		for _, m := range msgs {
			fds, _ := unix.ParseUnixRights(&m)
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				g.fds = append(g.fds, fd)
			}
		}
	}
	return n, err
}

// greet reads hello. fd is that for the cgroups of calls, -1 for none, and held those to keep.
func (s *Server) greet(g *greeting, in *wire.Reader) (h wire.Hello, fd int, held []int, err error) {
	fd = -1
	defer func() {
		for _, f := range g.fds {
			if f != fd && !slices.Contains(held, f) {
				_ = unix.Close(f)
			}
		}
	}()
	stop, err := wire.BoundHello(s.ctx, g.UnixConn) // an agent that ends waits for nobody's
	defer stop()
	if err != nil {
		return h, fd, nil, err
	}
	frame, err := in.Next()
	if err != nil {
		return h, fd, nil, err
	}
	hd, body, err := wire.ParseFrame(frame)
	if err == nil && hd.Kind != wire.KindHello {
		err = fmt.Errorf("kind %d", hd.Kind)
	}
	if err != nil {
		return h, fd, nil, fmt.Errorf("no hello: %w", err)
	}
	if err := wire.Unmarshal(body, &h); err != nil {
		return h, fd, nil, fmt.Errorf("hello: %w", err)
	}
	if subtle.ConstantTimeCompare(h.Nonce, s.cfg.Nonce) != 1 {
		return h, fd, nil, errors.New("wrong nonce")
	}
	if h.Version != wire.Version {
		return h, fd, nil, fmt.Errorf("protocol version %d; this agent speaks %d", h.Version, wire.Version)
	}
	want := max(h.HeldCount, 0)
	if h.HasCgroup {
		want++
	}
	if h.HeldCount > wire.MaxHeld || len(g.fds) < want {
		return h, fd, nil, errors.New("hello without its descriptors")
	}
	if err := g.SetDeadline(time.Time{}); err != nil {
		return h, fd, nil, err
	}
	if h.HasCgroup {
		fd = g.fds[0]
	}
	return h, fd, slices.Clone(g.fds[want-max(h.HeldCount, 0) : want]), nil
}

// takeOver makes p the peer: what was attached to the one before is not any more.
func (s *Server) takeOver(p *peer, h wire.Hello, fd int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if s.session != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	} else {
		ses, err := s.setUp(h, fd)
		if err != nil {
			// The daemon shows this where it reports that no welcome came.
			return err
		}
		s.session = ses
		close(s.started)
		if h.Relay && s.cfg.Passage != nil {
			s.wg.Go(func() { s.cfg.Passage.Serve(s.ctx) })
		}
	}
	if old := s.peer; old != nil {
		_ = old.c.Close()
		s.goOn()
	}
	s.peer = p
	if s.orphan != nil {
		s.orphan.Stop()
	}
	w := wire.Welcome{Version: s.cfg.Version, ForkTID: s.session.programs.TID(), Notes: s.session.notes}
	for id, c := range s.calls {
		c.mu.Lock()
		if c.at != nil {
			c.at.gone = true
		}
		w.Calls = append(w.Calls, wire.CallState{ID: id, Finished: c.finished, Base: c.ring.base, End: c.ring.end})
		c.mu.Unlock()
	}
	slices.SortFunc(w.Calls, func(a, b wire.CallState) int { return strings.Compare(a.ID, b.ID) })
	body, err := wire.Marshal(w)
	if err != nil {
		return err
	}
	knows := int64(wire.KnowsHold)
	if s.session.programs.Hides() {
		knows |= wire.KnowsUnseen
	}
	return p.out.Write(wire.Head{Kind: wire.KindWelcome, N: knows | int64(run.Fingerprint(s.cfg.Tools))<<wire.ToolsShift}, body)
}
