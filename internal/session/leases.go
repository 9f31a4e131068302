package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
)

// maxRanges is how many uid ranges there are above Config.UIDBase: together a
// bit over 10^9 ids, which stays below 2^31 for every sensible base.
const maxRanges = 16384

// leases gives out ranges of host uids. A range that was given back is used
// again as late as possible, and only when no process has an id in it.
type leases struct {
	base uint32
	// inUse says what still uses a range, "" for nothing.
	inUse  func(base uint32) (string, error)
	claims *uidClaims

	mu    sync.Mutex // guards the fields below
	next  int        // index of the next candidate
	used  map[uint32]bool
	taken map[uint32]bool // ours by the store, and meanwhile another daemon's
	old   map[uint32]bool // given back since this daemon started, or before
	full  bool            // all ranges were given at least once
}

// newLeases goes on with what an earlier daemon held, and claims it anew. A range of
// that one's is another daemon's by now only if nothing of its session was alive.
func newLeases(base uint32, inUse func(uint32) (string, error), claims *uidClaims, held []store.Lease, last uint32) (*leases, error) {
	l := &leases{
		base: base, inUse: inUse, claims: claims,
		used: make(map[uint32]bool), taken: make(map[uint32]bool), old: make(map[uint32]bool),
	}
	for _, h := range held {
		l.used[h.Base] = true
		ok, err := claims.take(h.Base)
		if err != nil {
			return nil, err
		}
		l.taken[h.Base] = !ok
	}
	if last >= base && (last-base)/sandbox.RangeSize < maxRanges {
		l.next = int((last-base)/sandbox.RangeSize) + 1
	}
	return l, nil
}

// lost says whether another daemon has a range that is ours by the store.
func (l *leases) lost(base uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken[base]
}

// take finds a range. The caller stores it before anything uses it.
func (l *leases) take() (uint32, error) {
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
	return 0, &client.Error{
		Code:    client.CodeOverloaded,
		Message: fmt.Sprintf("all %d ranges of host uids are taken or quarantined", maxRanges),
		Hint:    "end sessions; an administrator sees leftovers with: toolctl gc --dry-run",
	}
}

// claim takes a range unless another daemon has it, or something still uses it.
func (l *leases) claim(base uint32) (bool, error) {
	taken, left, err := l.claims.look(base)
	if taken || err != nil {
		return false, err
	}
	if l.full || l.old[base] || left {
		if who, err := l.inUse(base); who != "" || err != nil {
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
func (l *leases) outlived(base uint32) (who string, err error) {
	for end := time.Now().Add(dyingTime); ; time.Sleep(10 * time.Millisecond) {
		if who, err = l.inUse(base); who == "" || err != nil || time.Now().After(end) {
			return who, err
		}
	}
}

// drop makes a range free, for later.
func (l *leases) drop(base uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.taken[base] {
		l.claims.drop(base)
	}
	delete(l.used, base)
	delete(l.taken, base)
	l.old[base] = true
}

// processesIn looks for a process whose real, effective, saved or file system
// uid is in a range. It reads status files, not the owner of /proc/PID, which is
// root for a process that is not dumpable.
func processesIn(base uint32) (string, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return "", err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return "", err
	}
	for _, pid := range names {
		if pid[0] < '0' || pid[0] > '9' {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
		if err != nil {
			continue // it has ended
		}
		if ended(string(b)) {
			continue
		}
		for _, uid := range statusUIDs(string(b)) {
			if uid >= base && uid-base < sandbox.RangeSize {
				return "process " + pid, nil
			}
		}
	}
	return "", nil
}

// ended reports whether a process is dead and merely not reaped yet. The first
// process of a sandbox waits for the host's init, and can do nothing meanwhile. One
// whose first thread has ended looks the same while its others run on.
func ended(status string) bool {
	dead, threads := false, "1"
	for line := range strings.Lines(status) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "\t"); name {
		case "State:":
			dead = strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X")
		case "Threads:":
			threads = value
		}
	}
	return dead && (threads == "1" || threads == "0")
}

func statusUIDs(status string) []uint32 {
	var uids []uint32
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		for f := range strings.FieldsSeq(rest) {
			if v, err := strconv.ParseUint(f, 10, 32); err == nil {
				uids = append(uids, uint32(v))
			}
		}
	}
	return uids
}
