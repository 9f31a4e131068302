package session

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/internal/approval"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/steady"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

func TestPendingApprovalOverADaemonsDeath(t *testing.T) {
	for name, end := range map[string]func(h *house){"killed": (*house).kill, "stopped": (*house).stop} {
		t.Run(name, func(t *testing.T) {
			h, _ := asking(t)
			s := h.create(alice, client.SessionCreate{Token: true})
			box := h.host.box(s.ID)
			token := auth.Principal{UID: alice.UID, Tenant: "a", Session: s.ID}
			r := bashCall("ls; echo done")
			r.Key, r.TimeoutMillis = "k", 12345
			c, a := h.waitingFor(token, s.ID, r)
			rejected, b := h.waiting(s.ID, "pwd")
			h.m.drain = time.Hour // nobody waits for a call that waits for people
			end(h)
			h.open()
			testrig.Eventually(t, "both wait again", func() bool { return len(h.pending()) == 2 })
			p := h.pending()
			if len(p) != 2 || p[0].ID != a.ID || p[0].CallID != c.ID || p[0].SHA256 != a.SHA256 || !p[0].Expires.Equal(a.Expires) ||
				p[0].Metadata["command"] != "ls; echo done" || len(p[0].Requests) != 1 {
				t.Fatalf("pending %+v, want %+v", p, a)
			}
			if got, err := h.m.calls.GetCall(t.Context(), alice, c.ID); err != nil || got.Status != client.CallPending {
				t.Errorf("%+v, %v", got, err)
			}
			// It is still the token's own call.
			if _, err := h.m.Approvals.Answer(t.Context(), token, a.ID, once); codeOfErr(err) != client.CodeForbidden {
				t.Errorf("its own token: %v", err)
			}
			h.answer(b, client.ApprovalAnswer{Answer: client.AnswerReject, Message: "no"})
			h.answer(a, once)
			done := h.finished(c.ID)
			if done.Status != client.CallCompleted || done.Output != "done\n" || done.Permission.ApprovalID != a.ID {
				t.Errorf("%+v, %+v", done.Error, done)
			}
			if c := h.finished(rejected.ID); c.Error == nil || c.Error.Code != client.CodeDenied {
				t.Errorf("%+v", c.Error)
			}
			if len(box.runs) != 1 || box.runs[0] != c.ID {
				t.Errorf("runs %v", box.runs)
			}
			// The key leads to it.
			r.WaitMillis = nil
			if again := h.call(s.ID, r); again.ID != c.ID {
				t.Errorf("the key leads to %s", again.ID)
			}
			h.stop()
			h.open()
			if len(h.pending()) != 0 || len(box.runs) != 1 {
				t.Errorf("pending %v, runs %v", h.pending(), box.runs)
			}
			if live := h.m.live()[0]; live.calls.Open() != 0 || live.tenant.Calls.Load() != 0 {
				t.Errorf("%d and %d calls are open", live.calls.Open(), live.tenant.Calls.Load())
			}
		})
	}
}

// TestAnsweredBeforeTheDaemonDied: the answer is on disk, the call has not begun.
func TestAnsweredBeforeTheDaemonDied(t *testing.T) {
	for _, tt := range []struct {
		reply string
		want  client.Code
	}{{"once", ""}, {"always", ""}, {"reject", client.CodeDenied}, {"timeout", client.CodeApprovalTimeout}, {"stale", client.CodeStaleApproval}} {
		t.Run(tt.reply, func(t *testing.T) {
			h, _ := asking(t)
			s := h.create(alice, client.SessionCreate{})
			c, a := h.waiting(s.ID, "ls; echo done")
			h.kill()
			h.answerOnDisk(a.ID, tt.reply)
			h.open()
			done := h.finished(c.ID)
			if done.Error != nil && done.Error.Code != tt.want || done.Error == nil && (tt.want != "" || done.Output != "done\n") {
				t.Errorf("%+v, %+v", done.Error, done)
			}
			if n := len(h.pending()); n != 0 {
				t.Errorf("%d wait", n)
			}
		})
	}
}

// TestApprovedForAnotherInput: a hook has replaced the input of an approved call,
// and the daemon died before that was asked about.
func TestApprovedForAnotherInput(t *testing.T) {
	for _, reply := range []string{"once", "always"} {
		h, _ := asking(t)
		s := h.create(alice, client.SessionCreate{})
		c, a := h.waiting(s.ID, "ls")
		h.kill()
		h.answerOnDisk(a.ID, reply)
		h.build()
		if err := h.store.Write(func(tx *store.Tx) error { return tx.ReplaceInput(c.ID, bashCall("pwd").Input) }); err != nil {
			t.Fatal(err)
		}
		h.stop()
		h.open()
		if done := h.finished(c.ID); done.Error == nil || done.Error.Code != client.CodeStaleApproval {
			t.Errorf("%s: %+v", reply, done.Error)
		}
		if n := len(h.host.box(s.ID).runs); n != 0 {
			t.Errorf("%s: it ran", reply)
		}
	}
}

// answerOnDisk writes the answer to an approval as a daemon does that is killed
// before it hears of it.
func (h *house) answerOnDisk(id, reply string) {
	h.t.Helper()
	h.build()
	row, err := h.store.Approval(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	row.Reply, row.By, row.Answered = reply, "uid 1002", new(time.Now())
	if err := h.store.Write(func(tx *store.Tx) error { return tx.AnswerApproval(row) }); err != nil {
		h.t.Fatal(err)
	}
	h.stop()
}

// expireOnDisk asks for an approval anew, as it would have been asked for so long
// ago that its time has passed.
func (h *house) expireOnDisk(id string) {
	h.t.Helper()
	h.build()
	row, err := h.store.Approval(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	again := *row
	again.ID, again.Expires, again.Until = h.store.NewID("apr_"), time.Now().Add(-time.Second), steady.Now().In(-time.Second)
	row.Reply, row.Answered = approval.Gone, new(time.Now())
	if err := h.store.Write(func(tx *store.Tx) error { return errors.Join(tx.AnswerApproval(row), tx.InsertApproval(&again)) }); err != nil {
		h.t.Fatal(err)
	}
	h.stop()
}

func TestWhatIsNotTakenUpAgain(t *testing.T) {
	h, _ := asking(t)
	h.reload(func(set *Settings) { set.Policy = rules(t, `permission = { "*" = "ask" }`) })
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	// The values of its environment are nowhere any more.
	env, _ := h.waitingFor(alice, s.ID, with(bashCall("ls"), func(r *client.CallCreate) { r.Env = map[string]string{"A": "b"} }))
	// What was to be written has changed meanwhile.
	box.prepared = &run.Prepared{Targets: []run.Target{{Asked: "f", Path: "/workspace/f", Write: true, SHA256: "one"}}}
	changed, _ := h.waitingFor(alice, s.ID, writeCall("f"))
	late, a := h.waiting(s.ID, "pwd")
	go func() { _, _, _ = h.m.Files.Download(t.Context(), alice, s.ID, "x") }()
	testrig.Eventually(t, "four wait", func() bool { return len(h.pending()) == 4 })
	h.kill()
	h.expireOnDisk(a.ID)
	box.prepared = &run.Prepared{Targets: []run.Target{{Asked: "f", Path: "/workspace/f", Write: true, SHA256: "two"}}}
	h.open()
	for _, tt := range []struct {
		call string
		code client.Code
	}{{env.ID, client.CodeAborted}, {changed.ID, client.CodeStaleApproval}, {late.ID, client.CodeApprovalTimeout}} {
		if c := h.finished(tt.call); c.Error == nil || c.Error.Code != tt.code {
			t.Errorf("%+v, want %s", c.Error, tt.code)
		}
	}
	testrig.Eventually(t, "nothing waits", func() bool { return len(h.pending()) == 0 })
	if left, err := h.store.PendingApprovals(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("left in the store: %v, %v", left, err)
	}
	if len(box.runs) != 0 {
		t.Errorf("runs %v", box.runs)
	}
}

// TestRulesChangedWithoutADaemon: what waits is judged again by the daemon that
// takes it up.
func TestRulesChangedWithoutADaemon(t *testing.T) {
	for action, want := range map[string]client.CallStatus{"allow": client.CallCompleted, "deny": client.CallError} {
		h, _ := asking(t)
		s := h.create(alice, client.SessionCreate{})
		c, a := h.waiting(s.ID, "ls")
		h.kill()
		h.set.Policy = rules(t, `permission = { bash = "`+action+`" }`)
		h.open()
		if done := h.finished(c.ID); done.Status != want || done.Error != nil && !strings.Contains(done.Error.Message, "config.toml:1") {
			t.Errorf("%s: %+v, %+v", action, done.Error, done.Permission)
		}
		if row, err := h.store.Approval(t.Context(), a.ID); err != nil || row.By != approval.ByRules || row.Answered == nil {
			t.Errorf("%s: %+v, %v", action, row, err)
		}
	}
}

func TestSessionDiesWhileACallWaits(t *testing.T) {
	h, _ := asking(t)
	s := h.create(alice, client.SessionCreate{})
	c, a := h.waiting(s.ID, "ls")
	h.kill()
	h.host.box(s.ID).die()
	h.open()
	if c := h.finished(c.ID); c.Error == nil {
		t.Errorf("%+v", c)
	}
	if row, err := h.store.Approval(t.Context(), a.ID); err != nil || row.Reply != approval.Gone {
		t.Errorf("%+v, %v", row, err)
	}
}
