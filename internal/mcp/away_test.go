package mcp

import (
	"io/fs"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// TestDaemonIsAway: whatever a client asks for while the daemon restarts waits until it is back.
func TestDaemonIsAway(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	var refused atomic.Int32
	away := func(then http.HandlerFunc) http.HandlerFunc {
		var asked atomic.Int32
		return func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) < 3 {
				refused.Add(1)
				reply(w, 503, problem(503, client.CodeOverloaded, "the daemon is still starting"))
				return
			}
			then(w, r)
		}
	}
	d.on("POST /v1/sessions/ses_1/calls", away(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		d.send(w, event{"completed", d.call(client.CallCompleted, func(c *client.Call) { c.Output = "done" })})
	}))
	d.on("GET /v1/tools", away(func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, in{"items": []in{}}) }))
	d.on("GET /v1/calls/call_1", away(func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, d.call(client.CallCompleted, func(c *client.Call) { c.Output = "done" }))
	}))
	a := d.serve(Config{})
	if out := a.must("bash", in{}); out.Output != "done" {
		t.Errorf("%+v", out)
	}
	if out := a.must("wait", in{"call_id": "call_1"}); out.Output != "done" {
		t.Errorf("%+v", out)
	}
	if list, err := a.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if n := refused.Load(); n != 6 {
		t.Errorf("%d requests were refused", n)
	}
}

// TestDaemonTakesNothing: a daemon that answers and takes no calls is told of in words for a model too.
func TestDaemonTakesNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 503, problem(503, client.CodeOverloaded, "the daemon is still starting"))
	}
	d.on("POST /v1/sessions/ses_1/calls", refuse)
	d.on("GET /v1/calls/call_1", refuse)
	a := d.serve(Config{away: time.Nanosecond})
	for tool, input := range map[string]in{"bash": {}, "wait": {"call_id": "call_1"}} {
		out := a.must(tool, input)
		testrig.Wants(t, out.Output, "the tools cannot be used now: the daemon is still starting", "make the call again in a moment", "tell the user")
		if out.Code != client.CodeOverloaded {
			t.Errorf("%+v", out)
		}
	}
}

// TestDaemonStaysAway: a model reads what it can do, not how daemons are started.
func TestDaemonStaysAway(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	gone := client.New(client.Options{Socket: t.TempDir() + "/gone"})
	t.Cleanup(gone.Close)
	d.client = gone
	a := d.serve(Config{away: time.Nanosecond})
	for tool, input := range map[string]in{"bash": {}, "wait": {"call_id": "call_1"}} {
		out := a.must(tool, input)
		testrig.Wants(t, out.Output, "the tools cannot be reached", "make the call again in a moment", "tell the user")
		if out.Code != client.CodeOverloaded || strings.Contains(out.Output, "systemctl") {
			t.Errorf("%+v", out)
		}
	}
	if _, err := a.ListTools(t.Context(), nil); err == nil || strings.Contains(err.Error(), "systemctl") {
		t.Errorf("a list: %v", err)
	}
	for _, uri := range []string{"toold://worktree/f", "toold://calls/call_1/output"} {
		if _, err := a.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil || strings.Contains(err.Error(), "systemctl") {
			t.Errorf("%s: %v", uri, err)
		}
	}
	for err, want := range map[error]bool{
		&client.UnreachableError{Err: fs.ErrNotExist}:           true,
		&client.UnreachableError{Err: syscall.ECONNREFUSED}:     true,
		&client.UnreachableError{Err: fs.ErrPermission}:         false,
		&client.Error{Status: 503, Code: client.CodeOverloaded}: true,
		&client.Error{Status: 429, Code: client.CodeOverloaded}: false,
		client.ErrDisconnected:                                  false,
	} {
		if Away(err) != want {
			t.Errorf("Away(%v) is not %v", err, want)
		}
	}
}
