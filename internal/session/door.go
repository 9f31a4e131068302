package session

// Door lets new sessions in.
type Door struct{ *roster }

// Drain implements server.Drainer: no new session begins until it is called with off, or the daemon
// ends. Requests that wait for a place are refused too. Sessions that are there go on, with their
// calls.
func (d *Door) Drain(off bool) {
	d.mu.Lock() // whoever entered before is known to who lists sessions next
	defer d.mu.Unlock()
	if d.drained.Swap(!off) == off {
		d.log.Warn("whether new sessions begin was changed", "drained", !off)
	}
	for _, t := range d.tenants {
		t.places.Move() // who waits looks again
	}
}

// mayBegin refuses new sessions while the daemon is drained.
func (dm *daemon) mayBegin() error {
	if dm.drained.Load() {
		return errDrained
	}
	return dm.Accepting()
}
