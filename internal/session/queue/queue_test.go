package queue

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toold/toold/internal/fault"
)

func yes() error { return nil }

// TestTurns: nobody overtakes those who wait, and each is told where they stand.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("t", func() int { return 1 })
		if err := p.Take(nil, false, yes); err != nil {
			t.Fatal(err)
		}
		told := make([][]int, 3)
		var order []int
		for i := range told {
			w, err := p.Join()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if err := p.Await(t.Context(), w, nil, func(n int) { told[i] = append(told[i], n) }, yes); err != nil {
					t.Error(err)
				}
				if err := p.Take(w, false, yes); err != nil {
					t.Error(err)
				}
				order = append(order, i)
			}()
			synctest.Wait()
		}
		for range told {
			p.Give()
			synctest.Wait()
			if err := p.Take(nil, false, yes); !errors.Is(err, ErrFull) {
				t.Errorf("one that does not wait: %v", err)
			}
		}
		if !slices.Equal(order, []int{0, 1, 2}) || !slices.Equal(told[2], []int{3, 2, 1}) {
			t.Errorf("in the order %v; the last was told %v", order, told[2])
		}
		if taken, waiting := p.Count(); taken != 1 || waiting != 0 {
			t.Errorf("%d taken, %d wait", taken, waiting)
		}
	})
}

// TestNoTurn: a turn ends with the request, its time, and what is open.
func TestNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("t", func() int { return 1 })
		if err := p.Take(nil, true, yes); err != nil {
			t.Fatal(err)
		}
		closed := errors.New("closed")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(closed)
		w, err := p.Join()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Await(ctx, w, nil, nil, yes); !errors.Is(err, closed) {
			t.Errorf("the request ended: %v", err)
		}
		if err := p.Await(t.Context(), w, nil, nil, func() error { return closed }); !errors.Is(err, closed) {
			t.Errorf("not open: %v", err)
		}
		if err := p.Await(t.Context(), w, time.After(time.Hour), nil, yes); !errors.Is(err, fault.Quota) {
			t.Errorf("late: %v", err)
		}
		if _, waiting := p.Count(); waiting != 0 {
			t.Errorf("%d wait", waiting)
		}
	})
}

// TestMove: those who wait see another bound when they are moved.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most atomic.Int64
		most.Store(1)
		p := New("t", func() int { return int(most.Load()) })
		if err := p.Take(nil, true, yes); err != nil {
			t.Fatal(err)
		}
		w, err := p.Join()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- p.Await(t.Context(), w, nil, nil, yes) }()
		synctest.Wait()
		most.Store(2)
		p.Move()
		if err := <-done; err != nil {
			t.Error(err)
		}
		refused := errors.New("refused")
		if err := p.Take(w, false, func() error { return refused }); !errors.Is(err, refused) {
			t.Errorf("refused: %v", err)
		}
		if taken, waiting := p.Count(); taken != 1 || waiting != 1 {
			t.Errorf("after a refusal %d are taken and %d wait", taken, waiting)
		}
	})
}

func TestFullQueue(t *testing.T) {
	p := New("t", func() int { return 1 })
	for range maxQueued {
		if _, err := p.Join(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Join(); !errors.Is(err, fault.Overloaded) {
		t.Errorf("one more: %v", err)
	}
}
