// Package lease gives out ranges of host uids, one to a session. A range is leased by the
// store, which knows who has it after a restart, and claimed in a file that all daemons of
// the host share. It is used again as late as possible, and only when no process has an id
// in it.
package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/toold/toold/internal/hostlock"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
	"github.com/toold/toold/internal/store"
)

// maxRanges is how many uid ranges there are above the base: together a bit over
// 10^9 ids, which stays below 2^31 for every sensible base.
const maxRanges = 16384

// ErrNone says that no range is left to take.
var ErrNone = fmt.Errorf("all %d ranges of host uids are taken or quarantined", maxRanges)

// Ranges gives out ranges of sandbox.RangeSize uids, each named by its first.
type Ranges struct {
	// InUse says what still uses a range, "" for nothing. It is process.In; tests
	// replace it while nobody else calls.
	InUse func(base uint32) (string, error)

	base   uint32
	store  *store.Store
	claims claims

	mu    sync.Mutex // guards the fields below
	next  int        // index of the next candidate
	used  map[uint32]bool
	taken map[uint32]bool // ours by the store, and meanwhile another daemon's
	old   map[uint32]bool // given back since this daemon started, or before
	full  bool            // all ranges were given at least once
}

// Open opens the file of claims, which only toold's user may be able to open. Ranges
// begin at base. Restore comes before anything else.
func Open(path string, base uint32, st *store.Store) (*Ranges, error) {
	f, err := hostlock.Open(path)
	if err != nil {
		return nil, err
	}
	return &Ranges{
		InUse: process.In, base: base, store: st, claims: claims{f},
		used: make(map[uint32]bool), taken: make(map[uint32]bool), old: make(map[uint32]bool),
	}, nil
}

// Close closes the file. What is leased stays marked in it, for the next daemon to claim.
func (l *Ranges) Close() error { return l.claims.Close() }

// Restore goes on with what an earlier daemon held, which it returns, and claims it
// anew. A range of that one's is another daemon's by now only if nothing of its session
// was alive; or if the store is a copy, whose original lives on, or is stopped and its sessions
// do: mine says whether this daemon has the sandbox of a session, and a range of another one is
// left alone while processes have ids in it.
func (l *Ranges) Restore(ctx context.Context, mine func(session string) bool) ([]store.Lease, error) {
	held, last, err := l.store.Leases(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range held {
		l.used[h.Base] = true
		if !mine(h.Session) {
			if who, err := l.InUse(h.Base); who != "" || err != nil {
				l.taken[h.Base] = true
				continue
			}
		}
		ok, err := l.claims.take(h.Base)
		if err != nil {
			return nil, fmt.Errorf("claim ranges of host uids: %w", err)
		}
		l.taken[h.Base] = !ok
	}
	if last >= l.base && (last-l.base)/sandbox.RangeSize < maxRanges {
		l.next = int((last-l.base)/sandbox.RangeSize) + 1
	}
	return held, nil
}

// Lost says whether another daemon has a range that is ours by the store.
func (l *Ranges) Lost(base uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken[base]
}

// Take finds a range. The caller leases it in the store before anything uses it, or drops
// it. ErrNone where all are taken.
func (l *Ranges) Take() (uint32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range maxRanges {
		if l.next >= maxRanges {
			l.next, l.full = 0, true
		}
		base := l.base + uint32(l.next)*sandbox.RangeSize
		l.next++
		if l.used[base] {
			continue
		}
		free, err := l.claim(base)
		if err != nil {
			return 0, fmt.Errorf("claim a range of host uids: %w", err)
		}
		if free {
			l.used[base] = true
			return base, nil
		}
	}
	return 0, ErrNone
}

// claim takes a range unless another daemon has it, or something still uses it.
func (l *Ranges) claim(base uint32) (bool, error) {
	taken, left, err := l.claims.look(base)
	if taken || err != nil {
		return false, err
	}
	if l.full || l.old[base] || left {
		if who, err := l.InUse(base); who != "" || err != nil {
			return false, nil
		}
	}
	return l.claims.take(base)
}

// dyingTime is how long processes may take to be dead that were killed and have left
// their cgroups, which the kernel makes them do first.
const dyingTime = 5 * time.Second

// outlived is inUse for a range whose processes were killed: those that are about to
// end are waited for.
func (l *Ranges) outlived(base uint32) (who string, err error) {
	for end := time.Now().Add(dyingTime); ; time.Sleep(10 * time.Millisecond) {
		if who, err = l.InUse(base); who == "" || err != nil || time.Now().After(end) {
			return who, err
		}
	}
}

// Release gives a range back when nothing of its session can be alive: left is why
// something may be, nil if all was destroyed. Otherwise it is put under quarantine, and
// why is not "".
func (l *Ranges) Release(base uint32, left error) (why string, err error) {
	if left != nil {
		why = left.Error()
	} else if l.Lost(base) {
		// What is alive there is another daemon's.
	} else if who, err := l.outlived(base); err != nil {
		why = err.Error()
	} else if who != "" {
		why = who + " is alive"
	}
	if why == "" {
		return "", l.Free(base)
	}
	return why, l.store.Write(func(tx *store.Tx) error { return tx.QuarantineLease(base, why) })
}

// Free ends the lease of a range, which nothing may use any more.
func (l *Ranges) Free(base uint32) error {
	err := l.store.Write(func(tx *store.Tx) error { return tx.DropLease(base) })
	if err == nil {
		l.Drop(base)
	}
	return err
}

// Drop makes a range that is not leased in the store free, for later.
func (l *Ranges) Drop(base uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.taken[base] {
		l.claims.drop(base)
	}
	delete(l.used, base)
	delete(l.taken, base)
	l.old[base] = true
}
