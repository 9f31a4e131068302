package main

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// asking has the routes of a daemon whose calls all wait for this approval. Where one
// that may not be answered is not, they are rejected when their caller gives up.
func asking(a client.Approval) map[string]http.HandlerFunc {
	replies := make(chan client.ApprovalReply, 10)
	h := runHandlers(func(w http.ResponseWriter, r *http.Request) {
		var req client.CallCreate
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &req) // the tests look at what was asked
		if strings.Contains(string(req.Input), "git status") {
			stream(bashDone("", exited(0)))(w, r)
			return
		}
		sendEvent(w, "pending", client.Call{ID: fakeCall, SessionID: fakeSession, Status: client.CallPending})
		sendEvent(w, client.EventApprovalAsked, a)
		select {
		case reply := <-replies:
			sendEvent(w, client.EventApprovalReplied, reply)
			final := bashDone("", exited(0))
			if reply.Answer == "reject" {
				final.Status, final.Error = client.CallError, &client.Error{Code: client.CodeDenied, Message: "rejected: " + reply.Message}
			}
			final.Tool = req.Tool
			sendEvent(w, string(final.Status), final)
		case <-r.Context().Done():
		}
	})
	h["GET /v1/sessions"] = answerWith(client.List[client.Session]{Items: []client.Session{session()}})
	h["GET /v1/calls/{id}"] = answerWith(client.Call{ID: a.CallID, Input: json.RawMessage(`{"command":"all of it"}`)})
	h["POST /v1/calls/{id}/abort"] = func(w http.ResponseWriter, _ *http.Request) {
		replies <- client.ApprovalReply{ID: a.ID, Answer: "reject", Message: "aborted"}
		answer(w, 200, client.Call{ID: fakeCall})
	}
	h["POST /v1/approvals/{id}"] = func(w http.ResponseWriter, r *http.Request) {
		var said client.ApprovalAnswer
		_ = json.NewDecoder(r.Body).Decode(&said)
		if !a.SelfApprove {
			replies <- client.ApprovalReply{ID: a.ID, Answer: "reject", By: "uid 7", Message: "somebody else"}
			answerProblem(w, 403, client.CodeForbidden, "you made the call yourself")
			return
		}
		reply := client.ApprovalReply{ID: a.ID, Answer: string(said.Answer), By: "uid 0", Message: said.Message}
		if said.Answer == client.AnswerAlways {
			reply.Saved = []client.SavedApproval{{ID: "apr_1.1", Permission: "bash", Pattern: "git push *"}}
		}
		replies <- reply
		answer(w, 200, a)
	}
	return h
}

func own(a client.Approval) client.Approval {
	a.SelfApprove = true
	return a
}

// Who may answer the call of their own is asked at the terminal; standard output
// stays the command's.
func TestAskedAtTheTerminal(t *testing.T) {
	for _, tt := range []struct {
		args string
		keys []string
		code int
		said string
	}{
		{"run -- git push", []string{"f", "o"}, 0, `{"answer":"once","sha256":"5ha-apr_1"}`},
		{"run -- git push", []string{"a"}, 0, `{"answer":"always","scope":"session","sha256":"5ha-apr_1"}`},
		{"run -- git push", []string{"q", "s", "\x04", "r"}, 126, `{"answer":"reject","sha256":"5ha-apr_1"}`},
		{"run -- git push", []string{"m", "no, wait\r"}, 126, `{"answer":"reject","message":"no, wait","sha256":"5ha-apr_1"}`},
		{"call review bash", []string{"o"}, 0, `{"answer":"once","sha256":"5ha-apr_1"}`},
		{"call review read", []string{"o"}, 0, `{"answer":"once","sha256":"5ha-apr_1"}`},
		{"call review bash --stream -o json", []string{"o"}, 0, `{"answer":"once","sha256":"5ha-apr_1"}`},
	} {
		t.Run(tt.args+" "+strings.Join(tt.keys, ""), func(t *testing.T) {
			t.Parallel()
			d := startFake(t, asking(own(approval("apr_1", "git push"))))
			r := &watchRun{out: &screenText{}, term: newFakeTerminal(), code: make(chan int, 1)}
			out := &screenText{}
			a := &app{
				stdin: strings.NewReader(""), stdout: out, stderr: r.out, errTTY: true, getenv: func(string) string { return "" },
				openTerminal: func() (terminal, error) { return r.term, nil },
			}
			go func() {
				r.code <- run(t.Context(), append([]string{"--socket", d.socket}, strings.Fields(tt.args)...), a)
			}()
			r.out.await(t, "o once, a always (session), r reject, m with a reason, f full; Ctrl-C aborts the call")
			for _, key := range tt.keys {
				r.press(t, key)
			}
			r.exits(t, tt.code)
			var said []string
			for _, q := range d.asked("POST", "/approvals/apr_1") {
				said = append(said, string(q.body))
			}
			if !slices.Equal(said, []string{tt.said}) {
				t.Errorf("said %q, want %q", said, tt.said)
			}
			if slices.Contains(tt.keys, "f") {
				r.out.await(t, "all of it")
			}
			saved := strings.Contains(r.out.String(), "from now on allowed: bash git push * (to take it back: toolctl approvals saved rm apr_1.1)")
			if saved != slices.Contains(tt.keys, "a") {
				t.Errorf("what was saved is told: %t\n%s", saved, r.out.String())
			}
			if strings.Contains(tt.args, "json") {
				for l := range strings.Lines(out.String()) {
					if !json.Valid([]byte(l)) {
						t.Errorf("not JSON: %q", l)
					}
				}
			} else if s := strings.TrimSpace(out.String()); s != "" {
				t.Errorf("on standard output: %q", s)
			}
		})
	}
}

// What is pending is told with its reason, and with nothing that the caller may not do.
func TestAskedElsewhere(t *testing.T) {
	loop := approval("apr_1", "bash")
	loop.Requests[0] = client.ApprovalRequest{Permission: "doom_loop", Pattern: "bash", Rule: "default"}
	loop.Metadata["loop"] = "this would be call 3 in a row"
	answered := approval("apr_1", "git push")
	answered.SelfApprove = true
	shared := approval("apr_1", "a.example:443")
	shared.Metadata["once"] = "for all calls of the session, until this call ends"
	for _, tt := range []struct {
		name, args  string
		a           client.Approval
		want, never string
	}{
		{"a rule", "call review bash", approval("apr_1", "git push\x1b"), `bash git push\u{1b} (asked by config.toml:3: who pushes?)`, "answer apr_1"},
		{"a loop", "call review bash", loop, "doom loop: this would be call 3 in a row (asked by default)", "answer apr_1"},
		{"who", "call review bash", loop, "who made the call may not answer: another user of tenant default or an admin can", "answer apr_1"},
		{"a token", "--token T call review bash", loop, "a user of tenant default or an admin can, without the token; Ctrl-C aborts the call", "answer apr_1"},
		{"by name", "call review bash --id b1", loop, "Ctrl-C leaves it waiting", "aborts"},
		{"by oneself", "call review bash", answered, "to allow it: toolctl approvals answer apr_1 once; Ctrl-C aborts the call", "may not"},
		{"a connection", "call review bash", shared, "once would allow it for all calls of the session, until this call ends", "answer apr_1"},
		{"run", "run -- git push", loop, "doom loop: this would be call 3 in a row (asked by default)", "answer apr_1"},
		{"yes, which is refused", "run --yes -- git push", loop, "another user of tenant default or an admin can", "answer apr_1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := startFake(t, asking(tt.a))
			out, errOut := &screenText{}, &screenText{}
			a := &app{stdin: strings.NewReader(""), stdout: out, stderr: errOut, getenv: func(string) string { return "" }}
			code := make(chan int)
			go func() {
				code <- run(t.Context(), append([]string{"--socket", d.socket}, strings.Fields(tt.args)...), a)
			}()
			errOut.await(t, tt.want)
			// By somebody else; the fake refuses everybody, and rejects.
			_, _ = client.New(client.Options{Socket: d.socket}).AnswerApproval(t.Context(), "apr_1", client.ApprovalAnswer{Answer: client.AnswerReject})
			if got := <-code; got != exitRunDenied {
				t.Errorf("exit %d", got)
			}
			if strings.Contains(errOut.String(), tt.never) || out.String() != "" {
				t.Errorf("printed %q and %q", out, errOut)
			}
		})
	}
}

// With --yes what a rule asks about is allowed.
func TestRunYes(t *testing.T) {
	d := startFake(t, asking(own(approval("apr_1", "git push"))))
	d.ctl("run", "--yes", "--", "git", "push").want(t, 0, "", "approval apr_1: once by uid 0")
}

// A private daemon has nobody else to ask.
func TestPrivateDaemonAsks(t *testing.T) {
	withToold(t, "asks")
	privately(t, "run", "--", "git", "push").want(t, exitRunDenied, "", "rejected: "+nobodyAsked)
	privately(t, "run", "--yes", "--", "git", "push").want(t, 0, "", "approval apr_1: once")
}

// A call is marked as typed only by a person at a terminal, never with a token.
func TestTyped(t *testing.T) {
	for _, tt := range []struct {
		in, out bool
		token   string
		want    bool
	}{
		{true, true, "", true},
		{true, false, "", false},
		{false, true, "", false},
		{true, true, "T", false},
	} {
		for _, args := range []string{"call review bash {}", "run -- true"} {
			h := runHandlers(stream(bashDone("", exited(0))))
			d := startFake(t, h)
			a := &app{
				stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, inTTY: tt.in, outTTY: tt.out,
				getenv: func(name string) string { return map[string]string{"TOOLD_TOKEN": tt.token}[name] },
			}
			run(t.Context(), append([]string{"--socket", d.socket}, strings.Fields(args)...), a)
			var c client.CallCreate
			decode(t, d.asked("POST", "/calls")[0].body, &c)
			if c.Typed != tt.want {
				t.Errorf("%+v: %s: typed %v", tt, args, c.Typed)
			}
		}
	}
}
