package session

import (
	"github.com/toold/toold/internal/fault"
)

// Door lets new sessions in.
type Door struct{ *roster }

// Drain implements server.Drainer: no new session begins until it is called with off, or the daemon
// ends. Requests that wait for a place are refused too. Sessions that are there go on, with their
// calls.
func (d *Door) Drain(off bool) {
	if d.drained.Swap(!off) == off {
		d.log.Warn("whether new sessions begin was changed", "drained", !off)
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, t := range d.tenants {
		t.places.Move() // who waits looks again
	}
}

// mayBegin refuses new sessions while the daemon is drained.
func (dm *daemon) mayBegin() error {
	if dm.drained.Load() {
		return fault.Overloaded.Errorf("no new session now: an administrator drains this daemon").
			Next("sessions that are there go on; try again later, or have toolctl drain --off end it")
	}
	return dm.Accepting()
}
