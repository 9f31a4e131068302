package session

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toold/toold/client"
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
