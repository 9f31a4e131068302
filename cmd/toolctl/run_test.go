package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

// runHandlers are the routes that run uses, around one answer to the call.
func runHandlers(call http.HandlerFunc) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /v1/sessions":            answerWith(session()),
		"POST /v1/sessions/{id}/calls": call,
		"DELETE /v1/sessions/{id}":     answerWith(session()),
	}
}

func TestRunExitCodes(t *testing.T) {
	killed := func(reason, signal string, notes ...string) map[string]any {
		return map[string]any{"exit_code": -1, "reason": reason, "signal": signal, "duration_ms": 2000, "notes": notes}
	}
	denied := client.Call{ID: fakeCall, Tool: "bash", Status: client.CallError, Error: &client.Error{Code: client.CodeDenied, Message: "not here"}}
	lost := client.Call{ID: fakeCall, Tool: "bash", Status: client.CallError, Error: &client.Error{Code: client.CodeSessionLost, Message: "gone"}}
	for _, c := range []struct {
		name   string
		call   client.Call
		code   int
		stderr string
	}{
		{"ok", bashDone("", exited(0)), 0, ""},
		{"its own code", bashDone("", exited(7)), 7, ""},
		{"its own code that is also ours", bashDone("", exited(125)), 125, ""},
		{"timeout", bashDone("", killed("timeout", "SIGTERM", "timed out", "in 2s")), 124, "toolctl: timed out\ntoolctl: in 2s\n"},
		{"signal", bashDone("", killed("signal", "SIGKILL")), 137, ""},
		{"memory", bashDone("", killed("memory", "SIGKILL")), 137, ""},
		{"output limit", bashDone("", killed("output_limit", "SIGTERM")), 143, ""},
		{"lost", bashDone("", killed("lost", "")), 125, ""},
		{"a code that no process has", bashDone("", map[string]any{"reason": "exit", "exit_code": 1e18}), 125, "not known"},
		{"nothing said", bashDone("", nil), 125, "not known"},
		{"denied", denied, 126, "not here"},
		{"error", lost, 125, "gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := startFake(t, runHandlers(stream(c.call)))
			d.ctl("run", "--", "true").want(t, c.code, "", c.stderr)
			if n := len(d.asked("DELETE", "/"+fakeSession)); n != 1 {
				t.Errorf("session ended %d times", n)
			}
		})
	}
}

func TestRunWithoutSession(t *testing.T) {
	for code, want := range map[client.Code]int{
		client.CodeForbidden: 126, client.CodeQuotaExceeded: 125, client.CodeNotFound: 125, client.CodeInvalidRequest: 125,
	} {
		d := startFake(t, map[string]http.HandlerFunc{"POST /v1/sessions": problemWith(400, code)})
		d.ctl("run", "--", "true").want(t, want, "", "it is so")
	}
	ctl(t, t.Context(), "", "--socket", t.TempDir()+"/none", "run", "--", "true").want(t, 125, "", "cannot reach toold")
	ctl(t, t.Context(), "", "run", "--limit", "memry=1", "--", "true").want(t, 2, "", `did you mean "memory"`)
	ctl(t, t.Context(), "", "run", "-o", "name", "--", "true").want(t, 2, "", "leave -o name out")
}

func TestRunRequests(t *testing.T) {
	d := startFake(t, runHandlers(stream(bashDone("", exited(0)))))
	dir := t.TempDir()
	d.ctl("run", "--worktree", dir, "--mode", "ro", "--env", "A=b", "--limit", "memory=64MiB", "--limit", "open-files=9",
		"--timeout", "90s", "--", "bash", "-c", "a | b").want(t, 0, "", "")
	var s client.SessionCreate
	decode(t, d.asked("POST", "/sessions")[0].body, &s)
	if s.Worktree.Source != dir || s.Worktree.Mode != "ro" || s.Env["A"] != "b" || s.Limits.Memory != 64<<20 ||
		s.Limits.OpenFiles != 9 || s.LeasePID != os.Getpid() {
		t.Errorf("session %+v", s)
	}
	var c client.CallCreate
	decode(t, d.asked("POST", "/calls")[0].body, &c)
	if c.Tool != "bash" || c.TimeoutMillis != 90_000 || string(c.Input) != `{"command":"bash -c 'a | b'"}` || c.Key == "" {
		t.Errorf("call %+v %s", c, c.Input)
	}
}

// Without --timeout the command has all the time that the session allows.
func TestRunDefaultTimeout(t *testing.T) {
	h := runHandlers(stream(bashDone("", exited(0))))
	s := session()
	s.Limits.Wall = client.Duration(10 * time.Minute)
	h["POST /v1/sessions"] = answerWith(s)
	d := startFake(t, h)
	d.ctl("run", "--", "true").want(t, 0, "", "")
	var c client.CallCreate
	decode(t, d.asked("POST", "/calls")[0].body, &c)
	if c.TimeoutMillis != 600_000 {
		t.Errorf("timeout %d ms", c.TimeoutMillis)
	}
}

// The two streams go where they belong, and bytes that are not text stay as
// they are where no terminal is.
func TestRunStreams(t *testing.T) {
	d := startFake(t, runHandlers(stream(bashDone("", exited(0)),
		client.Output{Stream: "stdout", Text: "out\x1b[2J"},
		client.Output{Stream: "stderr", Text: "err"},
		client.Output{Stream: "stdout", Offset: 7, Base64: []byte{0xff, 0}},
	)))
	r := d.ctl("run", "--", "true")
	if r.code != 0 || r.stdout != "out\x1b[2J\xff\x00" || r.stderr != "err" {
		t.Errorf("%+v", r)
	}
	if q := d.asked("POST", "/calls")[0].query; q != "streams=split" {
		t.Errorf("query %q", q)
	}
}

func TestRunOnTerminal(t *testing.T) {
	d := startFake(t, runHandlers(stream(bashDone("", exited(0)), client.Output{Stream: "stdout", Text: "a\x1b]52;c;x\x07"})))
	var out strings.Builder
	a := &app{stdout: &out, stderr: new(strings.Builder), getenv: func(string) string { return "" }, outTTY: true}
	if code := run(t.Context(), []string{"--socket", d.socket, "run", "--", "true"}, a); code != 0 || out.String() != `a\x1b]52;c;x\x07` {
		t.Errorf("exit %d, %q", code, out.String())
	}
}

// What the live stream left out is fetched from what the daemon has saved.
func TestRunFillsGaps(t *testing.T) {
	h := runHandlers(stream(bashDone("", exited(0)),
		client.Output{Stream: "stdout", Text: "one "},
		client.Output{Stream: "stdout", Offset: 8, Text: "three"}))
	h["GET /v1/calls/{id}/output"] = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("offset") != "4" || r.URL.Query().Get("stream") != "stdout" {
			t.Errorf("query %s", r.URL.RawQuery)
		}
		_, _ = w.Write([]byte("two three"))
	}
	if r := startFake(t, h).ctl("run", "--", "true"); r.stdout != "one two three" || r.code != 0 {
		t.Errorf("%+v", r)
	}
}

func TestRunShowsChanges(t *testing.T) {
	asksFirst, aborted := false, make(chan struct{})
	h := runHandlers(nil)
	h["POST /v1/sessions/{id}/calls"] = func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), "git status") {
			stream(bashDone("", exited(3)))(w, r)
			return
		}
		if asksFirst {
			sendEvent(w, "pending", client.Call{ID: fakeCall, SessionID: fakeSession, Status: client.CallPending})
			sendEvent(w, client.EventApprovalAsked, approval("apr_1", "git status"))
			<-aborted
			sendEvent(w, "error", client.Call{ID: fakeCall, Tool: "bash", Status: client.CallError})
			return
		}
		stream(bashDone(" M a\x1b[2Jb\n?? new\n", exited(0)))(w, r)
	}
	h["POST /v1/calls/{id}/abort"] = func(w http.ResponseWriter, _ *http.Request) {
		close(aborted)
		answer(w, 200, client.Call{ID: fakeCall})
	}
	d := startFake(t, h)
	d.ctl("run", "--worktree", t.TempDir(), "--", "true").want(t, 3, "", " M a\\x1b[2Jb\n?? new\n")
	asksFirst = true
	d.ctl("run", "--worktree", t.TempDir(), "--", "true").want(t, 3, "", "")
	<-aborted
}

func TestRunKeep(t *testing.T) {
	d := startFake(t, runHandlers(stream(bashDone("", exited(0)))))
	d.ctl("run", "--keep", "--", "true").want(t, 0, "", "session rm "+fakeSession)
	var s client.SessionCreate
	decode(t, d.asked("POST", "/sessions")[0].body, &s)
	if s.LeasePID != 0 || len(d.asked("DELETE", "/"+fakeSession)) != 0 {
		t.Errorf("lease %d, requests %v", s.LeasePID, d.requests)
	}
}

// Ctrl-C aborts the call, waits for its end, and ends the session.
func TestRunInterrupted(t *testing.T) {
	aborted := make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	h := runHandlers(func(w http.ResponseWriter, _ *http.Request) {
		sendEvent(w, "pending", client.Call{ID: fakeCall, Status: client.CallPending})
		cancel(&interruptedError{syscall.SIGINT})
		<-aborted
		sendEvent(w, "output", client.Output{Stream: "stdout", Text: "last words"})
		sendEvent(w, "completed", bashDone("", map[string]any{"reason": "aborted", "signal": "SIGTERM"}))
	})
	h["POST /v1/calls/{id}/abort"] = func(w http.ResponseWriter, _ *http.Request) {
		close(aborted)
		answer(w, 200, bashDone("", nil))
	}
	d := startFake(t, h)
	r := ctl(t, ctx, "", "--socket", d.socket, "run", "--", "sleep", "300")
	r.want(t, 130, "last words", "")
	if n := len(d.asked("DELETE", "/"+fakeSession)); n != 1 {
		t.Errorf("session ended %d times", n)
	}
}

// A reader that goes away ends the command. The stream is closed first: a daemon
// that still writes to it may not be able to hear of the abort.
func TestRunClosedPipe(t *testing.T) {
	closed := make(chan struct{})
	h := runHandlers(func(w http.ResponseWriter, r *http.Request) {
		sendEvent(w, "pending", client.Call{ID: fakeCall, Status: client.CallPending})
		sendEvent(w, "output", client.Output{Stream: "stdout", Text: "y\n"})
		<-r.Context().Done()
		close(closed)
	})
	h["POST /v1/calls/{id}/abort"] = func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Error("the abort came while the stream was open")
		}
		answer(w, http.StatusOK, bashDone("", nil))
	}
	d := startFake(t, h)
	a := &app{stdout: closedPipe{}, stderr: new(strings.Builder), getenv: func(string) string { return "" }}
	if code := run(t.Context(), []string{"--socket", d.socket, "run", "--", "yes"}, a); code != 141 {
		t.Errorf("exit %d", code)
	}
	if len(d.asked("POST", "/abort")) != 1 || len(d.asked("DELETE", "/"+fakeSession)) != 1 {
		t.Errorf("requests %v", d.requests)
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func decode(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
}
