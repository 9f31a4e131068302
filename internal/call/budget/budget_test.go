package budget

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"
)

func TestTurns(t *testing.T) {
	m := New(100)
	if err := m.Take(t.Context(), nil, "a", m.Weigh(1<<40)); err != nil || m.free != 0 {
		t.Fatalf("all of it: %v, %d are free", err, m.free)
	}
	// a asks for more before b does, but has had its turn.
	granted := make(chan string, 10)
	for i, who := range []string{"a", "a", "b", "a", "b"} {
		go func() {
			if err := m.Take(context.Background(), nil, who, 60); err != nil {
				t.Error(err)
			}
			granted <- who
		}()
		testrig.Eventually(t, "it waits", func() bool { return m.waiters() == i+1 })
	}
	m.Give(100)
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
		m.Give(60)
	}
	if want := []string{"a", "b", "a", "b", "a"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if m.free != 100 || len(m.turns) != 0 {
		t.Errorf("%d are free, %d wait", m.free, len(m.turns))
	}
}

func (m *Memory) waiters() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.turns {
		n += len(t.waiting)
	}
	return n
}

func TestGivenUp(t *testing.T) {
	m := New(100)
	if err := m.Take(t.Context(), nil, "a", 80); err != nil {
		t.Fatal(err)
	}
	// The first in the queue is large and leaves; who came after it fits.
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("left")
	large, small := make(chan error, 1), make(chan error, 1)
	go func() { large <- m.Take(ctx, nil, "b", 50) }()
	testrig.Eventually(t, "it waits", func() bool { return m.waiters() == 1 })
	go func() { small <- m.Take(t.Context(), nil, "c", 20) }()
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
	if err := m.Take(t.Context(), gone, "d", 10); !errors.Is(err, ErrGone) {
		t.Errorf("over a connection that is gone: %v", err)
	}
	if m.free != 0 || m.waiters() != 0 {
		t.Errorf("%d are free, %d wait", m.free, m.waiters())
	}
}
