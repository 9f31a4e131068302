package session

import (
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// A session whose sockets keep too much of the host's memory loses what runs in it, is told why,
// and goes on; another keeps its call.
func TestSocketsKeepTooMuch(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.open()
	greedy, other := h.create(alice, client.SessionCreate{}), h.create(alice, client.SessionCreate{})
	box, next := h.host.box(greedy.ID), h.host.box(other.ID)
	next.uncounted.Store(mostUncounted) // all that it may have
	x, y := h.background(greedy.ID, "echo part; hold"), h.background(other.ID, "hold; echo whole")
	testrig.Eventually(t, "both hold", func() bool { return box.holding.Load()+next.holding.Load() == 2 })
	box.uncounted.Store(mostUncounted + 1)
	c := h.finished(x.ID)
	if c.Metadata["reason"] != "memory" || !strings.HasPrefix(c.Output, "part\n") || !strings.Contains(c.Output, "its sockets kept") || strings.Contains(c.Output, "limit") || c.Metadata["host"] == nil {
		t.Errorf("%+v", c)
	}
	if box.freed.Load() != 0 {
		t.Error("files in memory were removed for it")
	}
	box.uncounted.Store(0)
	next.pass()
	if c := h.finished(y.ID); c.Metadata["reason"] != "exit" || c.Output != "whole\n" {
		t.Errorf("the other session's call: %+v", c)
	}
	if c := h.finished(h.background(greedy.ID, "echo again").ID); c.Output != "again\n" {
		t.Errorf("the next call: %+v", c)
	}
}

// A session with too many locks of files loses what runs in it, is told why, and goes on.
func TestTooManyLocks(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	x := h.background(s.ID, "echo part; hold")
	testrig.Eventually(t, "it holds", func() bool { return box.holding.Load() == 1 })
	watch := lockWatch{roster: h.m.roster, late: map[*Session]time.Duration{}}
	box.fileLocks.Store(mostLocks)
	watch.look(h.m.live()[0])
	if box.holding.Load() != 1 || !h.m.live()[0].calls.Writing() {
		t.Error("it was stopped with all that it may have")
	}
	box.fileLocks.Store(mostLocks + 1)
	box.locksTake.Store(int64(locksTime) + 1) // more than one look has
	watch.look(h.m.live()[0])
	if watch.late[h.m.live()[0]] != 2*locksTime || box.holding.Load() != 1 {
		t.Errorf("a look that was cut off: %v", watch.late)
	}
	testrig.Eventually(t, "the next one has more time", func() bool {
		watch.look(h.m.live()[0])
		return len(watch.late) == 0
	})
	if c := h.finished(x.ID); c.Metadata["reason"] != "memory" || !strings.HasPrefix(c.Output, "part\n") || !strings.Contains(c.Output, "too many locks") {
		t.Errorf("%+v", c)
	}
	box.fileLocks.Store(0) // the daemon looks too, when the host has more
	if c := h.finished(h.background(s.ID, "echo again").ID); c.Output != "again\n" {
		t.Errorf("the next call: %+v", c)
	}
}
