package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/plain"
)

// Files moves one file; that is a call of a hidden tool and recorded like any other.
// *session.Files implements it.
type Files interface {
	Upload(ctx context.Context, p auth.Principal, sessionID, path string, mode uint32, body io.Reader) (*client.Call, error)
	Download(ctx context.Context, p auth.Principal, sessionID, path string) (io.ReadCloser, int64, error)

	// Pack streams a tar of at most most bytes; call is the id of the call that makes it. A
	// reader that is closed ends the call.
	Pack(ctx context.Context, p auth.Principal, sessionID, path string, most int64) (tar io.ReadCloser, call string, err error)
	// Unpack unpacks a tar as it arrives. body is closed when the call ends; a Read that
	// waits must return then.
	Unpack(ctx context.Context, p auth.Principal, sessionID, path string, most int64, body io.ReadCloser) (*client.Call, error)
}

// fileRoutes are the handlers of routes about files.
type fileRoutes struct{ *Server }

// putFile gives the body to the sandbox as it arrives.
func (s fileRoutes) putFile(x *exchange, r *request) error {
	if r.query.Get("archive") != "" {
		return s.putTree(x, r)
	}
	mode, err := parseMode(r.query.Get("mode"))
	if err != nil {
		return err
	}
	return s.upload(x, r, s.cfg.MaxFile, s.fileTooLarge, func(body io.Reader) (any, error) {
		return s.cfg.API.Files.Upload(r.Context(), r.who, r.id, r.query.Get("path"), mode, body)
	})
}

// upload has take read a body of at most most bytes as it arrives, and answers with what
// that made of it.
func (s *Server) upload(x *exchange, r *request, most int64, tooLarge func() error, take func(io.Reader) (any, error)) error {
	if r.ContentLength > most {
		return tooLarge()
	}
	body := &uploadBody{s: s, x: x, from: http.MaxBytesReader(x.ResponseWriter, r.Body, most), tooLarge: tooLarge}
	made, err := take(body)
	if body.err != nil {
		return body.err // why it failed, whatever was made of it
	}
	return x.answer(made, err)
}

func (s fileRoutes) fileTooLarge() error {
	return invalidStatus(http.StatusRequestEntityTooLarge, fmt.Sprintf("the file is longer than %d bytes", s.cfg.MaxFile),
		"split it, or mount the directory that has it")
}

// uploadBody is the body of an upload. Each read may take BodyTimeout.
type uploadBody struct {
	s    *Server
	x    *exchange
	from io.Reader
	// tooLarge is the answer to a body that is longer than it may be.
	tooLarge func() error
	err      error // why reading failed, as the client is told

	mu   sync.Mutex // guards over
	over bool       // stop was called
}

// await gives the client until then for the next bytes; the zero time is for ever.
func (b *uploadBody) await(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.deadline(until)
	}
}

func (b *uploadBody) deadline(t time.Time) {
	_ = http.NewResponseController(b.x.ResponseWriter).SetReadDeadline(t)
}

// stop ends a Read that waits, and each that follows.
func (b *uploadBody) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	b.deadline(time.Unix(1, 0))
}

// Read implements io.Reader.
func (b *uploadBody) Read(p []byte) (int, error) {
	b.await(time.Now().Add(b.s.cfg.BodyTimeout))
	n, err := b.from.Read(p)
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		// net/http may have lifted the deadline before it was set above; left
		// alone it would end the context of a long write in the sandbox.
		b.await(time.Time{})
		return n, err
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		b.err = b.tooLarge()
	} else {
		b.err = b.s.bodyFailed(err)
	}
	return n, b.err
}

func parseMode(v string) (uint32, error) {
	if v == "" {
		return 0o644, nil
	}
	mode, err := strconv.ParseUint(v, 8, 32)
	if err != nil || mode > 0o777 {
		return 0, invalid(fmt.Sprintf("mode=%q is not permission bits in octal", plain.Cut(v, maxShown)), "such as 0644 or 0755")
	}
	return uint32(mode), nil
}

func (s fileRoutes) getFile(x *exchange, r *request) error {
	if r.query.Get("archive") != "" {
		if err := roleTenant.check(r.who); err != nil {
			return err
		}
		return s.getTree(x, r)
	}
	body, size, err := s.cfg.API.Files.Download(r.Context(), r.who, r.id, r.query.Get("path"))
	if err != nil {
		return err
	}
	defer body.Close()
	return s.sendBytes(x, r, body, size)
}

// sendBytes answers with the bytes of body: size of them, or all when it is
// negative. They are hostile, so nothing is said about what they are.
func (s *Server) sendBytes(x *exchange, r *request, body io.Reader, size int64) error {
	h := x.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-store")
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
		body = io.LimitReader(body, size)
	}
	if r.Method == http.MethodHead {
		x.WriteHeader(http.StatusOK)
		return nil
	}
	buf := make([]byte, 32<<10)
	sent := int64(0)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			sent += int64(n)
			if werr := s.sendPart(x, buf[:n], size < 0); werr != nil {
				return nil // the client is gone or too slow
			}
		}
		switch {
		case errors.Is(err, io.EOF) && size >= 0 && sent < size:
			return fmt.Errorf("read %d of %d bytes: %w", sent, size, io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			if x.status == 0 {
				x.WriteHeader(http.StatusOK)
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// sendPart writes p, at once when the reader follows something live.
func (s *Server) sendPart(x *exchange, p []byte, live bool) error {
	s.extendWrite(x)
	if _, err := x.Write(p); err != nil || !live {
		return err
	}
	return http.NewResponseController(x).Flush()
}
