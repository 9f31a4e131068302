package session

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/session/lease"
	"github.com/toold/toold/internal/store"
)

// rangeOf is the first uid of a session.
func rangeOf(h *house, s *client.Session) uint32 { return h.host.box(s.ID).spec.UIDBase }

// twoHouses are those of two daemons that were given the same uids, and which ranges processes live in.
func twoHouses(t *testing.T) (one, two *house, alive map[uint32]bool, inUse func(base uint32) (string, error)) {
	t.Helper()
	one, two, alive = newHouse(t), newHouse(t), map[uint32]bool{}
	one.uids = filepath.Join(t.TempDir(), "uids")
	two.uids = one.uids
	return one, two, alive, func(base uint32) (string, error) {
		if alive[base] {
			return "a process", nil
		}
		return "", nil
	}
}

// Daemons that were given the same uids never have one range at once: not while both
// run, not when one was killed and its sessions live on, and not when it comes back.
func TestTwoDaemonsOneRange(t *testing.T) {
	one, two, alive, inUse := twoHouses(t)
	for _, h := range []*house{one, two} {
		if err := h.build().start(t, inUse); err != nil {
			t.Fatal(err)
		}
	}
	var given []uint32
	for range 3 {
		for _, h := range []*house{one, two} {
			base := rangeOf(h, h.create(alice, client.SessionCreate{}))
			if slices.Contains(given, base) {
				t.Errorf("range %d was given twice", base)
			}
			given = append(given, base)
		}
	}
	// What one gives back the other may have.
	s := one.create(alice, client.SessionCreate{})
	back := rangeOf(one, s)
	if _, err := one.m.End(t.Context(), alice, s.ID, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	if base := rangeOf(two, two.create(alice, client.SessionCreate{})); base != back {
		t.Errorf("got range %d, want %d, which the other gave back", base, back)
	}

	// One is killed. Two of its sessions live on; of the third nothing does.
	living := one.create(alice, client.SessionCreate{})
	dead := one.create(alice, client.SessionCreate{})
	alive[rangeOf(one, living)] = true
	for _, base := range []uint32{given[0], given[2], given[4]} {
		alive[base] = true
	}
	lost := rangeOf(one, dead)
	one.kill()
	if base := rangeOf(two, two.create(alice, client.SessionCreate{})); base != lost {
		t.Errorf("got range %d, want %d, the only one of which nothing is alive", base, lost)
	}

	// The next daemon has its sessions again, but for that one, whose range it leaves
	// alone: it is not put under quarantine for what another's processes do there.
	alive[lost] = true
	if err := one.build().start(t, inUse); err != nil {
		t.Fatal(err)
	}
	if got, err := one.m.Get(t.Context(), alice, living.ID); err != nil || got.State != client.SessionReady {
		t.Errorf("a session that lives on: %+v, %v", got, err)
	}
	if got, err := one.m.Get(t.Context(), alice, dead.ID); err != nil || got.State != client.SessionLost || !strings.Contains(got.Reason, "another daemon") {
		t.Errorf("a session whose range another daemon has: %+v, %v", got, err)
	}
	held, _, err := one.store.Leases(t.Context())
	if err != nil || slices.ContainsFunc(held, func(l store.Lease) bool { return l.Base == lost || l.Quarantined }) {
		t.Errorf("leases %+v, %v", held, err)
	}
	third, err := lease.Open(one.uids, lost, one.store)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if got, err := third.Take(); err != nil || got == lost {
		t.Errorf("the range of the other is free: %d, %v", got, err)
	}
	clear(alive)
}

// A daemon that cannot claim ranges makes no sessions.
func TestUIDClaimsFailClosed(t *testing.T) {
	h := newHouse(t)
	h.open()
	if err := h.m.leases.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := h.m.Create(t.Context(), alice, client.SessionCreate{}); err == nil {
		t.Errorf("session %+v without a claim", s)
	}
}
