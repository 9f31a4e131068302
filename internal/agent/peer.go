package agent

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/toold/toold/internal/tool/run"
)

// peer is one connection that has shown the nonce.
type peer struct {
	c   *net.UnixConn
	out frameWriter
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
func (s *Server) listen(p *peer, in *frameReader) {
	r := &relay{patience: patience, wg: &s.wg}
	r.listen = func() { s.wg.Go(func() { s.listenOn(p, in, r) }) }
	s.listenOn(p, in, r)
}

// listenOn is one goroutine's part in listen. Work on files is done by who has read
// the request: it has a thread that is awake, and to wake another one costs more
// than most files do.
func (s *Server) listenOn(p *peer, in *frameReader, r *relay) {
	for {
		work, err := s.next(p, in)
		switch {
		case err != nil:
			r.close()
			in.release()
			s.lost(p)
			s.over(p.c)
			return
		case work == nil:
		case in.more():
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
func (s *Server) next(p *peer, in *frameReader) (work func(), err error) {
	frame, err := in.next()
	if err != nil {
		return nil, err
	}
	h, body, err := parseFrame(frame)
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
			x.call.cancel(&endedError{reason: run.ReasonAborted})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peer != p {
		return
	}
	s.peer = nil
	if ms := s.session.hello.OrphanMillis; ms > 0 && s.ctx.Err() == nil {
		s.orphan = time.AfterFunc(time.Duration(ms)*time.Millisecond, s.orphaned)
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
func (s *Server) take(p *peer, h head, body []byte) (work func(), err error) {
	switch h.Kind {
	case kindPrepare, kindRun:
		var r request
		if err := wire.dec.Unmarshal(body, &r); err != nil {
			return nil, err
		}
		if h.Kind == kindPrepare {
			return s.prepare(p, h, r)
		}
		return s.run(p, h, r)
	default:
		return nil, s.takeOther(p, h, body)
	}
}

// takeOther is take for messages that bring no work.
func (s *Server) takeOther(p *peer, h head, body []byte) error {
	switch h.Kind {
	case kindPing:
		return p.out.write(head{Kind: kindDone, ID: h.ID}, emptyDone)
	case kindResume:
		var r resume
		if err := wire.dec.Unmarshal(body, &r); err != nil {
			return err
		}
		return s.resume(p, h, r)
	case kindCredit, kindGrant, kindDetach:
		p.update(h)
		return nil
	case kindAck:
		if c := s.call(string(body)); c != nil {
			c.ack(h.N)
		}
		return nil
	case kindForget:
		s.forget(string(body))
		return nil
	case kindAbort:
		var a abort
		if err := wire.dec.Unmarshal(body, &a); err != nil {
			return err
		}
		if c := s.call(a.CallID); c != nil {
			c.cancel(&endedError{reason: run.Reason(a.Reason)})
			c.update(nil, func() {})
		}
		return nil
	case kindFreeTmp:
		s.wg.Go(func() { s.freeTmp(p, h.ID) })
		return nil
	default:
		return errors.New("no such message in this direction")
	}
}

// emptyDone is a done without anything.
var emptyDone = []byte{0xa0}

// update changes an exchange of p: credit, grant or detach. One that is over is
// no error, the messages may have crossed.
func (p *peer) update(h head) {
	p.mu.Lock()
	x := p.at[h.ID]
	p.mu.Unlock()
	if x == nil {
		return
	}
	x.call.update(x.a, func() {
		switch h.Kind {
		case kindCredit:
			x.a.limit = max(x.a.limit, h.N)
		case kindGrant:
			x.a.granted = true
		case kindDetach:
			x.a.detached = true
		}
	})
	if h.Kind == kindDetach && x.prepare {
		x.call.cancel(&endedError{reason: run.ReasonAborted})
	}
}

// attach begins to send c to p.
func (s *Server) attach(p *peer, x *attached) {
	p.mu.Lock()
	if p.at == nil {
		p.mu.Unlock()
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

func (p *peer) refuse(id uint64, d done) error {
	body, err := wire.enc.Marshal(d)
	if err != nil {
		return err
	}
	return p.out.write(head{Kind: kindDone, ID: id}, body)
}

func (s *Server) freeTmp(p *peer, id uint64) {
	var d done
	if err := s.session.spawner.freeTmp(s.ctx, s.session.hello.Tmp, "/dev/shm"); err != nil {
		d.Err = run.Errorf(run.CodeSandboxFailed, "free temporary files: %v", err)
	}
	if err := p.refuse(id, d); err != nil {
		_ = p.c.Close()
	}
}
