package session

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/testrig"
)

// When the host has hardly any memory left the session goes first that has most outside its limit,
// then the one that has most in all, and none while one gives back; nothing new begins.
func TestHostMemory(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.set.HostMemory = room.Floor{Bytes: 8 << 20}
	m := h.build()
	m.memory.patience = testrig.Patience // none goes in place of one that has only not been heard
	var free atomic.Int64
	free.Store(1 << 30)
	var gone atomic.Pointer[func() bool] // when there is memory again
	m.memory.look = func() (room.Volume, error) {
		v := room.Volume{Free: free.Load(), Size: 4 << 30}
		if v.Free < 1<<30 && (*gone.Load())() {
			free.Store(1 << 30)
			v.Free = 1 << 30
		}
		return v, nil
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	outside, large, small := h.create(alice, client.SessionCreate{}), h.create(alice, client.SessionCreate{}), h.create(alice, client.SessionCreate{})
	boxes := []*fakeBox{h.host.box(outside.ID), h.host.box(large.ID), h.host.box(small.ID)}
	boxes[0].uncounted.Store(outsideLeast + 1)
	boxes[1].uncounted.Store(outsideLeast - 1)
	boxes[1].memory.Store(40 << 20)
	var calls []*client.Call
	for _, id := range []string{outside.ID, large.ID, small.ID} {
		calls = append(calls, h.background(id, "echo part; hold; echo whole"))
	}
	for _, b := range boxes {
		testrig.Eventually(t, "it holds", func() bool { return b.holding.Load() == 1 })
	}
	for i, b := range boxes[:2] {
		back := func() bool { return b.holding.Load() == 0 }
		gone.Store(&back)
		free.Store(11 << 20)
		c := h.finished(calls[i].ID)
		if c.Metadata["reason"] != "memory" || !strings.HasPrefix(c.Output, "part\n") || !strings.Contains(c.Output, "the host's memory is nearly full") {
			t.Errorf("call %d: %+v", i, c)
		}
		testrig.Eventually(t, "there is memory again", func() bool { return free.Load() == 1<<30 })
	}
	boxes[2].pass()
	if c := h.finished(calls[2].ID); c.Metadata["reason"] != "exit" || c.Output != "part\nwhole\n" {
		t.Errorf("the last session's call: %+v", c)
	}
	if r := m.MemoryRoom(); r.Stopped != 2 || r.Floor != 8<<20 || r.Checks()[0].Status != client.CheckOK {
		t.Errorf("%+v, %+v", r, r.Checks())
	}

	never := func() bool { return false }
	gone.Store(&never)
	free.Store(9 << 20)
	testrig.Eventually(t, "it is tight", func() bool { return room.Level(m.memory.level.Load()) == room.Tight })
	_, err := m.Create(t.Context(), alice, client.SessionCreate{})
	if codeOfErr(err) != client.CodeOverloaded || !strings.Contains(err.Error(), "must stay (daemon.host_memory)") {
		t.Errorf("a new session: %v", err)
	}
	if c := h.finished(h.background(small.ID, "echo x").ID); c.Error == nil || c.Error.Code != client.CodeOverloaded || !strings.Contains(c.Error.Message, "the host's memory is nearly full") {
		t.Errorf("a new call: %+v", c)
	}
	if c := m.MemoryRoom().Checks()[0]; c.Status != client.CheckFail || c.Hint == "" {
		t.Errorf("doctor: %+v", c)
	}
	free.Store(1 << 30)
	testrig.Eventually(t, "there is enough", func() bool { return room.Level(m.memory.level.Load()) == room.Enough })
	if c := h.finished(h.background(small.ID, "echo x").ID); c.Output != "x\n" {
		t.Errorf("a call when there is memory again: %+v", c)
	}
	h.create(alice, client.SessionCreate{})
}

// Without a floor nothing is refused, and doctor says so.
func TestNoHostMemory(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	m := h.build()
	m.memory.look = func() (room.Volume, error) { return room.Volume{Free: 1, Size: 1 << 30}, nil }
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := h.create(alice, client.SessionCreate{})
	if c := h.finished(h.background(s.ID, "echo x").ID); c.Output != "x\n" {
		t.Errorf("%+v", c)
	}
	if c := m.MemoryRoom().Checks()[0]; c.Status != client.CheckWarn || !strings.Contains(c.Hint, "daemon.host_memory") {
		t.Errorf("%+v", c)
	}
}
