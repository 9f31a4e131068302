package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// TestReadyOnceSessionsCanBeMade: while the daemon starts a session is refused, and it is not ready; who has waited
// until it is ready is not refused.
func TestReadyOnceSessionsCanBeMade(t *testing.T) {
	h := newHouse(t)
	h.open()
	for range 3 {
		h.create(alice, client.SessionCreate{}) // which the next daemon takes over
	}
	h.stop()
	m := h.build()
	if r := m.Ready(t.Context()); r.Status != "starting" {
		t.Errorf("before its start it is %s", r.Status)
	}
	if _, err := m.Create(t.Context(), alice, client.SessionCreate{}); codeOfErr(err) != client.CodeOverloaded || !strings.Contains(err.Error(), "still starting") {
		t.Errorf("before its start: %v", err)
	}
	started := make(chan error, 1)
	go func() { started <- m.Start(context.WithoutCancel(t.Context())) }()
	testrig.Eventually(t, "it is ready", func() bool { return m.Ready(t.Context()).Status == "ok" })
	_, err := m.Create(t.Context(), alice, client.SessionCreate{})
	if err := errors.Join(err, <-started); err != nil {
		t.Errorf("after it was ready: %v", err)
	}
}

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
		if r := reasonsOf(m); len(r) != 1 || !strings.Contains(r[0], c.says) {
			t.Errorf("%s: doctor says %q", name, r)
		}
		c.fail(false)
	}
	if r := reasonsOf(m); len(r) > 0 {
		t.Errorf("afterwards doctor says %q", r)
	}
	if r := m.Ready(t.Context()); r.Status != "ok" || len(r.Warnings) > 0 {
		t.Errorf("afterwards: %+v", r)
	}
	// What is no reason to refuse anything is a warning of both.
	a.noticed = "records 3 to 5 are not here"
	if r := m.Ready(t.Context()); r.Status != "ok" || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], a.noticed) {
		t.Errorf("ready says %+v", r)
	}
	if !slices.ContainsFunc(m.Checks(t.Context()), func(c client.Check) bool {
		return c.Status == client.CheckWarn && strings.Contains(c.Detail, a.noticed) && c.Hint != ""
	}) {
		t.Error("doctor does not warn")
	}
}

// TestDoctorWhileNotReady: what ready says about a start or a stop, doctor says too.
func TestDoctorWhileNotReady(t *testing.T) {
	m := newHouse(t).open()
	for state, status := range map[managerState]string{managerStarting: "starting", managerDraining: "draining"} {
		m.state.Store(int32(state))
		r := m.Ready(t.Context())
		if d := reasonsOf(m); r.Status != status || !slices.Equal(d, r.Reasons) {
			t.Errorf("ready says %+v, doctor %q", r, d)
		}
	}
	m.state.Store(int32(managerStarting))
	m.Show(errors.New("no space left on device"))
	r := m.Ready(t.Context())
	if d := reasonsOf(m); r.Status != "failing" || !slices.Equal(d, r.Reasons) || !strings.Contains(d[0], "only what is on record is shown: no space left on device") {
		t.Errorf("where it only shows, ready says %+v, doctor %q", r, d)
	}
	if i := slices.IndexFunc(m.Checks(t.Context()), func(c client.Check) bool { return c.Hint == goesOn }); i < 0 {
		t.Errorf("where it only shows, doctor does not say what to do: %+v", m.Checks(t.Context()))
	}
	m.shows.Store(nil)
	m.state.Store(int32(managerReady))
}

// reasonsOf are the checks of doctor that fail.
func reasonsOf(m *Manager) (reasons []string) {
	for _, c := range m.Checks(context.Background()) {
		if c.Status == client.CheckFail && c.Hint != "" {
			reasons = append(reasons, c.Detail)
		}
	}
	return reasons
}

// unready is an audit log that may refuse.
type unready struct {
	auditor
	err     error
	noticed string
}

func (a *unready) Ready() error { return a.err }

func (a *unready) Noticed() string { return a.noticed }
