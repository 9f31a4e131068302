package session

import (
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// TestIdleBudget: a session with a budget is looked at often only while it has calls, and ends
// soon after the one with which it is used up.
func TestIdleBudget(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Budget: client.Budget{Calls: 2, Wall: client.Duration(time.Hour)}})
	live, err := h.m.find(alice, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if d := untilSpent(live); d != budgetIdle {
		t.Errorf("without a call it is looked at after %s", d)
	}
	c := h.background(s.ID, "hold")
	if d := untilSpent(live); d != budgetPause {
		t.Errorf("with call %s it is looked at after %s", c.ID, d)
	}
	h.host.box(s.ID).pass()
	h.call(s.ID, bashCall("true"))
	testrig.Eventually(t, "the session has ended", func() bool {
		s, err := h.m.Get(t.Context(), alice, s.ID)
		return err == nil && s.State == client.SessionEnded
	})
}
