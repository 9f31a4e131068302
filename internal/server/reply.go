package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// encode writes v as one line of JSON. Characters that matter in HTML stay as
// they are: nobody embeds these answers in a page, and people read them.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b.Bytes(), nil
}

// answer is how most handlers end: with what their work gave, or its error.
func (x *exchange) answer(v any, err error) error {
	if err != nil {
		return err
	}
	return x.server.reply(x, x.route.status, v)
}

// done is answer for work that gives nothing.
func (x *exchange) done(err error) error {
	if err == nil {
		x.WriteHeader(http.StatusNoContent)
	}
	return err
}

// reply answers with v as JSON.
func (s *Server) reply(w http.ResponseWriter, status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	s.writeBody(w, status, "application/json", body)
	return nil
}

// writeBody sends a whole answer. A client that does not read it is cut off
// after WriteTimeout; that concerns nobody else and is not reported.
func (s *Server) writeBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	retryAfter(h, status)
	s.extendWrite(w)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// retryAfter says when the same request may be worth sending again, in seconds:
// what is overloaded, starts or stops is so for a moment, a place must be given
// back by somebody.
func retryAfter(h http.Header, status int) {
	switch status {
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusTooManyRequests:
		h.Set("Retry-After", "5")
	}
}

// extendWrite gives the client WriteTimeout from now to take what is written.
func (s *Server) extendWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
}
