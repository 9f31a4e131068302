package agent

import (
	"errors"
	"io"
	"sync"

	"github.com/toold/toold/internal/wire"
)

// feeder sends an agent the body of a request, as far as the agent wants it.
type feeder struct {
	c    *Conn
	x    *exchange
	body io.ReadCloser
	over chan struct{} // closed by stop
	done chan struct{}

	mu      sync.Mutex // guards the fields below
	begun   bool       // body is being read
	stopped bool
}

// feed begins to send body. The caller calls stop when the exchange is over.
func (c *Conn) feed(x *exchange, body io.ReadCloser) *feeder {
	f := &feeder{c: c, x: x, body: body, over: make(chan struct{}), done: make(chan struct{})}
	go f.run()
	return f
}

// stop ends the sending, and closes the body if any of it was read: a call that has not
// run may be run again.
func (f *feeder) stop() {
	f.mu.Lock()
	f.stopped = true
	begun := f.begun
	f.mu.Unlock()
	close(f.over)
	if begun {
		_ = f.body.Close() // so that a Read returns
	}
	<-f.done
}

// begin reports whether the body may be read.
func (f *feeder) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = !f.stopped
	return f.begun
}

func (f *feeder) run() {
	defer close(f.done)
	buf := make([]byte, wire.MaxChunk)
	for sent := int64(0); ; {
		room := f.x.wanted() - sent
		if room <= 0 {
			select {
			case <-f.x.wants:
				continue
			case <-f.over:
				return
			}
		}
		if !f.begin() {
			return
		}
		n, err := f.body.Read(buf[:min(int64(len(buf)), room)])
		if n > 0 && f.send(sent, false, buf[:n]) != nil {
			return
		}
		sent += int64(n)
		if err == nil {
			continue
		}
		var why []byte
		if !errors.Is(err, io.EOF) {
			why = []byte(wire.Cut(err.Error()))
		}
		_ = f.send(sent, true, why) // the error ends the connection, and so the exchange
		return
	}
}

func (f *feeder) send(at int64, last bool, p []byte) error {
	return f.c.send(wire.Head{Kind: wire.KindInput, ID: f.x.id, N: at, Flag: last}, p)
}

// wanted is the offset below which input may be sent.
func (x *exchange) wanted() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.want
}

// takeWant is take for KindWant.
func (x *exchange) takeWant(h wire.Head, body []byte) error {
	switch {
	case x.wants == nil:
		return errors.New("input is wanted, but there is none")
	case h.N <= x.want || len(body) > 0:
		return errors.New("input is wanted again")
	}
	x.want = h.N
	select {
	case x.wants <- struct{}{}:
	default:
	}
	return nil
}
