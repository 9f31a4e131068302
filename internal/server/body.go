package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/strictjson"
)

// bodyShapes gives the shape of every JSON body of the API.
func bodyShapes() map[reflect.Type]*strictjson.Shape {
	m := make(map[reflect.Type]*strictjson.Shape)
	for i := range routes {
		if t := routes[i].bodyType(); t != nil {
			m[t] = shapeOf(t)
		}
	}
	return m
}

// firstRead is how much of a body is read before it counts against the bodies of
// its user. Most bodies are shorter.
const firstRead = 64 << 10

// decode reads the request's JSON body into v, a pointer to the route's body type.
func (s *Server) decode(x *exchange, r *request, v any) error {
	if err := wantType(r.Request, "application/json"); err != nil {
		return err
	}
	text, release, err := s.readBody(x, r)
	defer release()
	if err != nil {
		return err
	}
	if _, ok := v.(*client.CallCreate); !ok {
		defer x.large.free()
	}
	if err := decodeStrict(text, s.shapes[reflect.TypeOf(v).Elem()], v); err != nil {
		return invalid("the body is refused: "+err.Error(), "GET /v1/openapi.json has its schema")
	}
	return nil
}

// wantType refuses bodies that say they are something else.
func wantType(r *http.Request, want string) error {
	got := r.Header.Get("Content-Type")
	kind, params, err := mime.ParseMediaType(got)
	charset := strings.ToLower(params["charset"])
	if err != nil || kind != want || len(r.Header.Values("Content-Type")) > 1 || (charset != "" && charset != "utf-8") {
		return invalidStatus(http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type %q is not %s", plain.Cut(got, maxShown), want),
			"send the header Content-Type: "+want)
	}
	return nil
}

// readBody reads a whole body. Memory is spent as the bytes arrive, whatever
// length the header promised, and what exceeds firstRead counts against the
// user's share until release is called.
func (s *Server) readBody(x *exchange, r *request) (text []byte, release func(), err error) {
	if r.ContentLength > s.cfg.MaxBody {
		return nil, func() {}, s.tooLarge(s.cfg.MaxBody)
	}
	held, key := 0, int64(r.who.UID)
	release = func() { s.bodies.give(key, held) }
	body := http.MaxBytesReader(x.ResponseWriter, r.Body, s.cfg.MaxBody)
	size := int64(4 << 10)
	if r.ContentLength > 0 {
		size = min(r.ContentLength+1, firstRead)
	}
	text = make([]byte, 0, size)
	for {
		if len(text) == cap(text) {
			if err := s.weigh(x, r); err != nil {
				return nil, release, err
			}
			more := max(cap(text), firstRead)
			if !s.bodies.take(key, more) {
				return nil, release, &client.Error{
					Code:    client.CodeOverloaded,
					Message: "too many large requests of this user are being read", Hint: "send fewer of them at once",
				}
			}
			held += more
			text = append(make([]byte, 0, cap(text)+more), text...)
		}
		n, err := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if errors.Is(err, io.EOF) {
			return text, release, nil
		} else if err != nil {
			return nil, release, s.bodyFailed(err)
		}
	}
}

// large is the memory that a large request counts, until somebody frees it, once.
type large struct {
	mu      sync.Mutex
	release func()
}

func (l *large) free() {
	if release := l.take(); release != nil {
		release()
	}
}

// take takes over what is counted; nil for nothing.
func (l *large) take() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	release, l.release = l.release, nil
	return release
}

// largeKey is the context key of the *large of a request that another was made of.
type largeKey struct{}

// weigh counts the memory of a request that turns out to be large, once: until its call has
// ended, or it is answered. It waits for room for a while.
func (s *Server) weigh(x *exchange, r *request) error {
	if s.cfg.Requests == nil || x.large.release != nil {
		return nil
	}
	if outer, ok := r.Context().Value(largeKey{}).(*large); ok {
		if x.large.release = outer.take(); x.large.release != nil {
			return nil
		}
	}
	size := r.ContentLength
	if size < 0 {
		size = s.cfg.MaxBody
	}
	weight, key := int(min(s.cfg.Requests.WeighRequest(size), s.cfg.Requests.Share())), int64(r.who.UID)
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.RequestWait)
	defer cancel()
	if !s.requests.await(ctx, key, weight) {
		return &client.Error{
			Code:    client.CodeQuotaExceeded,
			Message: "the large requests of this user whose calls have not ended take all the memory that one user may have",
			Hint:    "wait for these calls to end, or abort some, and try again; or send smaller inputs",
		}
	}
	release, err := s.cfg.Requests.Request(ctx, size)
	if err != nil {
		s.requests.give(key, weight)
		return &client.Error{
			Code:    client.CodeOverloaded,
			Message: "the memory for large requests is in use", Hint: "try again in a moment, or send smaller inputs",
		}
	}
	x.large.release = func() {
		release()
		s.requests.give(key, weight)
	}
	return nil
}

// bodyFailed says why a body could not be read.
func (s *Server) bodyFailed(err error) error {
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return s.tooLarge(tooLong.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return invalidStatus(http.StatusRequestTimeout, "the body did not arrive in time",
			fmt.Sprintf("send it within %s", s.cfg.BodyTimeout))
	}
	return invalid("the body cannot be read: "+err.Error(), "send it whole, with a correct Content-Length or in chunks")
}

func (s *Server) tooLarge(limit int64) error {
	return invalidStatus(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %s", client.Size(limit)),
		"large files go through PUT /v1/sessions/{id}/files")
}

// noBody refuses a body where the route has none: it would be ignored.
func (s *Server) noBody(r *request) error {
	if r.ContentLength == 0 {
		return nil
	}
	var one [1]byte
	n, err := r.Body.Read(one[:])
	if n == 0 && errors.Is(err, io.EOF) {
		return nil
	}
	if n == 0 && err != nil {
		return s.bodyFailed(err)
	}
	return invalid(fmt.Sprintf("%s %s takes no body", r.Method, r.URL.Path), "send the request without one")
}
