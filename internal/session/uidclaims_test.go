package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
)

// rangeOf is the first uid of a session.
func rangeOf(h *house, s *client.Session) uint32 { return h.host.box(s.ID).spec.UIDBase }

// Daemons that were given the same uids never have one range at once: not while both
// run, not when one was killed and its sessions live on, and not when it comes back.
func TestTwoDaemonsOneRange(t *testing.T) {
	one, two := newHouse(t), newHouse(t)
	one.uids = filepath.Join(t.TempDir(), "uids")
	two.uids = one.uids
	alive := map[uint32]bool{}
	inUse := func(base uint32) (string, error) {
		if alive[base] {
			return "a process", nil
		}
		return "", nil
	}
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
	if _, err := one.m.End(t.Context(), alice, s.ID, EndOptions{}); err != nil {
		t.Fatal(err)
	}
	two.m.leases.next = 0
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
	two.m.leases.next = 0
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
	if taken, _, err := one.m.claims.look(lost); !taken || err != nil {
		t.Errorf("the range of the other is free: %v", err)
	}
	clear(alive)
}

// A daemon that cannot claim ranges makes no sessions.
func TestUIDClaimsFailClosed(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"a link":          func(p string) error { return os.Symlink(dir+"/elsewhere", p) },
		"open to others":  func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Chmod(p, 0o666)) },
		"a directory":     func(p string) error { return os.Mkdir(p, 0o700) },
		"a pipe":          func(p string) error { return unix.Mkfifo(p, 0o600) },
		"nowhere/missing": func(string) error { return nil },
	} {
		path := filepath.Join(dir, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		c, err := openUIDClaims(path)
		if _, ok := errors.AsType[*fs.PathError](err); !ok {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	h := newHouse(t)
	h.open()
	defer func(f *os.File) { h.m.claims.file = f }(h.m.claims.file)
	h.m.claims.file = os.NewFile(^uintptr(0), "gone")
	if s, err := h.m.Create(t.Context(), alice, client.SessionCreate{}); err == nil {
		t.Errorf("session %+v without a claim", s)
	}
}

// A range that was left has a mark until somebody has it again.
func TestUIDClaimsLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "uids")
	open := func() *uidClaims {
		t.Helper()
		c, err := openUIDClaims(path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	want := func(c *uidClaims, base uint32, taken, left bool) {
		t.Helper()
		if gotTaken, gotLeft, err := c.look(base); gotTaken != taken || gotLeft != left || err != nil {
			t.Errorf("range %d: taken %v, left %v, %v; want %v, %v", base, gotTaken, gotLeft, err, taken, left)
		}
	}
	a, b := open(), open()
	defer b.file.Close()
	const last = 65535 * sandbox.RangeSize // of all that there can be
	for _, base := range []uint32{0, 7 * sandbox.RangeSize, last} {
		want(b, base, false, false)
		if ok, err := a.take(base); !ok || err != nil {
			t.Fatal(ok, err)
		}
		want(b, base, true, false)
		if ok, err := b.take(base); ok || err != nil {
			t.Errorf("range %d was claimed twice: %v", base, err)
		}
	}
	want(b, 6*sandbox.RangeSize, false, false)
	a.drop(0)
	want(b, 0, false, false)
	a.file.Close() // as when its daemon is killed
	want(b, last, false, true)
	if ok, err := b.take(last); !ok || err != nil {
		t.Error(ok, err)
	}
}
