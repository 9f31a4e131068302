package budget

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(100)
		a, b := NewTurn(), NewTurn()
		if err := m.Take(t.Context(), nil, a, m.Weigh(1<<40)); err != nil || m.room.TryAcquire(1) {
			t.Fatalf("all of it: %v", err)
		}
		// a asks for more before b does, but has had its turn.
		var got []string
		for _, who := range []string{"a", "a", "b", "a", "b"} {
			go func() {
				if err := m.Take(context.Background(), nil, map[string]Turn{"a": a, "b": b}[who], 60); err != nil {
					t.Error(err)
				}
				got = append(got, who)
			}()
			synctest.Wait()
		}
		m.Give(100)
		for n := range 5 {
			synctest.Wait()
			if len(got) != n+1 {
				t.Fatalf("%v were granted", got)
			}
			m.Give(60)
		}
		if want := []string{"a", "b", "a", "b", "a"}; !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
		if !m.room.TryAcquire(100) {
			t.Error("not all are free")
		}
	})
}

func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(100)
		if err := m.Take(t.Context(), nil, NewTurn(), 80); err != nil {
			t.Fatal(err)
		}
		// The first in the queue is large and leaves; who came after it fits.
		ctx, cancel := context.WithCancelCause(t.Context())
		left := errors.New("left")
		large, small := make(chan error, 1), make(chan error, 1)
		go func() { large <- m.Take(ctx, nil, NewTurn(), 50) }()
		synctest.Wait()
		go func() { small <- m.Take(t.Context(), nil, NewTurn(), 20) }()
		synctest.Wait()
		if len(small) > 0 {
			t.Error("the small one has passed the large one")
		}
		cancel(left)
		if err := <-large; !errors.Is(err, left) {
			t.Errorf("who left got %v", err)
		}
		if err := <-small; err != nil {
			t.Error(err)
		}
		if m.room.TryAcquire(1) {
			t.Error("some are free")
		}
	})
}

func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, turn := New(100), NewTurn()
		if err := m.Take(t.Context(), nil, turn, 100); err != nil {
			t.Fatal(err)
		}
		gone, first := make(chan struct{}), make(chan error, 1)
		go func() { first <- m.Take(t.Context(), gone, turn, 10) }()
		synctest.Wait()
		if err := m.Take(t.Context(), nil, turn, 10); !errors.Is(err, ErrFull) { // it waits for the session's turn
			t.Errorf("after a minute: %v", err)
		}
		if err := <-first; !errors.Is(err, ErrFull) { // in the same moment
			t.Errorf("the first after a minute: %v", err)
		}
		close(gone)
		if err := m.Take(t.Context(), gone, turn, 10); !errors.Is(err, ErrGone) {
			t.Errorf("over a connection that is gone: %v", err)
		}
		m.Give(100)
		if err := m.Take(t.Context(), nil, turn, 100); err != nil {
			t.Errorf("it is all free, and its turn: %v", err)
		}
	})
}
