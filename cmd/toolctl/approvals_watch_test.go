package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

// fakeApprovals is a daemon whose pending approvals a test changes.
type fakeApprovals struct {
	*fakeDaemon

	mu      sync.Mutex // guards what follows
	pending []client.Approval
	refused bool // answers come too late
	events  chan client.Event
}

func startApprovals(t *testing.T, pending ...client.Approval) *fakeApprovals {
	t.Helper()
	f := &fakeApprovals{pending: pending, events: make(chan client.Event, 10)}
	f.fakeDaemon = startFake(t, map[string]http.HandlerFunc{
		"GET /v1/approvals": func(w http.ResponseWriter, _ *http.Request) {
			f.mu.Lock()
			defer f.mu.Unlock()
			answer(w, 200, client.List[client.Approval]{Items: slices.Clone(f.pending)})
		},
		"POST /v1/approvals/{id}": func(w http.ResponseWriter, r *http.Request) {
			var a client.ApprovalAnswer
			if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
				t.Error(err)
			}
			if !f.end(r.PathValue("id"), client.ApprovalReply{ID: r.PathValue("id"), Answer: string(a.Answer), By: "uid 0"}) {
				answerProblem(w, 404, client.CodeNotFound, "there is no such approval")
				return
			}
			answer(w, 200, approval(r.PathValue("id"), "x"))
		},
		"GET /v1/calls/{id}": func(w http.ResponseWriter, r *http.Request) {
			answer(w, 200, client.Call{ID: r.PathValue("id"), Input: json.RawMessage(`{"command":"all of it"}`)})
		},
		"GET /v1/events": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			for {
				select {
				case e := <-f.events:
					sendEvent(w, e.Type, e)
				case <-r.Context().Done():
					return
				}
			}
		},
	})
	return f
}

// end takes an approval out of those that are pending and tells of it.
func (f *fakeApprovals) end(id string, r client.ApprovalReply) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.pending)
	if f.refused {
		return false
	}
	f.pending = slices.DeleteFunc(f.pending, func(a client.Approval) bool { return a.ID == id })
	if len(f.pending) == n {
		return false
	}
	data, _ := json.Marshal(r)
	f.events <- client.Event{Type: client.EventApprovalReplied, Data: data}
	return true
}

func (f *fakeApprovals) ask(a client.Approval) {
	f.mu.Lock()
	f.pending = append(f.pending, a)
	f.mu.Unlock()
	f.events <- client.Event{Type: client.EventApprovalAsked}
}

// awaitEvents waits until somebody has asked for the events.
func (f *fakeApprovals) awaitEvents(t *testing.T) fakeRequest {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if all := f.asked("GET", "/events"); len(all) > 0 {
			return all[0]
		}
		if time.Now().After(end) {
			t.Fatal("nobody asks for the events")
		}
	}
}

// fakeTerminal is a terminal whose keys a test presses.
type fakeTerminal struct {
	*io.PipeReader
	keys *io.PipeWriter
}

func newFakeTerminal() fakeTerminal {
	r, w := io.Pipe()
	return fakeTerminal{r, w}
}

func (fakeTerminal) size() (width, height int) { return 90, 24 }

// screenText collects what is printed, for a test to wait for.
type screenText struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *screenText) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screenText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// await waits until text has been printed.
func (s *screenText) await(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(s.String(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q has not been printed, only\n%s", text, s.String())
		}
	}
}

// watchRun is a running "approvals watch".
type watchRun struct {
	out  *screenText
	term fakeTerminal
	code chan int
	stop context.CancelCauseFunc
}

func (f *fakeApprovals) watch(t *testing.T, tty bool, args ...string) *watchRun {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &watchRun{out: &screenText{}, term: newFakeTerminal(), code: make(chan int, 1), stop: cancel}
	a := &app{stdin: strings.NewReader(""), stdout: r.out, stderr: r.out, getenv: func(string) string { return "" }, outTTY: tty}
	if tty {
		a.openTerminal = func() (terminal, error) { return r.term, nil }
	}
	go func() { r.code <- run(ctx, append([]string{"--socket", f.socket, "approvals", "watch"}, args...), a) }()
	t.Cleanup(func() { cancel(nil) })
	return r
}

// press presses a key when what is on the screen has settled.
func (r *watchRun) press(t *testing.T, key string) {
	t.Helper()
	time.Sleep(settle + 50*time.Millisecond)
	if _, err := io.WriteString(r.term.keys, key); err != nil {
		t.Fatal(err)
	}
}

func (r *watchRun) exits(t *testing.T, want int) {
	t.Helper()
	select {
	case got := <-r.code:
		if got != want {
			t.Errorf("exit %d, want %d; printed\n%s", got, want, r.out)
		}
	case <-time.After(time.Minute):
		t.Fatalf("does not end; printed\n%s", r.out)
	}
}

func TestWatchTerminal(t *testing.T) {
	f := startApprovals(t, approval("apr_1", "first command"))
	r := f.watch(t, true)
	r.out.await(t, "first command")
	r.press(t, "f")
	r.out.await(t, "all of it")
	r.press(t, "o")
	r.out.await(t, "apr_1 is allowed, once")
	r.out.await(t, "nothing waits; q quits")

	f.ask(approval("apr_2", "second command"))
	r.out.await(t, "second command")
	f.ask(approval("apr_3", "third command"))
	r.out.await(t, "q quit (1 ")
	f.end("apr_2", client.ApprovalReply{ID: "apr_2", Answer: "reject", By: "uid 7"})
	r.out.await(t, "apr_2 has ended meanwhile: reject by uid 7")
	r.out.await(t, "third command")
	r.press(t, "m")
	r.press(t, "not now\r")
	r.out.await(t, "apr_3 is rejected")
	r.press(t, "q")
	r.exits(t, 0)

	var bodies []string
	for _, q := range f.asked("POST", "") {
		bodies = append(bodies, q.path+" "+string(q.body))
	}
	want := []string{
		`/v1/approvals/apr_1 {"answer":"once","sha256":"5ha-apr_1"}`,
		`/v1/approvals/apr_3 {"answer":"reject","message":"not now","sha256":"5ha-apr_3"}`,
	}
	if !slices.Equal(bodies, want) {
		t.Errorf("answered %q, want %q", bodies, want)
	}
}

// TestWatchRace: an approval that somebody else has answered in the meantime.
func TestWatchRace(t *testing.T) {
	f := startApprovals(t, approval("apr_1", "first command"))
	r := f.watch(t, true, "--scope", "profile")
	r.out.await(t, "a always (profile)")
	f.mu.Lock()
	f.refused = true
	f.mu.Unlock()
	r.press(t, "a")
	r.out.await(t, "there is no such approval")
	_ = r.term.keys.Close() // the terminal is gone
	r.exits(t, 0)
}

func TestWatchInterrupted(t *testing.T) {
	f := startApprovals(t)
	for _, tty := range []bool{true, false} {
		r := f.watch(t, tty)
		f.awaitEvents(t)
		r.stop(&interruptedError{syscall.SIGINT})
		r.exits(t, 0)
	}
}

// TestWatchLines: without a terminal there is a line for each.
func TestWatchLines(t *testing.T) {
	for _, tt := range []struct {
		args                []string
		tenant              string // what is asked for
		asked, ended, other string
	}{
		{nil, "tenant=%2A&", "  asked  apr_1  ses_0123  bash: evil\\n\\u{1b}[2J\n", "  ended  apr_1  timeout\n", "  ended  apr_2  unknown\n"},
		{[]string{"-o", "json"}, "", `{"type":"approval.asked","approval":{"id":"apr_1",`, `{"type":"approval.replied","reply":{"id":"apr_1","answer":"timeout"}}` + "\n", `"answer":"unknown"`},
		{[]string{"-o", "yaml"}, "", "---\ntype: approval.asked\napproval:\n  id: apr_1\n", "  answer: timeout\n", "answer: unknown"},
		{[]string{"-o", "name"}, "", "apr_1\n", "", ""},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			f := startApprovals(t)
			r := f.watch(t, false, append(tt.args, "--session", "review")...)
			if q := f.awaitEvents(t).query; q != "session=review&"+tt.tenant+"type=approval.%2A" {
				t.Errorf("events %q", q)
			}
			f.ask(approval("apr_1", "evil\n\x1b[2J"))
			r.out.await(t, tt.asked)
			f.ask(approval("apr_2", "ls"))
			r.out.await(t, "apr_2")
			f.end("apr_1", client.ApprovalReply{ID: "apr_1", Answer: "timeout"})
			r.out.await(t, tt.ended)
			f.mu.Lock()
			f.pending = nil // without a word
			f.mu.Unlock()
			f.events <- client.Event{Type: client.EventApprovalAsked}
			r.out.await(t, tt.other)
			r.stop(&interruptedError{syscall.SIGTERM})
			r.exits(t, 0)
			if strings.Contains(r.out.String(), "\x1b") {
				t.Errorf("raw control characters in %q", r.out)
			}
		})
	}
}

// TestWatchEndingComesLate: whoever hears of an ending only after the list is without
// the approval says how it ended all the same.
func TestWatchEndingComesLate(t *testing.T) {
	f := startApprovals(t, approval("apr_1", "ls"))
	r := f.watch(t, false)
	r.out.await(t, "asked  apr_1")
	f.mu.Lock()
	f.pending = nil
	f.mu.Unlock()
	f.ask(approval("apr_2", "rm"))
	r.out.await(t, "asked  apr_2") // by a list that apr_1 is not in
	data, err := json.Marshal(client.ApprovalReply{ID: "apr_1", Answer: "once", By: "uid 7"})
	if err != nil {
		t.Fatal(err)
	}
	f.events <- client.Event{Type: client.EventApprovalReplied, Data: data}
	r.out.await(t, "ended  apr_1  once by uid 7")
	r.stop(&interruptedError{syscall.SIGTERM})
	r.exits(t, 0)
	if strings.Contains(r.out.String(), "unknown") {
		t.Errorf("printed\n%s", r.out)
	}
}

// What has ended is gone though it is listed; what is not listed is there for a while,
// unless it has ended.
func TestKnownApprovals(t *testing.T) {
	one, two := approval("apr_1", "x"), approval("apr_2", "x")
	both := []client.Approval{one, two}
	k := knownApprovals{ended: map[string]bool{}, missing: map[string]time.Time{}}
	for i, step := range []struct {
		ended   string
		pending []client.Approval
		after   time.Duration
		want    string
		pause   time.Duration
	}{
		{"", both, 0, "apr_1 apr_2 ", relist},
		{"", both[1:], 0, "apr_1 apr_2 ", endingEvery},
		{"", both[1:], endingTime - 1, "apr_1 apr_2 ", endingEvery},
		{"", both[1:], endingTime, "apr_2 ", relist},
		{"", both, 2 * endingTime, "apr_1 apr_2 ", relist},
		{"", both[1:], 3 * endingTime, "apr_1 apr_2 ", endingEvery},
		{"apr_1", both[1:], 3 * endingTime, "apr_2 ", relist},
		{"apr_2", both[1:], 3 * endingTime, "", relist},
		{"", both[1:], 4 * endingTime, "", relist},
		{"", nil, 5 * endingTime, "", relist},
	} {
		if step.ended != "" {
			k.ended[step.ended] = true
		}
		got := ""
		for _, a := range k.take(step.pending, watchBegin.Add(step.after)) {
			got += a.ID + " "
		}
		if got != step.want || k.pause() != step.pause {
			t.Errorf("step %d: %q, looking again in %s; want %q, %s", i, got, k.pause(), step.want, step.pause)
		}
	}
	if len(k.ended)+len(k.missing)+len(k.listed) > 0 {
		t.Errorf("is kept: %+v", k)
	}
}

func TestWatchErrors(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/approvals": problemWith(403, client.CodeForbidden)})
	d.ctl("approvals", "watch").want(t, 3, "", "it is so")
	d.ctl("approvals", "watch", "--scope", "sesion").want(t, 2, "", `did you mean "session"`)
	events := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/approvals": answerWith(client.List[client.Approval]{}),
		"GET /v1/events":    problemWith(429, client.CodeQuotaExceeded),
	})
	events.ctl("approvals", "watch").want(t, 1, "", "it is so")
}
