package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
)

// TestToolsOfSession: the tools are the session's, with one wait that is ours.
func TestToolsOfSession(t *testing.T) {
	d := newDaemon(t)
	d.on("GET /v1/tools", func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("session") != "ses_1" || q.Get("format") != "mcp" {
			t.Errorf("asked for %v", q)
		}
		reply(w, 200, in{"items": []in{
			{"name": "bash", "description": "runs", "inputSchema": in{"type": "object"}},
			{"name": "wait", "description": "the daemon's", "inputSchema": in{"type": "object"}},
		}})
	})
	list, err := d.serve(Config{}).ListTools(t.Context(), nil)
	testrig.Must(t, err)
	if len(list.Tools) != 2 || list.Tools[0].Name != "bash" || list.Tools[1].Name != "wait" || list.Tools[1].Description == "the daemon's" {
		t.Errorf("%+v", list.Tools)
	}
	for _, tool := range list.Tools {
		if tool.OutputSchema != nil {
			t.Errorf("%s has a schema of structured output, of which there is none", tool.Name)
		}
	}
}

// TestToolsFail: a list that cannot be had is an error that says why.
func TestToolsFail(t *testing.T) {
	for want, answer := range map[string]func(d *daemon){
		"session ses_1: not_found: there is none": func(d *daemon) {
			d.answers("GET /v1/tools", 404, problem(404, client.CodeNotFound, "there is none"))
		},
		"not the JSON expected": func(d *daemon) { d.answers("GET /v1/tools", 200, in{"items": []any{3}}) },
	} {
		d := newDaemon(t)
		answer(d)
		if _, err := d.serve(Config{}).ListTools(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestCallEnds: what a call has come to is the result, for models and for programs.
func TestCallEnds(t *testing.T) {
	d := newDaemon(t)
	d.streams(nil,
		event{"pending", d.call(client.CallPending, nil)}, event{"running", d.call(client.CallRunning, nil)}, output(0, "one\n"), event{"something.new", "{}"},
		event{"error", d.call(client.CallError, func(c *client.Call) {
			c.Title, c.Output, c.IsError, c.Error = "title", "one\ndenied", true, &client.Error{Code: client.CodeDenied, Message: "denied"}
			c.Metadata = map[string]any{"exit_code": 1, "diff": strings.Repeat("x", maxMetadata), "output_path": "/x", "total_bytes": 4000}
			c.Attachments = []client.Attachment{{Filename: "a.png", MIME: "image/png", URL: "data:image/png;base64,YQ=="}}
		})})
	a := d.serve(Config{})
	for _, args := range []any{nil, json.RawMessage("null"), in{"command": "true"}} {
		r, err := a.call(t.Context(), "bash", args)
		testrig.Must(t, err)
		if !r.IsError || len(r.Content) != 3 {
			t.Fatalf("%+v", r)
		}
		if link, ok := r.Content[2].(*sdk.ResourceLink); !ok || link.URI != "toold://calls/call_1/output" || *link.Size != 4000 {
			t.Errorf("%+v", r.Content[2])
		}
	}
	out := a.must("bash", in{})
	if out.CallID != "call_1" || out.Status != client.CallError || out.Title != "title" || out.Output != "one\ndenied" || out.Code != client.CodeDenied ||
		out.Metadata["exit_code"] != 1.0 || strings.Join(out.LeftOut, " ") != "diff" {
		t.Errorf("%+v", out)
	}
	testrig.Eventually(t, "a note has the output", func() bool { return a.said("one") }) // notes come beside answers
	keys := map[string]bool{}
	for i, c := range d.made {
		if keys[c.Key] = true; c.Tool != "bash" || !strings.HasPrefix(c.Key, "mcp-") || (string(c.Input) == "{}") != (i != 2) {
			t.Errorf("made was %+v", c)
		}
	}
	if len(keys) != 4 {
		t.Errorf("4 calls have %d keys", len(keys))
	}
}

// TestCallFails: where there is no call a model reads why, whatever the daemon did.
func TestCallFails(t *testing.T) {
	pending := func(d *daemon) event { return event{"pending", d.call(client.CallPending, nil)} }
	for want, answer := range map[string]func(d *daemon){
		"the session is over": func(d *daemon) {
			d.answers("POST /v1/sessions/ses_1/calls", 409, problem(409, client.CodeConflict, "the session is over"))
		},
		"connection": func(d *daemon) { d.streams(nil, pending(d)) },
		"an event of the daemon is not the JSON expected": func(d *daemon) {
			d.streams(nil, pending(d), event{client.EventApprovalAsked, `[]`})
		},
		"not the JSON expected": func(d *daemon) { d.streams(nil, pending(d), event{"completed", `{"id":3}`}) },
		"not an event stream":   func(d *daemon) { d.answers("POST /v1/sessions/ses_1/calls", 200, in{}) },
	} {
		d := newDaemon(t)
		answer(d)
		if out := d.serve(Config{}).must("bash", in{}); !out.IsError || out.Status != client.CallError || !strings.Contains(out.Output, want) || out.Code == "" {
			t.Errorf("%+v, want %q", out, want)
		}
	}
}

// TestCallGoesOn: past the time of an answer it has what there is, and wait has the rest.
func TestCallGoesOn(t *testing.T) {
	d := newDaemon(t)
	more := make(chan event)
	defer close(more)
	// Without its id nobody could take the call further: until then the answer waits.
	d.streams(more, output(0, "one\n"), event{"running", d.call(client.CallRunning, nil)})
	a := d.serve(Config{Wait: 10 * time.Millisecond})
	out := a.must("bash", in{})
	testrig.Wants(t, out.Output, "one\n", "has not ended: it is running", `the tool wait with {"call_id": "call_1", "offset": 4}`)
	if out.IsError || out.Status != client.CallRunning || out.NextOffset == nil || *out.NextOffset != 4 {
		t.Errorf("%+v", out)
	}

	ended := false // asked by one request after the other
	d.on("GET /v1/calls/call_1", func(w http.ResponseWriter, _ *http.Request) {
		if ended {
			reply(w, 200, d.call(client.CallCompleted, func(c *client.Call) { c.Output = "one\ntwo\n" }))
			return
		}
		reply(w, 200, d.call(client.CallRunning, nil))
	})
	hold := make(chan struct{})
	d.on("GET /v1/calls/call_1/output", func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("offset") != "4" || q.Get("follow") == "" {
			t.Errorf("asked for %v", q)
		}
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-hold:
			ended = true
			_, _ = w.Write([]byte("two\n"))
		case <-r.Context().Done():
		}
	})
	out = a.must("wait", in{"call_id": "call_1", "offset": 4, "seconds": 100})
	if out.Status != client.CallRunning || strings.Contains(out.Output, "one") || *out.NextOffset != 4 {
		t.Errorf("%+v", out)
	}
	close(hold)
	b := d.serve(Config{})
	for range 2 { // the second finds that it has ended
		if out = b.must("wait", in{"call_id": "call_1", "offset": 4}); out.Status != client.CallCompleted || out.Output != "one\ntwo\n" {
			t.Errorf("%+v", out)
		}
	}
}

// TestWaitRefuses: calls of others are as unknown as those that there are not.
func TestWaitRefuses(t *testing.T) {
	d := newDaemon(t)
	d.answers("GET /v1/calls/call_2", 200, d.call(client.CallRunning, func(c *client.Call) { c.ID, c.SessionID = "call_2", "ses_2" }))
	d.answers("GET /v1/calls/call_3", 404, problem(404, client.CodeNotFound, "no call"))
	d.answers("GET /v1/calls/call_4", 503, problem(503, client.CodeOverloaded, "try again"))
	a := d.serve(Config{away: time.Nanosecond})
	others, none := a.must("wait", in{"call_id": "call_2"}), a.must("wait", in{"call_id": "call_3"})
	if strings.ReplaceAll(others.Output, "call_2", "call_3") != none.Output || others.Code != client.CodeNotFound || none.Code != client.CodeNotFound {
		t.Errorf("%+v, %+v", others, none)
	}
	if out := a.must("wait", in{"call_id": "call_4"}); out.Code != client.CodeOverloaded {
		t.Errorf("%+v", out)
	}
	if out := a.must("wait", in{"call": 1}); out.Code != client.CodeInvalidInput || !strings.Contains(out.Output, `{"call_id": "call_…", "offset": 0}`) {
		t.Errorf("%+v", out)
	}
}

// TestApprovalIsSaid: who must do what is in the notes, and in an answer that does not wait.
func TestApprovalIsSaid(t *testing.T) {
	asked := client.Approval{ID: "apr_1", CallID: "call_1", Requests: []client.ApprovalRequest{{Permission: "bash", Pattern: "touch \x1b x"}}}
	d := newDaemon(t)
	more := make(chan event)
	d.streams(more, event{"pending", d.call(client.CallPending, nil)}, event{client.EventApprovalAsked, asked})
	a := d.serve(Config{Socket: "/run/x y"})
	done := make(chan answered)
	go func() { done <- a.must("bash", in{}) }()
	for !a.said("waiting for a person to approve bash touch") || !a.said("(apr_1); to answer: toolctl --socket ") {
		<-a.heard
	}
	if a.said("\x1b") {
		t.Error("a note has what steers terminals")
	}
	more <- event{client.EventApprovalReplied, "{}"}
	more <- event{"completed", d.call(client.CallCompleted, func(c *client.Call) { c.Output = "done" })}
	if out := <-done; out.Output != "done" {
		t.Errorf("%+v", out)
	}
	close(more)

	for status, want := range map[int]string{200: "waiting for a person to approve bash", 403: "waiting to run"} {
		d := newDaemon(t)
		d.answers("GET /v1/calls/call_1", 200, d.call(client.CallPending, nil))
		d.answers("GET /v1/approvals", status, in{"items": []client.Approval{{ID: "apr_0", CallID: "call_0"}, asked}})
		d.on("GET /v1/calls/call_1/output", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		out := d.serve(Config{Wait: 10 * time.Millisecond}).must("wait", in{"call_id": "call_1"})
		testrig.Wants(t, out.Output, want)
		if out.Status != client.CallPending {
			t.Errorf("%+v", out)
		}
	}
}

// TestCancelled: a request that is cancelled aborts its call, also where the daemon has not
// said yet which it is.
func TestCancelled(t *testing.T) {
	for _, early := range []bool{false, true} {
		d := newDaemon(t)
		more := make(chan event)
		d.streams(more)
		a := d.serve(Config{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := a.call(ctx, "bash", in{})
			done <- err
		}()
		more <- output(0, "begun\n")
		for !a.said("begun") {
			<-a.heard
		}
		pending := event{"running", d.call(client.CallRunning, nil)}
		if !early {
			more <- pending
			more <- output(6, "x\n") // by now the first has been read
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("a cancelled request was answered")
		}
		if early {
			more <- pending
		}
		<-d.aborted
		close(more)
	}
}

// TestClosed: an agent that goes away takes its calls with it.
func TestClosed(t *testing.T) {
	d := newDaemon(t)
	more := make(chan event)
	d.streams(more, event{"running", d.call(client.CallRunning, nil)}, output(0, "begun\n"))
	a := d.serve(Config{})
	done := make(chan error, 1)
	go func() {
		_, err := a.call(t.Context(), "bash", in{})
		done <- err
	}()
	for !a.said("begun") {
		<-a.heard
	}
	a.cut()
	<-d.aborted
	<-done
	close(more)
}

// TestInstructions: an agent is told what holds in its session, and the host's path of the worktree;
// without an answer of the daemon, what holds in every one.
func TestInstructions(t *testing.T) {
	d := newDaemon(t)
	d.on("GET /v1/sessions/ses_1/brief", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("- The worktree is `/workspace`.\n"))
	})
	d.answers("GET /v1/sessions/ses_1", 200, client.Session{ID: "ses_1", Worktree: client.Worktree{Source: "/home/me/proj", Target: "/workspace"}})
	got := d.serve(Config{}).InitializeResult().Instructions
	want := "On the host the worktree is `/home/me/proj`: paths below that mean files of `/workspace`.\n" + instructions + "\n\n- The worktree is `/workspace`."
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := newDaemon(t).serve(Config{}).InitializeResult().Instructions; got != instructions {
		t.Errorf("without a brief: %s", got)
	}
}
