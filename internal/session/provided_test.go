package session

import (
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/tool/run"
)

// A call whose path leads elsewhere than it says is judged by where it leads,
// whatever it was let to run by.
func TestLeadsElsewhere(t *testing.T) {
	elsewhere := &run.Prepared{Targets: []run.Target{{Asked: "file", Path: "/workspace/secret", Kind: "file", Exists: true}}}
	for _, tc := range []struct {
		name, rules string
		want        client.Code
		rule        string
	}{
		{"denied", `permission = { read = { "*" = "allow", "secret" = "deny" } }`, client.CodeDenied, "config.toml:1"},
		{"allowed", `permission = { read = { "*" = "allow", "file" = "allow" } }`, "", "config.toml:1"},
		{"allowed only there", `permission = { read = { "*" = "deny", "secret" = "allow" } }`, "", "config.toml:1"},
		{"allowed only as it says", `permission = { read = { "*" = "deny", "file" = "allow" } }`, client.CodeDenied, "config.toml:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHouse(t)
			h.set.Policy = rules(t, tc.rules)
			h.open()
			s := h.create(alice, client.SessionCreate{})
			box := h.host.box(s.ID)
			box.prepared = elsewhere
			c := h.call(s.ID, readCall("file"))
			got := client.Code("")
			if c.Error != nil {
				got = c.Error.Code
			}
			if got != tc.want || c.Permission == nil || c.Permission.Rule != tc.rule {
				t.Errorf("error %+v permission %+v", c.Error, c.Permission)
			}
			if ran := len(box.runs); ran > 1 || (ran == 1) != (tc.want == "") {
				t.Errorf("%d runs", ran)
			}
			if (c.Time.Started == nil) != (tc.want != "") {
				t.Errorf("a call that did not run has begun: %+v", c.Time)
			}
			if again := h.finished(c.ID); again.Status != c.Status {
				t.Errorf("stored as %s, told as %s", again.Status, c.Status)
			}
		})
	}
}

// What leads elsewhere may have to be asked for: then the call is pending and
// holds no slot.
func TestElsewhereIsAsked(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, `permission = { read = { "*" = "allow", "secret" = "ask" } }`)
	h.set.Limits.Calls = 1
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	box.prepared = &run.Prepared{Targets: []run.Target{{Asked: "file", Path: "/workspace/secret", Kind: "file", Exists: true}}}
	c, a := h.waitingFor(alice, s.ID, readCall("file"))
	if got, err := h.m.calls.GetCall(t.Context(), alice, c.ID); err != nil || got.Status != client.CallPending || got.Time.Started != nil {
		t.Errorf("it waits as %+v, %v", got, err)
	}
	if other := h.call(s.ID, bashCall("echo ok")); other.Error != nil {
		t.Errorf("its slot is taken: %v", other.Error)
	}
	h.answer(a, client.ApprovalAnswer{Answer: client.AnswerOnce})
	if c := h.finished(c.ID); c.Error != nil || c.Status != client.CallCompleted {
		t.Errorf("approved: %+v", c)
	}
}

// A connection that is lost while the agent is told to forget a call that it has
// not run is no end of the call.
func TestElsewhereAndTheConnectionLost(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	h.host.box(s.ID).prepared = &run.Prepared{Targets: []run.Target{{Asked: "file", Path: "/workspace/other", Kind: "file", Exists: true}}}
	h.host.fail("forget", agent.ErrLost)
	if c := h.call(s.ID, readCall("file")); c.Error != nil || c.Status != client.CallCompleted {
		t.Errorf("%s, %+v", c.Status, c.Error)
	}
}
