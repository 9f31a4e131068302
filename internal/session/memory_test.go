package session

import (
	"context"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/budget"
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
	// free reports whether just so much of the 256 MiB is not taken.
	free := func(bytes int64) bool {
		ended, end := context.WithCancel(t.Context())
		end()
		fits := func(n int64) bool {
			err := h.m.calls.Memory.Take(ended, nil, budget.NewTurn(), n)
			if err == nil {
				h.m.calls.Memory.Give(n)
			}
			return err == nil
		}
		return fits(bytes) && !fits(bytes+1)
	}
	box.mu.Lock()
	box.result = 1 << 20
	box.mu.Unlock()
	c, err := h.m.calls.Call(t.Context(), alice, s.ID, readCall("a"), o)
	if err != nil || !c.Finished() {
		t.Fatalf("call %+v, %v", c, err)
	}
	if !free(250 << 20) {
		t.Errorf("not %d are taken while the answer is written", 6<<20)
	}
	for _, release := range releases {
		release()
		release() // the second does nothing
	}
	testrig.Eventually(t, "the memory is free", func() bool { return free(256 << 20) })
	h.call(s.ID, readCall("b"))
	testrig.Eventually(t, "the memory is free when nobody asks to hold it", func() bool { return free(256 << 20) })
	if err := h.m.live()[0].calls.Room(t.Context(), nil, "call_none", 1); err == nil {
		t.Error("room for a call that is over")
	}
}
