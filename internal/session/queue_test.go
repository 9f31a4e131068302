package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// queueing waits until so many requests of a tenant wait for a place.
func (h *house) queueing(tenant string, want int) {
	h.t.Helper()
	testrig.Eventually(h.t, fmt.Sprintf("%d requests wait", want), func() bool {
		_, waiting := h.m.tenant(tenant).places.Count()
		return waiting == want
	})
}

// TestQueue: requests get places in the order in which they came, are told where
// they stand, and are not overtaken; one whose client goes is out.
func TestQueue(t *testing.T) {
	h := newHouse(t)
	h.set.Tenants = map[string]Tenant{"a": {MaxSessions: 1}}
	h.open()
	first := h.create(alice, client.SessionCreate{})
	r := client.SessionCreate{Queue: client.Duration(time.Hour)}

	const n = 4
	var mu sync.Mutex // guards told and order
	told, order := make([][]int, n), []int{}
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range n {
		ctx := ctx
		if i != 1 {
			ctx = t.Context()
		}
		wg.Go(func() {
			s, err := h.m.CreateQueued(ctx, alice, r, func(position int) {
				mu.Lock()
				defer mu.Unlock()
				told[i] = append(told[i], position)
			})
			if i == 1 {
				if codeOfErr(err) != client.CodeAborted {
					t.Errorf("who has gone got %+v, %v", s, err)
				}
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{}); codeOfErr(err) != client.CodeQuotaExceeded {
				t.Errorf("one that does not wait: %v", err)
			}
			if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{}); err != nil {
				t.Error(err)
			}
		})
		h.queueing("a", i+1)
	}
	leave()
	h.queueing("a", n-1)
	_, err := h.m.Create(t.Context(), alice, client.SessionCreate{})
	if codeOfErr(err) != client.CodeQuotaExceeded || !strings.Contains(err.Error(), "3 requests wait") || !strings.Contains(err.Error(), "--queue") {
		t.Errorf("one that does not wait: %v", err)
	}
	// What is wrong is said before it waits, and other tenants have queues of their own.
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{Queue: r.Queue, Profile: "none"}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("an invalid one: %v", err)
	}
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{Queue: -1}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("a negative time: %v", err)
	}
	h.create(bob, client.SessionCreate{})
	if _, err := h.m.End(t.Context(), alice, first.ID, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if want := []int{0, 2, 3}; !slices.Equal(order, want) {
		t.Errorf("places went to %v, want %v", order, want)
	}
	if got := fmt.Sprint(told[0], told[1]); got != "[1] [2]" {
		t.Errorf("the first two were told %s", got)
	}
	for i, want := range map[int]int{2: 3, 3: 4} {
		if got := told[i]; got[0] != want || !slices.IsSortedFunc(got, func(a, b int) int { return b - a }) || got[len(got)-1] < 1 {
			t.Errorf("request %d was told %v", i, got)
		}
	}
}

// TestQueueEnds: a wait ends with its time, with more places, and with the daemon.
func TestQueueEnds(t *testing.T) {
	h := newHouse(t)
	h.set.Tenants = map[string]Tenant{"a": {MaxSessions: 1}}
	h.open()
	h.create(alice, client.SessionCreate{})
	_, err := h.m.Create(t.Context(), alice, client.SessionCreate{Queue: client.Duration(10 * time.Millisecond)})
	if codeOfErr(err) != client.CodeQuotaExceeded {
		t.Errorf("after its time: %v", err)
	}
	h.queueing("a", 0)
	r := client.SessionCreate{Queue: client.Duration(time.Hour)}
	ended := make(chan error, 1)
	wait := func() { _, err := h.m.Create(t.Context(), alice, r); ended <- err }
	go wait()
	h.queueing("a", 1)
	h.set.Tenants = map[string]Tenant{"a": {MaxSessions: 2}}
	h.m.Reload(h.set)
	if err := <-ended; err != nil {
		t.Errorf("with more places: %v", err)
	}
	go wait()
	h.queueing("a", 1)
	h.stop()
	if err := <-ended; codeOfErr(err) != client.CodeOverloaded {
		t.Errorf("when the daemon stops: %v", err)
	}
	h.open()
}
