package inside

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/toold/toold/internal/agent/inside/exec"
	"github.com/toold/toold/internal/deadline"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// peer is one connection that has shown the nonce.
type peer struct {
	c   *net.UnixConn
	out *wire.Writer
	wg  *sync.WaitGroup // of the server, for what sends
	mu  sync.Mutex      // guards at
	at  map[uint64]*attached
}

type attached struct {
	call *call
	a    *attachment
	// prepare ends with the exchange; a Run goes on.
	prepare bool
}

// listen serves p until its connection ends.
func (s *Server) listen(p *peer, in *wire.Reader) {
	r := &relay{patience: patience, wg: &s.wg}
	r.listen = func() { s.wg.Go(func() { s.listenOn(p, in, r) }) }
	s.listenOn(p, in, r)
}

// listenOn is one goroutine's part in listen. Work on files is done by who has read
// the request: it has a thread that is awake, and to wake another one costs more
// than most files do.
func (s *Server) listenOn(p *peer, in *wire.Reader, r *relay) {
	for {
		work, err := s.next(p, in)
		switch {
		case err != nil:
			r.close()
			in.Release()
			s.lost(p)
			s.over(p.c)
			return
		case work == nil:
		case in.More():
			r.listen()
			work()
			return
		default:
			turn := r.begin()
			work()
			if !r.end(turn) {
				return
			}
			if s.session.root.Err() != nil {
				// The thread may have kept the tool user's identity, and ends with its goroutine.
				r.listen()
				return
			}
		}
	}
}

// next takes one message. The error says that the connection is over.
func (s *Server) next(p *peer, in *wire.Reader) (work func(), err error) {
	frame, err := in.Next()
	if err != nil {
		return nil, err
	}
	h, body, err := wire.ParseFrame(frame)
	if err == nil {
		work, err = s.take(p, h, body)
	}
	if err != nil {
		s.cfg.Log.Error("connection closed", "kind", int(h.Kind), "error", err)
	}
	return work, err
}

// lost cleans up after a connection. Runs go on.
func (s *Server) lost(p *peer) {
	_ = p.c.Close()
	p.mu.Lock()
	at := p.at
	p.at = nil
	p.mu.Unlock()
	for _, x := range at {
		x.call.update(nil, func() { x.a.gone = true })
		if x.prepare {
			x.call.cancel(&exec.EndedError{Reason: run.ReasonAborted})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peer != p {
		return
	}
	s.peer = nil
	s.goOn()
	if ms := s.session.hello.OrphanMillis; ms > 0 && s.ctx.Err() == nil {
		s.orphan = time.AfterFunc(time.Duration(ms)*time.Millisecond, s.orphaned)
	}
}

// pause lets a call's time stand still, for most milliseconds from its beginning, or go on for 0.
// A connection that another has followed holds nothing: nobody would let it go on.
func (s *Server) pause(p *peer, id string, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[id]
	switch {
	case c == nil || s.peer != p:
	case most > 0:
		c.clock.Hold(time.Duration(min(most, deadline.Forever.Milliseconds())) * time.Millisecond)
	default:
		c.clock.Release()
	}
}

// goOn lets the time of all calls go on: who held it is not there any more. The caller
// holds mu.
func (s *Server) goOn() {
	for _, c := range s.calls {
		c.clock.Release()
	}
}

func (s *Server) orphaned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peer == nil {
		s.cancel(ErrOrphaned)
	}
}

// take acts on one message. It never waits for a call: work, if there is any, is
// for the caller to do when somebody else listens. Errors close the connection.
func (s *Server) take(p *peer, h wire.Head, body []byte) (work func(), err error) {
	switch h.Kind {
	case wire.KindPrepare, wire.KindRun:
		var r wire.Request
		if err := wire.Unmarshal(body, &r); err != nil {
			return nil, err
		}
		if h.Kind == wire.KindPrepare {
			return s.prepare(p, h, r)
		}
		return s.run(p, h, r)
	default:
		return nil, s.takeOther(p, h, body)
	}
}

// takeOther is take for messages that bring no work.
func (s *Server) takeOther(p *peer, h wire.Head, body []byte) error {
	switch h.Kind {
	case wire.KindPing:
		return p.out.Write(wire.Head{Kind: wire.KindDone, ID: h.ID}, emptyDone)
	case wire.KindResume:
		var r wire.Resume
		if err := wire.Unmarshal(body, &r); err != nil {
			return err
		}
		return s.resume(p, h, r)
	case wire.KindCredit, wire.KindGrant, wire.KindDetach:
		p.update(h)
		return nil
	case wire.KindInput:
		return p.input(h, body)
	case wire.KindAck:
		if c := s.call(string(body)); c != nil {
			c.ack(h.N)
		}
		return nil
	case wire.KindForget:
		s.forget(string(body))
		return nil
	case wire.KindAbort:
		var a wire.Abort
		if err := wire.Unmarshal(body, &a); err != nil {
			return err
		}
		if c := s.call(a.CallID); c != nil {
			c.cancel(&exec.EndedError{Reason: run.Reason(a.Reason)})
			c.update(nil, func() {})
		}
		return nil
	case wire.KindHold:
		s.pause(p, string(body), h.N)
		return nil
	case wire.KindFreeTmp:
		s.wg.Go(func() { s.freeTmp(p, h) })
		return nil
	default:
		return errors.New("no such message in this direction")
	}
}

// emptyDone is a done without anything.
var emptyDone = []byte{0xa0}

// update changes an exchange of p: credit, grant or detach. One that is over is
// no error, the messages may have crossed.
func (p *peer) update(h wire.Head) {
	p.mu.Lock()
	x := p.at[h.ID]
	p.mu.Unlock()
	if x == nil {
		return
	}
	x.call.update(x.a, func() {
		switch h.Kind {
		case wire.KindCredit:
			x.a.limit = max(x.a.limit, h.N)
		case wire.KindGrant:
			x.a.granted = true
		case wire.KindDetach:
			x.a.detached = true
		}
	})
	if h.Kind == wire.KindDetach && x.prepare {
		x.call.cancel(&exec.EndedError{Reason: run.ReasonAborted})
	}
}

// attach begins to send c to p.
func (s *Server) attach(p *peer, x *attached) {
	p.mu.Lock()
	if p.at == nil { // it was lost meanwhile
		p.mu.Unlock()
		x.call.update(nil, func() { x.a.gone = true })
		return
	}
	p.at[x.a.id] = x
	p.mu.Unlock()
	x.call.attach(x.a)
}

// leave ends an exchange of p, and p itself when something could not be sent.
func (p *peer) leave(id uint64, err error) {
	if err != nil {
		_ = p.c.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.at, id)
}

func (p *peer) refuse(id uint64, d wire.Done) error {
	body, err := wire.Marshal(d)
	if err != nil {
		return err
	}
	return p.out.Write(wire.Head{Kind: wire.KindDone, ID: id}, body)
}

func (s *Server) freeTmp(p *peer, h wire.Head) {
	var d wire.Done
	if err := s.session.freeTmp(s.ctx, h.N); err != nil {
		d.Err = run.Errorf(run.CodeSandboxFailed, "free temporary files: %v", err)
	}
	if err := p.refuse(h.ID, d); err != nil {
		_ = p.c.Close()
	}
}
