package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
)

func callHandlers(final client.Call, outputs ...client.Output) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /v1/sessions":             answerWith(client.List[client.Session]{Items: []client.Session{session()}}),
		"POST /v1/sessions/{id}/calls": stream(final, outputs...),
	}
}

func readDone(output string) client.Call {
	c := bashDone(output, nil)
	c.Tool = "read"
	return c
}

func TestCallInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte("{\"a\": 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arg, stdin, want string
	}{
		{`{"a": 1}`, "", `{"a":1}`},
		{"@" + file, "", `{"a":1}`},
		{"-", " {\"a\": 1}\n", `{"a":1}`},
		{"", "", "{}"},
	} {
		d := startFake(t, callHandlers(readDone("text")))
		args := []string{"--socket", d.socket, "call", "review", "read"}
		if c.arg != "" {
			args = append(args, c.arg)
		}
		ctl(t, t.Context(), c.stdin, args...).want(t, 0, "text\n", "")
		var got client.CallCreate
		decode(t, d.asked("POST", "/calls")[0].body, &got)
		if string(got.Input) != c.want || got.Tool != "read" {
			t.Errorf("%s: input %s of %s", c.arg, got.Input, got.Tool)
		}
	}
}

func TestCallBadInput(t *testing.T) {
	for _, c := range []struct{ arg, stderr string }{
		{"{", "the input is not JSON"},
		{"{ ls; }", "write an object"},
		{" ", "is empty"},
		{"@/nonexistent/x", "no such file"},
	} {
		ctl(t, t.Context(), "", "call", "s", "read", c.arg).want(t, 2, "", c.stderr)
	}
	big := strings.Repeat("1", maxInput+1)
	ctl(t, t.Context(), big, "call", "s", "bash", "-").want(t, 2, "", "more than 16777216 bytes")
	ctl(t, t.Context(), "", "call", "s", "bash", "{}", "--timeout", "soon").want(t, 2, "", "not a duration")
	ctl(t, t.Context(), "", "call", "s", "bash", "{}", "--timeout", "-1s").want(t, 2, "", "at least 1ms")
	ctl(t, t.Context(), "", "call", "s", "bash", "--wait", "-1s").want(t, 2, "", "not be negative")
	ctl(t, t.Context(), "", "call", "s", "bash", "--wait", "1s", "--stream").want(t, 2, "", "leave --wait out")
}

func TestCallExitCodes(t *testing.T) {
	failed := readDone("no such file")
	failed.IsError = true
	refused := func(tool string, code client.Code) client.Call {
		e := &client.Error{Code: code, Message: "because", Hint: "do that"}
		return client.Call{ID: fakeCall, Tool: tool, Status: client.CallError, IsError: true, Output: e.Text(), Error: e}
	}
	running := client.Call{ID: fakeCall, SessionID: fakeSession, Tool: "bash", Status: client.CallRunning}
	for _, c := range []struct {
		name   string
		call   client.Call
		args   []string
		code   int
		stderr string
	}{
		{"tool failed", failed, []string{"read"}, 1, ""},
		{"tool denied", refused("read", client.CodeDenied), []string{"read"}, 3, "because\ntoolctl:   do that"},
		{"path not found", refused("read", client.CodeNotFound), []string{"read"}, 4, "because"},
		{"stale", refused("edit", client.CodeStale), []string{"edit"}, 1, "because"},
		{"bad input", refused("edit", client.CodeInvalidInput), []string{"edit"}, 2, "because"},
		{"unknown tool", refused("rm", client.CodeUnknownTool), []string{"rm"}, 4, "because"},
		{"bad input of a command", refused("bash", client.CodeInvalidInput), []string{"bash"}, 2, "because"},
		{"command failed", bashDone("out", exited(9)), []string{"bash"}, 9, ""},
		{"command denied", refused("bash", client.CodeDenied), []string{"bash"}, 126, "because"},
		{"command lost", refused("bash", client.CodeSessionLost), []string{"bash"}, 125, "because"},
		{"not finished", running, []string{"bash", "--wait", "1s"}, 5, "session logs"},
		{"not waited for", running, []string{"bash", "--wait", "0"}, 0, "call_0123 is running"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := startFake(t, callHandlers(c.call))
			d.ctl(append([]string{"call", "review"}, c.args...)...).want(t, c.code, "", c.stderr)
			d.ctl(append([]string{"call", fakeSession}, c.args...)...).want(t, c.code, "", c.stderr)
		})
	}
}

// TestCallErrorIsPrintedOnce: what a command had printed before its session was
// lost is on standard output, the error only on standard error.
func TestCallErrorIsPrintedOnce(t *testing.T) {
	e := &client.Error{Code: client.CodeSessionLost, Message: "session was lost", Hint: "create another"}
	lost := client.Call{ID: fakeCall, Tool: "bash", Status: client.CallError, IsError: true, Output: "so far\n" + e.Text(), Error: e}
	d := startFake(t, callHandlers(lost))
	r := d.ctl("call", "review", "bash")
	r.want(t, 125, "so far\n", "session was lost")
	if strings.Count(r.stdout+r.stderr, "session was lost") != 1 {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
}

func TestCallSessionNotFound(t *testing.T) {
	h := callHandlers(readDone(""))
	h["POST /v1/sessions/{id}/calls"] = problemWith(404, client.CodeNotFound)
	d := startFake(t, h)
	d.ctl("call", "reviw", "read").want(t, 4, "", `no session is named "reviw", did you mean "review"`)
	d.ctl("call", "reviw", "bash").want(t, 125, "", `did you mean "review"`)
	d.ctl("call", "ses_9", "read").want(t, 4, "", `no session has an id that is "ses_9"`)
	d.ctl("call", "review", "read").want(t, 4, "", "it is so") // something else was not found
	for _, ref := range []string{"../x", "a/b", "", ".", "..", "%2e%2e", "a?b"} {
		d.ctl("call", ref, "bash").want(t, 2, "", "is not the id or the name of a session")
	}
}

func TestCallStream(t *testing.T) {
	out := []client.Output{{Stream: "stdout", Text: "one\n"}, {Stream: "stdout", Offset: 4, Text: "two\n"}}
	d := startFake(t, callHandlers(bashDone("one\ntwo\n", exited(4)), out...))
	if r := d.ctl("call", "review", "bash", "--stream"); r.stdout != "one\ntwo\n" || r.code != 4 {
		t.Errorf("%+v", r)
	}
	r := d.ctl("call", "review", "bash", "--stream", "-o", "json")
	if n := strings.Count(r.stdout, "\n"); n != 4 || r.code != 4 {
		t.Errorf("%d lines, exit %d: %s", n, r.code, r.stdout)
	}
	// A tool that does not stream shows its output at the end.
	startFake(t, callHandlers(readDone("text"))).ctl("call", "review", "read", "--stream").want(t, 0, "text\n", "")
}

// A call with a name of its own goes on when its caller is interrupted.
func TestCallInterrupted(t *testing.T) {
	for _, c := range []struct {
		args   []string
		aborts int
	}{
		{[]string{"call", fakeSession, "bash", "--stream"}, 1},
		{[]string{"call", fakeSession, "bash"}, 1},
		{[]string{"call", fakeSession, "bash", "--stream", "--id", "b1"}, 0},
		{[]string{"call", fakeSession, "bash", "--id", "b1"}, 0},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		aborted := make(chan struct{})
		d := startFake(t, map[string]http.HandlerFunc{
			"POST /v1/sessions/{id}/calls": func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.Header.Get("Accept"), "event-stream") {
					sendEvent(w, "pending", client.Call{ID: fakeCall})
				}
				cancel(&interruptedError{syscall.SIGINT})
				select {
				case <-aborted:
					sendEvent(w, "completed", bashDone("", map[string]any{"reason": "aborted", "signal": "SIGTERM"}))
				case <-r.Context().Done():
				}
			},
			"POST /v1/calls/{id}/abort": func(w http.ResponseWriter, _ *http.Request) {
				close(aborted)
				answer(w, 200, bashDone("", nil))
			},
		})
		r := ctl(t, ctx, "", append([]string{"--socket", d.socket}, c.args...)...)
		if n := len(d.asked("POST", "/abort")); r.code != 130 || n != c.aborts {
			t.Errorf("%v: exit %d (%s), %d aborts, want %d", c.args, r.code, r.stderr, n, c.aborts)
		}
	}
}
