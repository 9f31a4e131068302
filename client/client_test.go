package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// daemon serves h on a socket of its own and gives a client for it.
func daemon(t *testing.T, o Options, h http.HandlerFunc) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "client") // t.TempDir is too long for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o.Socket = filepath.Join(dir, "s")
	ln, err := net.Listen("unix", o.Socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	c := New(o)
	t.Cleanup(func() { c.Close(); _ = srv.Close(); wg.Wait() })
	return c
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	if _, ok := v.(Problem); ok {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// hangUp closes the connection without an answer.
func hangUp(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func TestRequest(t *testing.T) {
	c := daemon(t, Options{Tenant: "a", Token: "tok"}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		answer(w, 200, Version{Version: fmt.Sprintf("%s %s %s %s %q", r.Method, r.URL, r.Header.Get("Toold-Tenant"), r.Header.Get("Authorization"), b)})
	})
	v, err := c.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := `GET /v1/version a Bearer tok ""`; v.Version != want {
		t.Errorf("the daemon got %s, want %s", v.Version, want)
	}
	if _, err := c.GetSession(t.Context(), "../x?y"); err != nil {
		t.Errorf("an id that needs escapes: %v", err)
	}
}

func TestProblems(t *testing.T) {
	for name, tt := range map[string]struct {
		write func(http.ResponseWriter)
		want  Error
	}{
		"problem": {
			func(w http.ResponseWriter) {
				answer(w, 409, Problem{Status: 409, Detail: "key taken", Code: CodeConflict, Hint: "use another", Violations: []Violation{{Path: "/key"}}})
			},
			Error{Code: CodeConflict, Message: "key taken", Hint: "use another", Status: 409},
		},
		"plain text": {func(w http.ResponseWriter) { http.Error(w, "400 Bad Request", 400) }, Error{Code: CodeInvalidRequest, Message: "the daemon answered 400 Bad Request", Status: 400}},
		"of a proxy": {func(w http.ResponseWriter) { http.Error(w, "<html>", http.StatusBadGateway) }, Error{Code: CodeInternal, Message: "the daemon answered 502 Bad Gateway", Status: 502}},
		"redirect":   {func(w http.ResponseWriter) { w.Header().Set("Location", "http://evil/"); w.WriteHeader(302) }, Error{Code: CodeInvalidRequest, Message: "the daemon answered 302 Found", Status: 302}},
		"no code":    {func(w http.ResponseWriter) { answer(w, 404, Problem{}) }, Error{Code: CodeInvalidRequest, Message: "the daemon answered 404 Not Found", Status: 404}},
	} {
		t.Run(name, func(t *testing.T) {
			c := daemon(t, Options{}, func(w http.ResponseWriter, _ *http.Request) { tt.write(w) })
			_, err := c.GetSession(t.Context(), "ses_1")
			var e *Error
			if !errors.As(err, &e) || e.Code != tt.want.Code || e.Message != tt.want.Message || e.Hint != tt.want.Hint || e.Status != tt.want.Status {
				t.Errorf("got %#v, want %#v", err, tt.want)
			}
			if name == "problem" && (len(e.Violations) != 1 || e.Error() != "conflict: key taken (use another)") {
				t.Errorf("got %v with violations %v", e, e.Violations)
			}
		})
	}
}

func TestNotTheJSONExpected(t *testing.T) {
	c := daemon(t, Options{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	if _, err := c.Version(t.Context()); err == nil || !strings.Contains(err.Error(), "not the JSON expected") {
		t.Errorf("got %v", err)
	}
	for _, err := range c.Events(t.Context(), EventQuery{}) {
		if err == nil || !strings.Contains(err.Error(), "not an event stream") {
			t.Errorf("got %v", err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{filepath.Join(dir, "none"), stale, dir} {
		c := New(Options{Socket: socket})
		_, err := c.Version(t.Context())
		checkUnreachable(t, err, socket)
		for _, err := range c.Events(t.Context(), EventQuery{}) {
			checkUnreachable(t, err, socket) // at once, without attempts to resume
		}
		for _, err := range c.StreamCall(t.Context(), "ses_1", CallCreate{Key: "k"}, CallOptions{}) {
			checkUnreachable(t, err, socket)
		}
		for _, err := range c.FollowCall(t.Context(), "call_1", 0) {
			checkUnreachable(t, err, socket)
		}
	}
	denied := &UnreachableError{Socket: "/s", Err: os.ErrPermission}
	if !strings.Contains(denied.Error(), "may not open") || !errors.Is(denied, os.ErrPermission) {
		t.Errorf("got %v", denied)
	}
	if New(Options{}).Socket() != DefaultSocket {
		t.Error("no default socket")
	}
}

func checkUnreachable(t *testing.T, err error, socket string) {
	t.Helper()
	var u *UnreachableError
	if !errors.As(err, &u) || u.Socket != socket || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("%s: got %v, want unreachable", socket, err)
	}
}

func TestDisconnected(t *testing.T) {
	c := daemon(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/version" {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"version":`)
		}
		hangUp(w)
	})
	_, err := c.Version(t.Context())
	_, err2 := c.CreateSession(t.Context(), SessionCreate{})
	_, err3 := c.Ready(t.Context())
	for _, err := range []error{err, err2, err3} {
		if !errors.Is(err, ErrDisconnected) {
			t.Errorf("got %v, want ErrDisconnected", err)
		}
	}
}

// TestTimeouts: HTTPTimeout bounds what does not wait for work, and only that.
func TestTimeouts(t *testing.T) {
	c := daemon(t, Options{HTTPTimeout: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/calls") && !strings.HasSuffix(r.URL.Path, "/abort") { // no answer, however late it is looked for
			<-r.Context().Done()
			return
		}
		select {
		case <-r.Context().Done():
		case <-time.After(300 * time.Millisecond):
			answer(w, 200, struct{}{})
		}
	})
	if _, err := c.Version(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("Version: %v, want a deadline", err)
	}
	if _, err := c.CreateCall(t.Context(), "ses_1", CallCreate{}, CallOptions{}); err != nil {
		t.Errorf("CreateCall: %v", err)
	}
	if _, err := c.AbortCall(t.Context(), "call_1"); err != nil {
		t.Errorf("AbortCall: %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, err := c.CreateSession(ctx, SessionCreate{}); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("CreateSession: %v, want the context's cause", err)
	}
}

func TestHealthWithStatus(t *testing.T) {
	status, body := 503, any(Health{Status: "draining", Reasons: []string{"stopping"}})
	c := daemon(t, Options{}, func(w http.ResponseWriter, _ *http.Request) { answer(w, status, body) })
	if h, err := c.Ready(t.Context()); err != nil || h.Status != "draining" || len(h.Reasons) != 1 {
		t.Errorf("got %+v, %v", h, err)
	}
	status, body = 403, Problem{Code: CodeForbidden, Detail: "no"}
	if _, err := c.Health(t.Context()); err == nil || err.Error() != "forbidden: no" {
		t.Errorf("got %v, want forbidden", err)
	}
}

func TestReadMessages(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"one", "id: 1\nevent: a\ndata: x\n\n", "1/a/x;"},
		{"two", "data: x\n\ndata: y\n\n", "//x;//y;"},
		{"CRLF", "id: 1\r\ndata: x\r\n\r\n", "1//x;"},
		{"comments", ":\n\n: hi\ndata: x\n\n:\n", "//x;"},
		{"lines of data", "data: {\ndata: }\n\n", "//{\n};"},
		{"no space", "data:x\nevent:e\n\n", "/e/x;"},
		{"one space of two", "data:  x\n\n", "// x;"},
		{"empty data", "data\n\n", "//;"},
		{"without data", "id: 1\nevent: a\n\ndata: x\n\n", "//x;"},
		{"cut off", "data: x\n\ndata: y\n", "//x;"},
		{"cut in a line", "data: x\n\ndata: y", "//x;"},
		{"unknown field", "retry: 5\nwhat: 6\ndata: x\n\n", "//x;"},
		{"empty", "", ""},
		{"long line", "data: " + strings.Repeat("x", 1<<20) + "\n\n", "//" + strings.Repeat("x", 1<<20) + ";"},
	} {
		var got strings.Builder
		err := readMessages(strings.NewReader(tt.text), 2<<20, func(m message) error {
			fmt.Fprintf(&got, "%s/%s/%s;", m.id, m.event, m.data)
			return nil
		})
		if !errors.Is(err, ErrDisconnected) || got.String() != tt.want {
			t.Errorf("%s: got %.100q, %v; want %.100q", tt.name, got.String(), err, tt.want)
		}
	}
	stop := errors.New("stop")
	if err := readMessages(strings.NewReader("data: x\n\n"), 100, func(message) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the consumer's error became %v", err)
	}
	if err := readMessages(io.MultiReader(strings.NewReader("data: x\n\n"), endless{}), 1<<20, func(message) error { return nil }); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("an endless line: %v", err)
	}
	if err := readMessages(strings.NewReader(strings.Repeat("data: xxxx\n", 100)), 100, func(message) error { return nil }); err == nil || !strings.Contains(err.Error(), "longer than 100") {
		t.Errorf("an event of many lines: %v", err)
	}
	if err := readMessages(io.MultiReader(strings.NewReader("data: x\n"), breaking{}), 100, func(message) error { return nil }); !errors.Is(err, ErrDisconnected) {
		t.Errorf("a broken connection: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type breaking struct{}

func (breaking) Read([]byte) (int, error) { return 0, net.ErrClosed }

// FuzzReadMessages: no stream makes the parser panic or invent data.
func FuzzReadMessages(f *testing.F) {
	f.Add("id: 1\nevent: a\ndata: x\ndata: y\n\n")
	f.Add(":\r\n\r\ndata\n\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		err := readMessages(strings.NewReader(text), 1<<20, func(m message) error {
			if strings.ContainsAny(m.id+m.event, "\n") || len(m.data) > len(text) {
				t.Errorf("message %+v from %q", m, text)
			}
			return nil
		})
		if !errors.Is(err, ErrDisconnected) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// TestErrorText: every error ends with what to do next.
func TestErrorText(t *testing.T) {
	for code, next := range nextSteps {
		if got := (&Error{Code: code, Message: "it is so"}).Text(); got != "it is so\n"+next || next == "" {
			t.Errorf("%s: %q", code, got)
		}
		if got := (&Error{Code: code, Message: "it is so", Hint: "do that"}).Text(); got != "it is so\ndo that" {
			t.Errorf("%s: %q", code, got)
		}
	}
}
