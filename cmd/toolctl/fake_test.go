package main

import (
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/toold/toold/client"
)

// fakeDaemon answers on a Unix socket as toold does, with the handlers that a
// test gives it. It keeps what it was asked.
type fakeDaemon struct {
	t      *testing.T
	socket string
	mux    *http.ServeMux

	mu       sync.Mutex // guards requests
	requests []fakeRequest
}

type fakeRequest struct {
	method, path, query string
	body                []byte
	header              http.Header
}

// startFake serves handlers by ServeMux pattern until the test ends.
func startFake(t *testing.T, handlers map[string]http.HandlerFunc) *fakeDaemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "toolctl-test-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &fakeDaemon{t: t, socket: filepath.Join(dir, "toold.sock"), mux: http.NewServeMux()}
	for pattern, h := range handlers {
		d.mux.HandleFunc(pattern, h)
	}
	d.serve(t)
	return d
}

func (d *fakeDaemon) serve(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: d, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); <-done })
}

// ServeHTTP keeps the request and answers a problem for unknown routes.
func (d *fakeDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	d.mu.Lock()
	d.requests = append(d.requests, fakeRequest{r.Method, r.URL.Path, r.URL.RawQuery, body, r.Header})
	d.mu.Unlock()
	if _, pattern := d.mux.Handler(r); pattern == "" {
		answerProblem(w, http.StatusNotFound, client.CodeNotFound, "the fake has no "+r.Method+" "+r.URL.Path)
		return
	}
	d.mux.ServeHTTP(w, r)
}

// asked gives the requests of this method whose path ends so.
func (d *fakeDaemon) asked(method, suffix string) []fakeRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []fakeRequest
	for _, r := range d.requests {
		if r.method == method && strings.HasSuffix(r.path, suffix) {
			found = append(found, r)
		}
	}
	return found
}

// ctl runs toolctl against the fake.
func (d *fakeDaemon) ctl(args ...string) result {
	d.t.Helper()
	return ctl(d.t, context.Background(), "", append([]string{"--socket", d.socket}, args...)...)
}

type result struct {
	code           int
	stdout, stderr string
}

func ctl(t *testing.T, ctx context.Context, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	a := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errOut, getenv: func(string) string { return "" }}
	code := run(ctx, args, a)
	return result{code, out.String(), errOut.String()}
}

// want fails unless the exit code is this and both outputs contain these texts.
func (r result) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.stdout, stdout) || !strings.Contains(r.stderr, stderr) {
		t.Errorf("exit %d, want %d\nstdout %q, want %q\nstderr %q, want %q", r.code, code, r.stdout, stdout, r.stderr, stderr)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func answerWith(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, v) }
}

func answerProblem(w http.ResponseWriter, status int, code client.Code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(client.Problem{Type: "about:blank", Status: status, Code: code, Detail: detail, Hint: "try otherwise"})
}

func problemWith(status int, code client.Code) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answerProblem(w, status, code, "it is so") }
}

const (
	fakeSession = "ses_0123"
	fakeCall    = "call_0123"
)

func session() client.Session {
	return client.Session{
		ID: fakeSession, Name: "review", State: client.SessionReady, Tenant: "default", Profile: "build", Driver: "oci", Runtime: "runc",
		Worktree: client.Worktree{Source: "/src", Mode: client.WorktreeBind, Target: "/workspace"},
		Network:  client.Network{Mode: "none"}, Labels: map[string]string{"job": "42"},
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Usage:   client.Usage{CPUMillis: 1500, MemoryBytes: 3 << 20, PIDs: 4, Calls: 5},
	}
}

// bashDone is a finished call of bash with this metadata.
func bashDone(output string, metadata map[string]any) client.Call {
	return client.Call{
		ID: fakeCall, SessionID: fakeSession, Tool: "bash", Status: client.CallCompleted,
		Input: json.RawMessage(`{}`), Output: output, Metadata: metadata,
	}
}

func exited(code int) map[string]any {
	return map[string]any{"exit_code": code, "reason": "exit", "duration_ms": 12}
}

// stream answers a call with these events, then with the finished call.
func stream(final client.Call, outputs ...client.Output) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept"), "event-stream") {
			answer(w, http.StatusOK, final)
			return
		}
		sendEvent(w, "pending", client.Call{ID: final.ID, SessionID: final.SessionID, Status: client.CallPending})
		for _, o := range outputs {
			sendEvent(w, "output", o)
		}
		sendEvent(w, string(final.Status), final)
	}
}

func sendEvent(w http.ResponseWriter, kind string, data any) {
	w.Header().Set("Content-Type", "text/event-stream")
	b, _ := json.Marshal(data)
	fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, b)
	w.(http.Flusher).Flush()
}
