package mcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
)

// TestResources: whole outputs and files, bounded; all else is not there.
func TestResources(t *testing.T) {
	d := newDaemon(t)
	d.answers("GET /v1/calls/call_1", 200, d.call(client.CallRunning, nil))
	d.answers("GET /v1/calls/call_2", 200, d.call(client.CallRunning, func(c *client.Call) { c.SessionID = "ses_2" }))
	d.answers("GET /v1/calls/call_4", 404, problem(404, client.CodeNotFound, "no call"))
	d.answers("GET /v1/calls/call_5", 200, d.call(client.CallRunning, func(c *client.Call) { c.ID = "call_5" }))
	d.answers("GET /v1/calls/call_5/output", 410, problem(410, client.CodeConflict, "the output is gone"))
	d.on("GET /v1/calls/call_1/output", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "all of it\n") })
	d.on("GET /v1/sessions/ses_1/files", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("path") {
		case "a b":
			_, _ = io.WriteString(w, "text")
		case "bin":
			_, _ = io.WriteString(w, "\x89PNG\r\n\x1a\n\xff")
		case "big":
			_, _ = io.WriteString(w, strings.Repeat("x", maxResource+1))
		case ".env":
			reply(w, 403, problem(403, client.CodeDenied, "a rule denies it"))
		case "cut":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "short")
		default:
			reply(w, 404, problem(404, client.CodeNotFound, "no file"))
		}
	})
	a := d.serve(Config{})
	for _, tt := range []struct{ uri, text, err string }{
		{"toold://calls/call_1/output", "all of it\n", ""},
		{"toold://calls/call_2/output", "", "not found"},
		{"toold://calls/call_4/output", "", "not found"},
		{"toold://calls/call_5/output", "", "the output is gone"},
		{"toold://worktree/a%20b", "text", ""},
		{"toold://worktree/none", "", "not found"},
		{"toold://worktree/.env", "", "a rule denies it"},
		{"toold://worktree/big", "", "larger than 8 MiB"},
		{"toold://worktree/cut", "", "unexpected EOF"},
		{"toold://worktree/..%2Fx", "", "not found"},
		{"toold://worktree/%2Fetc%2Fpasswd", "", "not found"},
		{"toold://nothing/x", "", "not found"},
	} {
		r, err := a.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: tt.uri})
		switch {
		case tt.err != "" && (err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(tt.err))):
			t.Errorf("%s: %v, want %q", tt.uri, err, tt.err)
		case tt.err == "" && err != nil:
			t.Errorf("%s: %v", tt.uri, err)
		case tt.err == "" && (len(r.Contents) != 1 || r.Contents[0].Text != tt.text || r.Contents[0].URI != tt.uri):
			t.Errorf("%s: %+v", tt.uri, r.Contents[0])
		}
	}
	r, err := a.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "toold://worktree/bin"})
	testrig.Must(t, err)
	if c := r.Contents[0]; len(c.Blob) != 9 || c.Text != "" || c.MIMEType != "image/png" {
		t.Errorf("%+v", c)
	}
}

// http serves the session over HTTP. refused gets what is no answer of the protocol; stop
// ends requests as a server that stops does.
func (d *daemon) http() (endpoint string, refused chan *Refused, stop func()) {
	d.t.Helper()
	stopping := errors.New("stopping")
	h := NewHandler(stopping, slog.New(slog.DiscardHandler))
	refused = make(chan *Refused, 10)
	ended, stopAll := context.WithCancelCause(context.Background())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer context.AfterFunc(ended, func() { cancel(context.Cause(ended)) })()
		r = r.WithContext(ctx)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if no := h.Serve(w, Request{Credential: "uid 0", Body: body, HTTP: r, Patience: time.Minute}, Config{Client: d.client, Session: "ses_1"}); no != nil {
			refused <- no
			w.WriteHeader(no.Status)
		}
	}))
	d.t.Cleanup(func() { stopAll(stopping); s.CloseClientConnections(); s.Close() })
	return s.URL, refused, func() { stopAll(stopping) }
}

func (d *daemon) overHTTP(endpoint string) *agent {
	return newAgent(d.t, &sdk.StreamableClientTransport{Endpoint: endpoint, DisableStandaloneSSE: true, MaxRetries: -1}, "test")
}

// TestOverHTTP: a request whose client hangs up aborts its call; one that ends because the
// server stops is answered with what there is, and its call goes on.
func TestOverHTTP(t *testing.T) {
	d := newDaemon(t)
	more := make(chan event)
	d.streams(more, event{"running", d.call(client.CallRunning, nil)}, output(0, "begun\n"))
	endpoint, refused, stop := d.http()
	begin := func(ctx context.Context) (*agent, chan answered) {
		a, done := d.overHTTP(endpoint), make(chan answered, 1)
		go func() {
			if r, err := a.call(ctx, "bash", in{}); err == nil {
				done <- answered{Output: r.Content[0].(*sdk.TextContent).Text, IsError: r.IsError}
			}
			close(done)
		}()
		for !a.said("begun") {
			<-a.heard
		}
		return a, done
	}
	_, done := begin(t.Context())
	more <- event{"completed", d.call(client.CallCompleted, func(c *client.Call) { c.Output = "fine" })}
	if out := <-done; out.Output != "fine" {
		t.Errorf("%+v", out)
	}

	ctx, cancel := context.WithCancel(t.Context())
	_, done = begin(ctx)
	cancel()
	<-d.aborted
	<-done

	<-d.left
	_, done = begin(t.Context())
	stop()
	if out, answered := <-done; answered { // or its connection was cut
		testrig.Wants(t, out.Output, "begun", "has not ended")
	}
	<-d.left
	select {
	case <-d.aborted:
		t.Error("a server that stops aborts calls")
	default:
	}

	for body, status := range map[string]int{"{": 400, "": 400} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", endpoint, strings.NewReader(body))
		testrig.Must(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(r)
		testrig.Must(t, err)
		_ = resp.Body.Close()
		if no := <-refused; no.Status != status || no.Text == "" || resp.StatusCode != status {
			t.Errorf("%q: %+v", body, no)
		}
	}
}
