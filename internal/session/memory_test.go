package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/testrig"
)

func TestMemoryTakesTurns(t *testing.T) {
	m := newMemory(100)
	if err := m.take(t.Context(), nil, "a", m.weigh(1<<40)); err != nil || m.free != 0 {
		t.Fatalf("all of it: %v, %d are free", err, m.free)
	}
	// a asks for more before b does, but has had its turn.
	granted := make(chan string, 10)
	for i, who := range []string{"a", "a", "b", "a", "b"} {
		go func() {
			if err := m.take(context.Background(), nil, who, 60); err != nil {
				t.Error(err)
			}
			granted <- who
		}()
		testrig.Eventually(t, "it waits", func() bool { return m.waiters() == i+1 })
	}
	m.give(100)
	var got []string
	for range 5 {
		select {
		case who := <-granted:
			got = append(got, who)
		case <-time.After(time.Minute):
			t.Fatalf("only %v were granted", got)
		}
		if n := m.total - m.free; n != 60 {
			t.Errorf("%d are taken", n)
		}
		m.give(60)
	}
	if want := []string{"a", "b", "a", "b", "a"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if m.free != 100 || len(m.turns) != 0 {
		t.Errorf("%d are free, %d wait", m.free, len(m.turns))
	}
}

func (m *memory) waiters() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.turns {
		n += len(t.waiting)
	}
	return n
}

func TestMemoryIsGivenUp(t *testing.T) {
	m := newMemory(100)
	if err := m.take(t.Context(), nil, "a", 80); err != nil {
		t.Fatal(err)
	}
	// The first in the queue is large and leaves; who came after it fits.
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("left")
	large, small := make(chan error, 1), make(chan error, 1)
	go func() { large <- m.take(ctx, nil, "b", 50) }()
	testrig.Eventually(t, "it waits", func() bool { return m.waiters() == 1 })
	go func() { small <- m.take(t.Context(), nil, "c", 20) }()
	testrig.Eventually(t, "both wait", func() bool { return m.waiters() == 2 })
	cancel(left)
	if err := <-large; !errors.Is(err, left) {
		t.Errorf("who left got %v", err)
	}
	if err := <-small; err != nil {
		t.Error(err)
	}
	gone := make(chan struct{})
	close(gone)
	if err := m.take(t.Context(), gone, "d", 10); !errors.Is(err, agent.ErrLost) {
		t.Errorf("over a connection that is gone: %v", err)
	}
	if m.free != 0 || m.waiters() != 0 {
		t.Errorf("%d are free, %d wait", m.free, m.waiters())
	}
}

// TestMemoryOfACall: the memory of a result is counted until its answer was
// written, however many wait for it.
func TestMemoryOfACall(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	var releases []func()
	o := CallOptions{Hold: func(release func()) { releases = append(releases, release) }}
	taken := func() int64 {
		h.m.memory.mu.Lock()
		defer h.m.memory.mu.Unlock()
		return h.m.memory.total - h.m.memory.free
	}
	box.mu.Lock()
	box.result = 1 << 20
	box.mu.Unlock()
	c, err := h.m.Call(t.Context(), alice, s.ID, readCall("a"), o)
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
	if err := h.m.live()[0].room(t.Context(), nil, "call_none", 1); err == nil {
		t.Error("room for a call that is over")
	}
}
