package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/session/room"
)

// What is being made counts until a survey that began when it was there, whenever others look.
func TestPromises(t *testing.T) {
	t.Parallel()
	h := &hostDisk{dir: t.TempDir()}
	sum := func() int64 {
		h.mu.Lock()
		defer h.mu.Unlock()
		return int64(h.promisedLocked())
	}
	one, two := h.promise(3), h.promise(5)
	h.survey()
	if got := sum(); got != 8 {
		t.Errorf("a survey forgot what is being made: %d bytes are promised", got)
	}
	one()
	one()
	if got := sum(); got != 8 {
		t.Errorf("one is made and not surveyed: %d bytes are promised", got)
	}
	h.survey()
	if got := sum(); got != 5 {
		t.Errorf("one was surveyed: %d bytes are promised", got)
	}
	two()
	h.survey()
	if got := sum(); got != 0 {
		t.Errorf("at the end %d bytes are promised", got)
	}
}

// Sessions that come at once are not given the same room.
func TestPromisedAtOnce(t *testing.T) {
	t.Parallel()
	h := &hostDisk{dir: t.TempDir()}
	v, err := room.At(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	set := &Settings{DiskOvercommit: 1}
	var taken atomic.Int32
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if _, err := h.accepts(set, promise{rest: client.Size(v.Free / 3)}, nil); err == nil {
				taken.Add(1)
			}
		})
	}
	wait.Wait()
	if n := taken.Load(); n < 1 || n > 3 {
		t.Errorf("%d sessions were each promised a third of what is free", n)
	}
}

// Work of an unknown size begins only with room, and ends when calls are stopped for want of it.
func TestOwnWork(t *testing.T) {
	t.Parallel()
	h := &hostDisk{dir: t.TempDir()}
	v, err := room.At(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.begin(t.Context(), &Settings{HostFree: room.Floor{Percent: 99}}, 0); !errors.Is(err, fault.Overloaded) {
		t.Errorf("without room: %v", err)
	}
	if _, _, err := h.begin(t.Context(), &Settings{HostFree: room.Floor{Bytes: 1}}, v.Size); !errors.Is(err, fault.Overloaded) {
		t.Errorf("more than there is: %v", err)
	}
	over, done, err := h.begin(t.Context(), &Settings{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	done()
	ctx, done, err := h.begin(t.Context(), &Settings{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	h.stopWorks(v, 7)
	for what, ctx := range map[string]context.Context{"work that is over": over, "work": ctx} {
		if is, want := errors.Is(context.Cause(ctx), fault.Overloaded), what == "work"; is != want {
			t.Errorf("%s was stopped: %v", what, context.Cause(ctx))
		}
	}
}
