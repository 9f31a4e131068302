package session

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
)

// TestChurn makes and ends sessions with faults at every step; nothing of them
// may be left.
func TestChurn(t *testing.T) {
	h := newHouse(t)
	h.open()
	ops := []string{"create", "created", "dial", "cgroup", "connect", "attach", "run", "prepare", "usage", "close"}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range testrig.Rounds(100) {
				op := ops[rand.IntN(len(ops))]
				if i%2 == 0 {
					h.host.fail(op, errors.New("boom"))
				}
				s, err := h.m.Create(context.Background(), alice, client.SessionCreate{})
				if err == nil {
					_, _ = h.m.calls.Call(context.Background(), alice, s.ID, bashCall("echo x"), call.Options{})
					_, _ = h.m.calls.Call(context.Background(), alice, s.ID, readCall("x"), call.Options{})
					_, err = h.m.End(context.Background(), alice, s.ID, client.EndOptions{Force: i%3 == 0})
					if err != nil {
						t.Error(err)
					}
				}
				h.host.fail(op, nil)
			}
		})
	}
	wg.Wait()
	for _, op := range ops {
		h.host.fail(op, nil)
	}
	// "close" is a fault of letting go of a sandbox that is gone already; its
	// range is then kept back, and free again when nothing is found in it.
	if _, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{}); err != nil {
		t.Error(err)
	}
	held, _, err := h.store.Leases(t.Context())
	if err != nil || len(held) != 0 || len(h.host.boxes) != 0 || len(h.m.live()) != 0 || !h.empty("a") {
		t.Errorf("left: leases %v (%v), sandboxes %d, sessions %d", held, err, len(h.host.boxes), len(h.m.live()))
	}
	if n := h.m.tenant("a").Calls.Load(); n != 0 {
		t.Errorf("%d calls are counted as open", n)
	}
	for _, e := range mustReadDir(t, filepath.Join(h.dir, "output")) {
		// Those of lost sessions are kept; they are empty here.
		if n := len(mustReadDir(t, filepath.Join(h.dir, "output", e.Name()))); n != 0 {
			t.Errorf("%d files are left in %s", n, e.Name())
		}
	}
}

// TestCancelRacesSpawn aborts calls at every moment of their beginning.
func TestCancelRacesSpawn(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Limits: client.Limits{Calls: 2}})
	box := h.host.box(s.ID)
	for i := range 500 {
		zero := int64(0)
		c, err := h.m.calls.Call(t.Context(), alice, s.ID, with(bashCall("hold"), func(r *client.CallCreate) { r.WaitMillis = &zero }), call.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if i%3 > 0 {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		}
		if i%120 == 0 { // more often would lose the session
			box.sever(agent.ErrLost)
		}
		c, err = h.m.calls.AbortCall(t.Context(), alice, c.ID)
		if err != nil || !c.Finished() {
			t.Fatalf("call %d: %+v, %v", i, c, err)
		}
	}
	testrig.Eventually(t, "nothing holds", func() bool { return box.holding.Load() == 0 })
	live := h.m.live()[0]
	if n := live.calls.Open(); n != 0 {
		t.Errorf("%d calls are open", n)
	}
	if n := live.calls.Running(); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

// TestSlotIsFreeAtTheEnd: whoever hears of the end of a call can make the next one.
func TestSlotIsFreeAtTheEnd(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Limits: client.Limits{Calls: 1}})
	live := h.m.live()[0]
	ends := 0
	h.m.store.OnEvents(func(events []client.Event) {
		for _, e := range events {
			if e.Type != client.EventCallCompleted && e.Type != client.EventCallError {
				continue
			}
			ends++
			if n := live.calls.Running(); n != 0 || live.calls.Open() != 0 || live.tenant.Calls.Load() != 0 {
				t.Errorf("%s: %d slots are taken, %d and %d calls are open", e.Type, n, live.calls.Open(), live.tenant.Calls.Load())
			}
		}
		h.m.hub.Publish(events)
	})
	h.call(s.ID, bashCall("echo x"))
	h.call(s.ID, readCall("file"))
	if ends != 2 {
		t.Errorf("%d calls have ended", ends)
	}
}

// TestEndRacesCall ends sessions at every moment of a call.
func TestEndRacesCall(t *testing.T) {
	h := newHouse(t)
	h.open()
	for i := range 100 {
		force := i%2 == 0
		s := h.create(alice, client.SessionCreate{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				c, err := h.m.calls.Call(context.Background(), alice, s.ID, bashCall("echo x; hold"), call.Options{})
				if code := codeOfErr(err); err != nil && code != client.CodeSessionLost && code != client.CodeNotFound || err == nil && !c.Finished() {
					t.Errorf("call %+v, %v", c, err)
				}
				if err == nil && !force && c.Error != nil && c.Time.Started != nil {
					t.Errorf("a call that ran was not told of the end: %+v", c.Error)
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
		if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{Force: force}); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
	if n := h.m.tenant("a").Calls.Load(); n != 0 {
		t.Errorf("%d calls are counted as open", n)
	}
}

// empty reports whether a tenant has no place of a session.
func (h *house) empty(tenant string) bool {
	taken, _ := h.m.tenant(tenant).places.Count()
	return taken == 0
}
