package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/client"
)

// sse writes one text/event-stream. Its methods may be called from any goroutine.
// A client that does not take an event within WriteTimeout is cut off: the stream
// is broken from then on and swallows what it is given.
type sse struct {
	s *Server
	x *exchange

	mu     sync.Mutex // guards what follows and the order of writes
	buf    bytes.Buffer
	broken error
	last   time.Time // of the last write
}

// write sends one event. Data is JSON; line ends between its tokens are kept as
// such, since both \\n and \\r end a line of the stream.
func (e *sse) write(id, event string, data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.buf.Reset()
	if id != "" {
		e.field("id", id)
	}
	if event != "" {
		e.field("event", event)
	}
	for line := range bytes.FieldsFuncSeq(data, func(c rune) bool { return c == '\n' || c == '\r' }) {
		e.buf.WriteString("data: ")
		e.buf.Write(line)
		e.buf.WriteByte('\n')
	}
	e.buf.WriteByte('\n')
	return e.flushLocked()
}

// field writes one line; a value that would end it is left out.
func (e *sse) field(name, value string) {
	if !strings.ContainsAny(value, "\r\n\x00") {
		fmt.Fprintf(&e.buf, "%s: %s\n", name, value)
	}
}

// open sends the header, so that the client knows that it is connected.
func (e *sse) open() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.commentLocked()
}

// beat sends a comment when nothing was sent for a while. A stream that has not
// begun stays so: its answer may still become an error.
func (e *sse) beat() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.x.status != 0 && time.Since(e.last) >= e.s.cfg.Heartbeat {
		e.commentLocked()
	}
}

func (e *sse) commentLocked() {
	e.buf.Reset()
	e.buf.WriteString(":\n\n")
	_ = e.flushLocked()
}

// close ends the stream. Events that still come are swallowed: the answer that
// they would be written to is over.
func (e *sse) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken = errClosed
}

var errClosed = errors.New("event stream: closed")

// flushLocked sends the buffer, after the header if that has not been sent.
func (e *sse) flushLocked() error {
	if e.broken != nil {
		return e.broken
	}
	if e.x.status == 0 {
		h := e.x.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		e.x.WriteHeader(http.StatusOK)
	}
	e.last = time.Now()
	e.s.extendWrite(e.x)
	_, err := e.x.Write(e.buf.Bytes())
	if err == nil {
		err = http.NewResponseController(e.x).Flush()
	}
	if e.buf.Cap() > 1<<20 {
		e.buf = bytes.Buffer{} // one large event is no reason to keep its memory
	}
	if err != nil {
		e.broken = fmt.Errorf("event stream: %w", err)
	}
	return e.broken
}

// beating sends heartbeats until stop is called; stop waits for the goroutine.
func (e *sse) beating() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(e.s.cfg.Heartbeat)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				e.beat()
			}
		}
	}()
	return func() { close(done); <-ended }
}

// streamProgress answers with the events that run tells, and then with completed
// and what it returns, or with error and why there is nothing. Until the first event
// there is no header yet, so that what cannot begin is answered like any other
// request. It ends when the client goes.
func (s *Server) streamProgress(x *exchange, r *request, run func(ctx context.Context, tell func(event string, v any)) (any, error)) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := &sse{s: s, x: x}
	defer out.close()
	stop := out.beating()
	defer stop()
	made, err := run(ctx, func(event string, v any) {
		data, err := encode(v)
		if err != nil || out.write("", event, data) != nil {
			cancel()
		}
	})
	if err != nil && x.status == 0 {
		return err
	}
	event := "completed"
	if err != nil {
		event, made = "error", s.problemOf(r.Request, err)
	}
	data, err := encode(made)
	if err != nil {
		return err
	}
	_ = out.write("", event, data) // a client that is gone sees that there was no end
	return nil
}

// stream takes one of the user's places for streams; release gives it back.
func (s *Server) stream(r *request) (release func(), err error) {
	key := int64(r.who.UID)
	if !s.streams.take(key, 1) {
		return nil, &client.Error{
			Code:    client.CodeQuotaExceeded,
			Message: fmt.Sprintf("uid %d has %d streams open, the maximum", r.who.UID, s.cfg.MaxStreams),
			Hint:    "close some: event streams, streamed calls, followed outputs and file transfers count",
		}
	}
	return func() { s.streams.give(key, 1) }, nil
}
