package session

import (
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
)

// TestMemoryOfACall: the memory of a result is counted until its answer was
// written, however many wait for it.
func TestMemoryOfACall(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	var releases []func()
	o := call.Options{Hold: func(release func()) { releases = append(releases, release) }}
	taken := h.m.calls.Memory.Taken
	box.mu.Lock()
	box.result = 1 << 20
	box.mu.Unlock()
	c, err := h.m.calls.Call(t.Context(), alice, s.ID, readCall("a"), o)
	if err != nil || !c.Finished() {
		t.Fatalf("call %+v, %v", c, err)
	}
	if got := taken(); got != 6<<20 {
		t.Errorf("%d are taken while the answer is written, want %d", got, 6<<20)
	}
	for _, release := range releases {
		release()
		release() // the second does nothing
	}
	testrig.Eventually(t, "the memory is free", func() bool { return taken() == 0 })
	h.call(s.ID, readCall("b"))
	testrig.Eventually(t, "the memory is free when nobody asks to hold it", func() bool { return taken() == 0 })
	if err := h.m.live()[0].calls.Room(t.Context(), nil, "call_none", 1); err == nil {
		t.Error("room for a call that is over")
	}
}
