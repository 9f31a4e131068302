package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/testrig"
)

func input(s string) json.RawMessage { return json.RawMessage(s) }

// TestStreamCall: the events of a call, in order, with the short names.
func TestStreamCall(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	for tool, last := range map[string]string{"echo": "completed", "fail": "error", "silent": "completed"} {
		var kinds []string
		var final client.Call
		for e, err := range d.client(client.Options{}).StreamCall(t.Context(), s.ID, client.CallCreate{Tool: tool, Input: input(`{"a":"b\nc"}`)}, client.CallOptions{}) {
			if err != nil {
				t.Fatalf("%s: %v", tool, err)
			}
			kinds = append(kinds, e.Type)
			switch e.Type {
			case "output":
				var o client.Output
				if err := json.Unmarshal(e.Data, &o); err != nil || string(o.Bytes()) != `{"a":"b\nc"}` {
					t.Errorf("%s: output %+v, %v", tool, o, err)
				}
			case "completed", "error":
				if err := json.Unmarshal(e.Data, &final); err != nil {
					t.Error(err)
				}
			}
		}
		if want := []string{"pending", "output", "metadata", last}; !slices.Equal(kinds, want) {
			t.Errorf("%s: events %v, want %v", tool, kinds, want)
		}
		if final.Tool != tool || !final.Finished() {
			t.Errorf("%s: final call %+v", tool, final)
		}
	}
}

// TestStreamOnTheWire: what curl shows.
func TestStreamOnTheWire(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	resp, body := d.do(t, "POST", "/v1/sessions/"+s.ID+"/calls", `{"tool":"echo","input":"<&>"}`, "Accept", "text/event-stream")
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type %q", got)
	}
	if !strings.Contains(body, "id: evt_9\nevent: output\ndata: {\"offset\":0,") || !strings.HasSuffix(body, "\n\n") {
		t.Errorf("stream:\n%s", body)
	}
}

// TestStreamErrors: a call that cannot be made is answered as if no stream was
// asked for.
func TestStreamErrors(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	for _, tt := range []struct {
		path, body string
		status     int
		code       client.Code
	}{
		{s.ID, `{"tool":"lost","input":{}}`, 410, client.CodeSessionLost},
		{"ses_none", `{"tool":"echo","input":{}}`, 404, client.CodeNotFound},
		{s.ID, `{"tool":"echo","input":{},"wait_ms":5}`, 400, client.CodeInvalidRequest},
		{s.ID, `{"tool":"broken","input":{}}`, 500, client.CodeInternal},
		{s.ID, `{"tool":"panic","input":{}}`, 500, client.CodeInternal},
	} {
		resp, body := d.do(t, "POST", "/v1/sessions/"+tt.path+"/calls", tt.body, "Accept", "application/json;q=0.5, text/event-stream")
		if p := problem(t, body); resp.StatusCode != tt.status || p.Code != tt.code {
			t.Errorf("%s: %d %s, want %d %s", tt.body, resp.StatusCode, body, tt.status, tt.code)
		}
	}
	for _, err := range d.client(client.Options{}).StreamCall(t.Context(), s.ID, client.CallCreate{Tool: "lost", Input: input(`{}`)}, client.CallOptions{}) {
		if asError(t, err).Code != client.CodeSessionLost {
			t.Errorf("StreamCall: %v, want session_lost", err)
		}
	}
}

// TestWait: 202 with the call as it stands, and 200 when it has finished.
func TestWait(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	path := "/v1/sessions/" + s.ID + "/calls"
	resp, body := d.do(t, "POST", path, `{"tool":"wait","input":{},"wait_ms":0}`)
	if resp.StatusCode != 202 || !strings.Contains(body, `"status":"running"`) {
		t.Errorf("wait_ms 0: %d %s, want 202 running", resp.StatusCode, body)
	}
	close(d.api.release)
	if resp, body := d.do(t, "POST", path, `{"tool":"wait","input":{}}`); resp.StatusCode != 200 || !strings.Contains(body, `"status":"completed"`) {
		t.Errorf("without wait_ms: %d %s, want 200 completed", resp.StatusCode, body)
	}
	// Denied is an answer with a record, and therefore 200.
	if resp, body := d.do(t, "POST", path, `{"tool":"fail","input":{}}`); resp.StatusCode != 200 || !strings.Contains(body, `"code":"denied"`) {
		t.Errorf("denied: %d %s, want 200 with the error in the call", resp.StatusCode, body)
	}
}

// TestDisconnect: a call goes on without its client, unless that asked otherwise.
func TestDisconnect(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	for _, abort := range []bool{false, true} {
		for _, streamed := range []bool{false, true} {
			before := d.aborts()
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if !testrig.Soon(func() bool { return d.waiting() == 1 }) {
					t.Errorf("abort %v, stream %v: the call does not wait", abort, streamed)
				}
				cancel()
			})
			o := client.CallOptions{AbortOnDisconnect: abort}
			r := client.CallCreate{Tool: "wait", Input: input(`{}`)}
			var err error
			if streamed {
				for _, err = range d.client(client.Options{}).StreamCall(ctx, s.ID, r, o) {
				}
			} else {
				_, err = d.client(client.Options{}).CreateCall(ctx, s.ID, r, o)
			}
			wg.Wait()
			if !errors.Is(err, context.Canceled) {
				t.Errorf("abort %v, stream %v: client got %v, want canceled", abort, streamed, err)
			}
			if !testrig.Soon(func() bool { return d.waiting() == 0 }) {
				t.Errorf("abort %v, stream %v: the client is still waited for", abort, streamed)
			}
			if got := d.aborts(); abort && got != before+1 {
				t.Errorf("stream %v: the call was not aborted", streamed)
			} else if !abort && got != before {
				t.Errorf("stream %v: the call was aborted", streamed)
			}
		}
	}
	if !testrig.Soon(d.streams.unused) {
		t.Error("streams are still counted")
	}
}

func (d *daemon) aborts() int {
	d.api.mu.Lock()
	defer d.api.mu.Unlock()
	return d.api.aborted
}

// waiting is how many clients the tool "wait" keeps waiting.
func (d *daemon) waiting() int {
	d.api.mu.Lock()
	defer d.api.mu.Unlock()
	return d.api.waiting
}

// TestHeartbeat: a silent stream gets comments; a call's stream that has not
// begun gets none, since its answer may become an error.
func TestHeartbeat(t *testing.T) {
	d := start(t, func(c *Config) { c.Heartbeat = 20 * time.Millisecond })
	c := d.dial(t)
	fmt.Fprint(c, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(resp.Body) // closing it would read it to its end, which it does not have
	s := d.session(t, client.Options{}, client.SessionCreate{})
	if resp, body := d.do(t, "POST", "/v1/sessions/"+s.ID+"/calls", `{"tool":"late","input":{}}`, "Accept", "text/event-stream"); resp.StatusCode != 503 {
		t.Errorf("a call that is refused late: %d %s, want 503", resp.StatusCode, body)
	}
	for range 6 {
		line, err := br.ReadString('\n')
		if err != nil || line != ":\n" && line != "\n" && !strings.Contains(line, "session.created") && !strings.HasPrefix(line, "id:") {
			t.Fatalf("line %q, %v; want comments", line, err)
		}
	}
}

// TestEvents: the stream begins where Last-Event-ID says, carries whole events,
// and the filter reaches the manager.
func TestEvents(t *testing.T) {
	d := start(t, nil)
	for range 3 {
		d.session(t, client.Options{}, client.SessionCreate{})
	}
	var ids []string
	q := client.EventQuery{Session: "ses_1", Type: "session.*", After: "evt_1", Stored: true}
	for e, err := range d.client(client.Options{}).Events(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != client.EventSessionCreated || e.Session == "" || e.Time.IsZero() {
			t.Errorf("event %+v", e)
		}
		if ids = append(ids, e.ID); len(ids) == 2 {
			break
		}
	}
	if want := []string{"evt_2", "evt_3"}; !slices.Equal(ids, want) {
		t.Errorf("events %v, want %v", ids, want)
	}
	d.api.mu.Lock()
	got := d.api.filter
	d.api.mu.Unlock()
	if want := (event.Filter{Session: "ses_1", Type: "session.*", After: "evt_1", Stored: true}); got != any(want) {
		t.Errorf("filter %+v, want %+v", got, want)
	}
	for _, bad := range [][2]string{{"?type=a%20b", ""}, {"?type=*x", ""}, {"?session=-", ""}, {"", "evt"}, {"", "evt_;drop"}, {"", "17"}} {
		if resp, body := d.do(t, "GET", "/v1/events"+bad[0], "", "Last-Event-ID", bad[1]); resp.StatusCode != 400 && bad[1] != "" || bad[0] != "" && resp.StatusCode != 400 {
			t.Errorf("%v: %d %s, want 400", bad, resp.StatusCode, body)
		}
	}
}

// TestOutput: parts, sizes and ends of an output.
func TestOutput(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	c, err := d.client(client.Options{}).CreateCall(t.Context(), s.ID, client.CallCreate{Tool: "echo", Input: input(`"0123456789"`)}, client.CallOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := "/v1/calls/" + c.ID + "/output"
	for _, tt := range []struct {
		method, query string
		status        int
		body, length  string
	}{
		{"GET", "", 200, `"0123456789"`, "12"},
		{"GET", "?offset=8", 200, `789"`, "4"},
		{"GET", "?offset=12", 200, "", "0"},
		{"GET", "?offset=12&follow=1", 200, "", ""},
		{"GET", "?follow=1&offset=10", 200, `9"`, ""},
		{"GET", "?offset=10&stream=stdout", 200, `9"`, ""},
		{"GET", "?offset=13", 416, "", ""},
		{"GET", "?offset=-1", 400, "", ""},
		{"GET", "?stream=stdin", 400, "", ""},
		{"HEAD", "", 200, "", "12"},
		{"HEAD", "?follow=1", 200, "", "12"},
	} {
		resp, body := send(t, d.socket, tt.method, path+tt.query, "")
		if resp.StatusCode != tt.status || tt.status == 200 && body != tt.body {
			t.Errorf("%s %s: %d %q, want %d %q", tt.method, tt.query, resp.StatusCode, body, tt.status, tt.body)
		}
		if tt.length != "" && resp.Header.Get("Content-Length") != tt.length {
			t.Errorf("%s %s: Content-Length %q, want %s", tt.method, tt.query, resp.Header.Get("Content-Length"), tt.length)
		}
	}
	if want := (client.OutputQuery{}); d.api.filter != any(want) {
		t.Errorf("HEAD asked for %+v, want %+v", d.api.filter, want)
	}
}

// cutAPI gives outputs that break in the middle.
type cutAPI struct{ Calls }

func (cutAPI) Output(context.Context, auth.Principal, string, client.OutputQuery) (io.ReadCloser, int64, error) {
	return io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{})), 10, nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("disk gone") }

// TestCutOutput: an output that cannot be read to its end does not look whole.
func TestCutOutput(t *testing.T) {
	d := start(t, func(c *Config) { c.API.Calls = cutAPI{c.API.Calls} })
	for _, follow := range []bool{false, true} {
		r, err := client.New(client.Options{Socket: d.socket}).CallOutput(t.Context(), "call_1", client.OutputQuery{Follow: follow})
		var b []byte
		if err == nil {
			b, err = io.ReadAll(r)
			_ = r.Close()
		}
		if err == nil || follow && string(b) != "half" {
			t.Errorf("follow %v: %q, %v; want half and an error", follow, b, err)
		}
	}
	if !strings.Contains(d.logs.String(), "disk gone") {
		t.Error("the cause is not in the log")
	}
}

// TestStop: when the daemon stops, streams end, and a client that waits for a
// call is told that the call goes on.
func TestStop(t *testing.T) {
	api := newFake()
	id := NewIdentity(IdentityConfig{Admins: Peers{UIDs: []uint32{uint32(os.Getuid())}}})
	logs := &logBuffer{}
	s, err := New(Config{API: apiOf(api), Identity: id, Log: newLog(logs), Metrics: http.NotFoundHandler(), Reload: func(context.Context, bool) (*client.Reloaded, error) { return &client.Reloaded{}, nil }, Settings: func() ([]byte, error) { return nil, nil }, Backup: func(context.Context, io.Writer) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(shortDir(t), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	c := client.New(client.Options{Socket: socket, Reconnect: -1})
	defer c.Close()
	ses, err := c.CreateSession(t.Context(), client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	waited, streamed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.CreateCall(t.Context(), ses.ID, client.CallCreate{Tool: "wait", Input: input(`{}`)}, client.CallOptions{})
		waited <- err
	}()
	go func() {
		for _, err := range c.Events(t.Context(), client.EventQuery{}) {
			streamed <- err
		}
	}()
	if !testrig.Soon(func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		return len(api.calls) == 1 && api.filter != nil
	}) {
		t.Fatal("the requests did not arrive")
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if e := asError(t, <-waited); e.Code != client.CodeOverloaded || !strings.Contains(e.Message, "stopping") {
		t.Errorf("the waiting client got %v, want overloaded", e)
	}
	if err := <-streamed; !errors.Is(err, client.ErrDisconnected) {
		t.Errorf("the stream ended with %v, want ErrDisconnected", err)
	}
	var gone *client.UnreachableError
	if _, err := c.Health(t.Context()); !errors.As(err, &gone) || gone.Socket != socket {
		t.Errorf("after the stop: %v, want unreachable", err)
	}
}

// TestSSE: no data can end an event early or begin another one.
func TestSSE(t *testing.T) {
	rec := &recorder{header: http.Header{}}
	s := &Server{cfg: Config{WriteTimeout: time.Second}}
	out := &sse{s: s, x: &exchange{ResponseWriter: rec}}
	if err := out.write("evt_1\nevent: completed", "out\rput", []byte("{\r\n\"a\":\r1\n\n}\n")); err != nil {
		t.Fatal(err)
	}
	if want := "data: {\ndata: \"a\":\ndata: 1\ndata: }\n\n"; rec.body.String() != want {
		t.Errorf("wrote %q, want %q", rec.body.String(), want)
	}
	out.close()
	if err := out.write("evt_2", "output", []byte("{}")); err == nil || strings.Contains(rec.body.String(), "evt_2") {
		t.Errorf("a closed stream was written to: %v", err)
	}
}

// recorder is a ResponseWriter that can be flushed.
type recorder struct {
	header http.Header
	body   strings.Builder
}

func (r *recorder) Header() http.Header              { return r.header }
func (r *recorder) WriteHeader(int)                  {}
func (r *recorder) Write(p []byte) (int, error)      { return r.body.Write(p) }
func (r *recorder) Flush()                           {}
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

// TestEveryCodeHasAStatus: the mapping is complete and names no code that is not
// the API's.
func TestEveryCodeHasAStatus(t *testing.T) {
	codes := parseClient(t).enums["Code"]
	if len(codes) < 19 {
		t.Fatalf("found only the codes %v", codes)
	}
	s := &Server{cfg: Config{Log: newLog(&logBuffer{})}}
	r, _ := http.NewRequest("GET", "/", nil)
	for _, c := range codes {
		if statuses[client.Code(c)] < 400 {
			t.Errorf("code %s has no status", c)
		}
		p := s.problemOf(r, fmt.Errorf("wrapped: %w", &client.Error{Code: client.Code(c), Message: "m", Hint: "h", Violations: []client.Violation{{Path: "/x"}}}))
		if p.Code != client.Code(c) || p.Status != statuses[p.Code] || p.Title != http.StatusText(p.Status) {
			t.Errorf("%s: problem %+v", c, p)
		}
		if c != "internal" && (p.Detail != "m" || p.Hint != "h" || !reflect.DeepEqual(p.Violations, []client.Violation{{Path: "/x"}})) {
			t.Errorf("%s: problem %+v lost something", c, p)
		}
		if c == "internal" && p.Detail == "m" {
			t.Error("internal shows its cause")
		}
	}
	if len(statuses) != len(codes) {
		t.Errorf("%d statuses for %d codes", len(statuses), len(codes))
	}
	if p := s.problemOf(r, &client.Error{Code: "made_up", Message: "m"}); p.Code != client.CodeInternal {
		t.Errorf("an unknown code is answered as %s, want internal", p.Code)
	}
	if p := s.problemOf(r, context.Canceled); p.Code != client.CodeAborted {
		t.Errorf("a canceled request is answered as %s, want aborted", p.Code)
	}
}

// BenchmarkCall is a call through everything but the manager, over one
// connection. Its yardstick is BenchmarkEcho, a bare handler that decodes and
// encodes JSON.
func BenchmarkCall(b *testing.B) {
	api := newFake()
	id := NewIdentity(IdentityConfig{Admins: Peers{UIDs: []uint32{uint32(os.Getuid())}}})
	s, err := New(Config{API: apiOf(quickAPI{api}), Identity: id, Log: newLog(io.Discard), Metrics: http.NotFoundHandler(), Reload: func(context.Context, bool) (*client.Reloaded, error) { return &client.Reloaded{}, nil }, Settings: func() ([]byte, error) { return nil, nil }, Backup: func(context.Context, io.Writer) error { return nil }})
	if err != nil {
		b.Fatal(err)
	}
	bench(b, s.Serve)
}

func BenchmarkEcho(b *testing.B) {
	bench(b, func(ctx context.Context, ln net.Listener) error {
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var c client.CallCreate
			_ = json.NewDecoder(r.Body).Decode(&c)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(client.Call{ID: "call_1", Tool: c.Tool, Input: c.Input, Status: client.CallCompleted})
		})}
		go func() { <-ctx.Done(); _ = srv.Close() }()
		_ = srv.Serve(ln)
		return nil
	})
}

type quickAPI struct{ wholeAPI }

func (quickAPI) Call(_ context.Context, _ auth.Principal, id string, r client.CallCreate, _ call.Options) (*client.Call, error) {
	return &client.Call{ID: "call_1", SessionID: id, Tool: r.Tool, Input: r.Input, Status: client.CallCompleted}, nil
}

func bench(b *testing.B, serve func(context.Context, net.Listener) error) {
	socket := filepath.Join(b.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, ln) }()
	c := client.New(client.Options{Socket: socket})
	r := client.CallCreate{Tool: "bash", Input: input(`{"command":"true"}`)}
	for b.Loop() {
		if _, err := c.CreateCall(b.Context(), "ses_1", r, client.CallOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	c.Close()
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
