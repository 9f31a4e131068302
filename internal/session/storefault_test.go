package session

import (
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
)

// TestStoreFails takes the store away under the daemon, as a disk that fails
// would: nothing begins without a record, and a result that cannot be stored is
// shown, kept by the agent, and stored by the next daemon.
func TestStoreFails(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	c := h.background(s.ID, "echo kept; hold; exit 5")
	testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{}); codeOfErr(err) != client.CodeInternal {
		t.Errorf("create without a store: %v", err)
	}
	if n := len(h.host.boxes); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
	if _, err := h.m.calls.Call(t.Context(), alice, s.ID, bashCall("echo x"), call.Options{}); err == nil {
		// Without a key nobody waits for the record alone: the call is refused
		// where it would have been started.
		if n := len(box.runs); n != 1 {
			t.Errorf("a call without a record ran: %d runs", n)
		}
	}
	keyed := bashCall("echo x")
	keyed.Key = "k"
	if _, err := h.m.calls.Call(t.Context(), alice, s.ID, keyed, call.Options{}); codeOfErr(err) != client.CodeInternal {
		t.Errorf("call without a store: %v", err)
	}
	box.release()
	if done := h.finished(c.ID); done.Status != client.CallCompleted || done.Output != "kept\nexit code 5" {
		t.Errorf("the result in memory: %+v", done)
	}
	box.mu.Lock()
	if len(box.forgot) != 0 {
		t.Error("the agent was told to forget what is not stored")
	}
	box.mu.Unlock()
	if len(box.runs) != 1 {
		t.Errorf("%d calls ran", len(box.runs))
	}
	h.stop()
	h.open()
	if done := h.finished(c.ID); done.Status != client.CallCompleted || done.Output != "kept\nexit code 5" {
		t.Errorf("the result of the next daemon: %+v", done)
	}
}

// TestStoreFailsUnderAnApproval: without a record of it there is no answer, and
// no call that waits runs.
func TestStoreFailsUnderAnApproval(t *testing.T) {
	h, _ := asking(t)
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	c, a := h.waiting(s.ID, "ls")
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []client.ApprovalAnswer{once, always, reject} {
		if _, err := h.m.Approvals.Answer(t.Context(), carol, a.ID, answer); codeOfErr(err) != client.CodeInternal {
			t.Errorf("%s: %v", answer.Answer, err)
		}
	}
	if p := h.pending(); len(p) != 1 || len(box.runs) != 0 {
		t.Errorf("pending %+v, runs %v", p, box.runs)
	}
	if c := h.call(s.ID, bashCall("pwd")); c.Error == nil || len(h.pending()) != 1 {
		t.Errorf("an approval without a record: %+v", c)
	}
	h.stop()
	h.open()
	testrig.Eventually(t, "it waits again", func() bool { return len(h.pending()) == 1 })
	h.answer(a, once)
	if done := h.finished(c.ID); done.Status != client.CallCompleted || len(box.runs) != 1 {
		t.Errorf("%+v, runs %v", done.Error, box.runs)
	}
}
