package session

import (
	"context"

	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/store"
)

// Door lets new sessions in.
type Door struct{ *roster }

// Drain implements server.Drainer: no new session begins until it is called with off, or a daemon
// that has run empty stops. One that is restarted before goes on to let none in. Requests that wait
// for a place are refused too. Sessions that are there go on, with their calls.
func (d *Door) Drain(p auth.Principal, off bool) error {
	if d.drained.Load() != off {
		return nil // it is so already
	}
	if d.cfg.Auditor != nil {
		what := record.Admin{Operation: "drain"}
		if off {
			what.Operation = "undrain"
		}
		if err := d.cfg.Auditor.Admin(p, what); err != nil {
			return err
		}
	}
	if err := d.keepDrained(!off); err != nil {
		return err
	}
	d.mu.Lock() // whoever entered before is known to who lists sessions next
	defer d.mu.Unlock()
	if d.drained.Swap(!off) == off {
		d.log.Warn("whether new sessions begin was changed", "drained", !off)
	}
	for _, t := range d.tenants {
		t.places.Move() // who waits looks again
	}
	return nil
}

// restore goes on with what an earlier daemon was told.
func (d *Door) restore(ctx context.Context) error {
	drained, err := d.store.Drained(ctx)
	if err != nil {
		return err
	}
	if drained {
		d.drained.Store(true)
		d.log.Warn("no new session begins: this daemon was drained before it was restarted", "until", "toolctl drain --off")
	}
	return nil
}

// closing ends the drain of a daemon that has run empty: the next one is to work.
func (d *Door) closing() {
	if len(d.live()) > 0 || !d.drained.Load() {
		return
	}
	if err := d.keepDrained(false); err != nil {
		d.log.Error("keep that the drain is over", "error", err)
	}
}

func (d *Door) keepDrained(drained bool) error {
	return d.store.Write(func(tx *store.Tx) error { return tx.SetDrained(drained) })
}

// mayBegin refuses new sessions while the daemon is drained.
func (dm *daemon) mayBegin() error {
	if dm.drained.Load() {
		return errDrained
	}
	return dm.Accepting()
}
