// Package within carries HTTP requests to a handler of the same process, so that a part of
// a server can be a client of the whole.
package within

import (
	"context"
	"io"
	"net/http"
)

// Transport has a handler answer requests.
type Transport struct {
	Handler http.Handler
	// Context is what the handler is to find in a request's context.
	Context func(context.Context) context.Context
}

// RoundTrip implements http.RoundTripper. The handler ends, at the latest, when the
// answer's body is closed.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(t.Context(r.Context()))
	in, out := io.Pipe()
	a := &answer{header: make(http.Header), out: out, begun: make(chan int, 1)}
	q := r.Clone(ctx)
	if q.Body == nil {
		q.Body = http.NoBody
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		failed := io.ErrUnexpectedEOF // a panic, by which a handler cuts its answer
		defer func() {
			if recover() == nil {
				failed = nil
				a.WriteHeader(http.StatusOK)
			}
			_ = out.CloseWithError(failed)
		}()
		t.Handler.ServeHTTP(a, q)
	}()
	b := &body{PipeReader: in, cancel: cancel, done: done}
	select {
	case status := <-a.begun:
		return &http.Response{
			Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: a.sent, ContentLength: -1, Body: b, Request: r,
		}, nil
	case <-done: // it was cut before it began
	case <-ctx.Done():
	}
	_ = b.Close()
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	return nil, io.ErrUnexpectedEOF
}

// body is the body of an answer.
type body struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

// Close ends the handler and waits for it.
func (b *body) Close() error {
	b.cancel()
	err := b.PipeReader.Close()
	<-b.done
	return err
}

// answer is what a handler writes to.
type answer struct {
	header, sent http.Header
	out          *io.PipeWriter
	begun        chan int // gets the status, once
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.sent == nil {
		a.sent = a.header.Clone()
		a.begun <- status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.out.Write(p)
}

// Flush implements http.Flusher: nothing is held back.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }
