package call

import (
	"context"
	"errors"
	"testing"

	"github.com/toold/toold/internal/fault"
)

// anyNumber lets tenants have this many calls; 0 = any number.
type anyNumber int

func (n anyNumber) MostCalls(string) int { return int(n) }

func newSlots(most, atOnce int) *slots {
	return &slots{session: "s", tenant: &Tenant{Name: "t"}, quota: anyNumber(most), free: make(chan struct{}, atOnce)}
}

func TestSlotsCount(t *testing.T) {
	s := newSlots(0, 1)
	var in []*seat
	for range 1 + QueueLen {
		in = append(in, new(seat))
		if err := s.enter(in[len(in)-1]); err != nil {
			t.Fatal(err)
		}
	}
	over := new(seat)
	if err := s.enter(over); !errors.Is(err, fault.Overloaded) {
		t.Errorf("one more than run and wait: %v", err)
	}
	s.uncount(over) // it was not let in
	for _, c := range in {
		s.uncount(c)
		s.uncount(c)
	}
	if s.open.Load() != 0 || s.tenant.Calls.Load() != 0 {
		t.Errorf("%d of the session and %d of the tenant are left", s.open.Load(), s.tenant.Calls.Load())
	}
}

func TestSlotsOfTenant(t *testing.T) {
	s := newSlots(1, 8)
	if err := s.enter(new(seat)); err != nil {
		t.Fatal(err)
	}
	if err := s.enter(new(seat)); !errors.Is(err, fault.Overloaded) {
		t.Errorf("one more than the tenant may have: %v", err)
	}
	if s.open.Load() != 1 || s.tenant.Calls.Load() != 1 {
		t.Errorf("%d of the session and %d of the tenant, want 1", s.open.Load(), s.tenant.Calls.Load())
	}
}

func TestSlotsWait(t *testing.T) {
	s, first, second := newSlots(0, 1), new(seat), new(seat)
	never := func() error { t.Error("queued with a slot free"); return nil }
	if err := s.take(t.Context(), first, never); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no")
	if err := s.take(t.Context(), second, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("queueing fails: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := s.take(ctx, second, func() error { cancel(broken); return nil }); !errors.Is(err, broken) {
		t.Errorf("it ended while it waited: %v", err)
	}
	s.leave(second) // which has none
	if err := s.take(t.Context(), second, func() error { s.leave(first); return nil }); err != nil {
		t.Fatal(err)
	}
	s.leave(first)
	if len(s.free) != 1 {
		t.Errorf("%d slots are taken, want the second call's", len(s.free))
	}
}

func TestSlotsStill(t *testing.T) {
	s := newSlots(0, 2)
	runs := new(seat)
	never := func() error { return nil }
	if err := s.take(t.Context(), runs, never); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := s.still(ctx)
		gaveUp <- err
	}()
	cancel()
	if err := <-gaveUp; err == nil || len(s.free) != 1 {
		t.Errorf("while a call runs: %v, %d slots are taken", err, len(s.free))
	}
	s.leave(runs)
	release, err := s.still(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	waits := func() error { cancel(); return nil } // as soon as it waits, it gives up
	if err := s.take(ctx, runs, waits); err == nil {
		t.Error("a call ran in between")
	}
	release()
	if err := s.take(t.Context(), runs, never); err != nil || len(s.free) != 1 {
		t.Errorf("afterwards: %v, %d slots are taken", err, len(s.free))
	}
}
