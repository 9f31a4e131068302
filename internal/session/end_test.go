package session

import (
	"sync/atomic"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// However many sessions end together, few sandboxes are removed at the same time,
// and each of them is.
func TestEndsArePaced(t *testing.T) {
	h := newHouse(t)
	h.open()
	for range 3 * destroysAtOnce {
		h.create(alice, client.SessionCreate{})
	}
	var now, most atomic.Int32
	release := make(chan struct{})
	h.host.onDestroy = func() {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
		now.Add(-1)
	}
	over := make(chan error, 1)
	go func() { over <- h.m.EndAll(t.Context()) }()
	testrig.Eventually(t, "all are ending", func() bool {
		for _, s := range h.m.live() {
			if s.Row().State != client.SessionEnding {
				return false
			}
		}
		return now.Load() >= destroysAtOnce
	})
	close(release)
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if most.Load() != destroysAtOnce || len(h.host.boxes) != 0 {
		t.Errorf("%d at once, want %d; %d are left", most.Load(), destroysAtOnce, len(h.host.boxes))
	}
}
