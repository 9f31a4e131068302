package session

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestReady: a daemon that cannot do its work says so, and why, until it can again.
func TestReady(t *testing.T) {
	h := newHouse(t)
	a := &unready{}
	h.audit = a
	m := h.open()
	set := h.set
	for name, c := range map[string]struct {
		fail func(broken bool)
		says string
	}{
		"disk": {func(broken bool) {
			s := set
			if broken {
				s.MinFree = 1 << 62
			}
			m.Reload(s)
		}, "are free on the disk of the state directory"},
		"audit log": {func(broken bool) {
			if a.err = nil; broken {
				a.err = errors.New("it was removed")
			}
		}, "the audit log refuses calls: it was removed"},
		"driver": {func(broken bool) {
			var err error
			if broken {
				err = errors.New("no Engine")
			}
			h.host.fail("list", err)
			m.drives.mu.Lock()
			m.drives.at = time.Time{} // it is asked again
			m.drives.mu.Unlock()
		}, "the driver fake does not answer: no Engine"},
	} {
		if r := m.Ready(t.Context()); r.Status != "ok" || len(r.Reasons) > 0 {
			t.Fatalf("before %s: %+v", name, r)
		}
		c.fail(true)
		if r := m.Ready(t.Context()); r.Status != "failing" || len(r.Reasons) != 1 || !strings.Contains(r.Reasons[0], c.says) {
			t.Errorf("%s: %+v", name, r)
		}
		c.fail(false)
	}
	if r := m.Ready(t.Context()); r.Status != "ok" {
		t.Errorf("afterwards: %+v", r)
	}
}

// unready is an audit log that may refuse.
type unready struct {
	auditor
	err error
}

func (a *unready) Ready() error { return a.err }
