package mcp

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// Refused is an answer that is none of the protocol: the SDK gives those in plain words.
type Refused struct {
	Status int
	Text   string
}

// plainAnswer is what the SDK writes to. Each write may take a time, and what is refused in
// plain words is kept.
type plainAnswer struct {
	http.ResponseWriter
	patience time.Duration
	status   int // of an answer in plain words
	text     bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (a *plainAnswer) WriteHeader(status int) {
	if status >= 400 && strings.HasPrefix(a.Header().Get("Content-Type"), "text/plain") {
		a.status = status
		return
	}
	a.Header().Set("Cache-Control", "no-store")
	a.extend()
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *plainAnswer) Write(p []byte) (int, error) {
	if a.status != 0 {
		return a.text.Write(p)
	}
	a.extend()
	return a.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (a *plainAnswer) Flush() {
	if a.status == 0 {
		_ = http.NewResponseController(a.ResponseWriter).Flush() // a client that is gone is found by the next write
	}
}

// extend gives the client its time from now on.
func (a *plainAnswer) extend() {
	_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(a.patience))
}

// refused is what was kept, nil for nothing.
func (a *plainAnswer) refused() *Refused {
	if a.status == 0 {
		return nil
	}
	a.Header().Del("Content-Type")
	return &Refused{Status: a.status, Text: a.text.String()}
}
