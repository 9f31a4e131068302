package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/internal/testrig"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
)

// daemon answers as a test says, so that it can be late, wrong, or gone: test/agents has the
// real one. Its session is ses_1, and its call call_1.
type daemon struct {
	t      *testing.T
	mux    *http.ServeMux
	client *client.Client

	mu      sync.Mutex // guards made, aborted
	made    []client.CallCreate
	aborted chan struct{}
	left    chan struct{} // gets one for each stream whose reader went away
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{t: t, mux: http.NewServeMux(), aborted: make(chan struct{}, 10), left: make(chan struct{}, 10)}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	testrig.Must(t, err)
	s := httptest.NewUnstartedServer(d.mux)
	_ = s.Listener.Close() // it has one of its own
	s.Listener = l
	s.Start()
	d.client = client.New(client.Options{Socket: socket, Reconnect: -1})
	t.Cleanup(func() { d.client.Close(); s.CloseClientConnections(); s.Close() })
	d.on("POST /v1/calls/call_1/abort", func(w http.ResponseWriter, _ *http.Request) {
		d.aborted <- struct{}{}
		reply(w, 200, d.call(client.CallError, func(c *client.Call) { c.Output, c.IsError = "aborted", true }))
	})
	return d
}

func (d *daemon) on(route string, h http.HandlerFunc) { d.mux.HandleFunc(route, h) }

// answers has a route answer with a value.
func (d *daemon) answers(route string, status int, v any) {
	d.on(route, func(w http.ResponseWriter, _ *http.Request) { reply(w, status, v) })
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	if status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func problem(status int, code client.Code, detail string) client.Problem {
	return client.Problem{Status: status, Code: code, Detail: detail}
}

// call is the call in a state.
func (d *daemon) call(status client.CallStatus, with func(*client.Call)) client.Call {
	c := client.Call{ID: "call_1", SessionID: "ses_1", Tool: "bash", Status: status, Metadata: map[string]any{}}
	if with != nil {
		with(&c)
	}
	return c
}

// event is one of a stream: a value, or a text that is given as it is.
type event struct {
	name string
	data any
}

// streams answers each call that is made with these events, and then with those that the
// channel gives until it is closed.
func (d *daemon) streams(more <-chan event, events ...event) {
	d.on("POST /v1/sessions/ses_1/calls", func(w http.ResponseWriter, r *http.Request) {
		var c client.CallCreate
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			d.t.Error(err)
		}
		d.mu.Lock()
		d.made = append(d.made, c)
		d.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		for _, e := range events {
			d.send(w, e)
		}
		for more != nil {
			select {
			case e, ok := <-more:
				if !ok {
					return
				}
				d.send(w, e)
			case <-r.Context().Done():
				d.left <- struct{}{}
				return
			}
		}
	})
}

func (d *daemon) send(w http.ResponseWriter, e event) {
	data, ok := e.data.(string)
	if !ok {
		b, err := json.Marshal(e.data)
		if err != nil {
			d.t.Error(err)
		}
		data = string(b)
	}
	_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.name, data) // a reader that is gone is some tests' matter
	_ = http.NewResponseController(w).Flush()
}

// output is an event of output.
func output(offset int64, text string) event {
	return event{"output", client.NewOutput("", offset, []byte(text))}
}

// agent is a client of the SDK.
type agent struct {
	*sdk.ClientSession
	t   *testing.T
	cut func() // closes the server's input, as the end of the agent's process does

	mu    sync.Mutex // guards notes
	notes []string
	heard chan struct{} // gets one for each note, while there is room
}

func newAgent(t *testing.T, transport sdk.Transport, name string) *agent {
	t.Helper()
	a := &agent{t: t, heard: make(chan struct{}, 100)}
	c := sdk.NewClient(&sdk.Implementation{Name: name, Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			a.mu.Lock()
			a.notes = append(a.notes, r.Params.Message)
			a.mu.Unlock()
			select {
			case a.heard <- struct{}{}:
			default:
			}
		},
	})
	var err error
	a.ClientSession, err = c.Connect(t.Context(), transport, nil)
	testrig.Must(t, err)
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// serve serves the session to an agent in lines of JSON.
func (d *daemon) serve(cfg Config) *agent { return d.serveTo("test", cfg) }

// serveTo is serve for a client of that name.
func (d *daemon) serveTo(name string, cfg Config) *agent {
	d.t.Helper()
	cfg.Client, cfg.Session = d.client, "ses_1"
	fromAgent, toServer := io.Pipe()
	fromServer, toAgent := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- New(cfg).Serve(context.Background(), fromAgent, toAgent) }()
	a := newAgent(d.t, &sdk.IOTransport{Reader: fromServer, Writer: toServer}, name)
	a.cut = func() { _ = toServer.Close() }
	d.t.Cleanup(func() {
		a.cut() // it still reads what is being written to it
		if err := <-done; err != nil {
			d.t.Errorf("Serve: %v", err)
		}
	})
	return a
}

// call calls a tool, with a token for progress.
func (a *agent) call(ctx context.Context, tool string, input any) (*sdk.CallToolResult, error) {
	p := &sdk.CallToolParams{Name: tool, Arguments: input}
	p.SetProgressToken("p")
	return a.CallTool(ctx, p)
}

// answered is what a result says to programs and to models.
type answered struct {
	outcome
	Output  string
	IsError bool
}

// must calls a tool and gives what its result says.
func (a *agent) must(tool string, input any) (out answered) {
	a.t.Helper()
	r, err := a.call(a.t.Context(), tool, input)
	testrig.Must(a.t, err)
	b, err := json.Marshal(r.Meta[MetaKey])
	testrig.Must(a.t, err)
	testrig.Must(a.t, json.Unmarshal(b, &out.outcome))
	text, _ := r.Content[0].(*sdk.TextContent)
	if text == nil || r.StructuredContent != nil {
		a.t.Fatalf("the text is %+v, and there is structured content: %+v", r.Content[0], r.StructuredContent)
	}
	out.Output, out.IsError = text.Text, r.IsError
	return out
}

func (a *agent) said(text string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Contains(strings.Join(a.notes, "\n"), text)
}

type in map[string]any
