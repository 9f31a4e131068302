// Package steady keeps deadlines and ages true when somebody sets the clock of the host.
// Within one boot the kernel's CLOCK_BOOTTIME says how much time has passed, which nobody
// can set, and which goes on while the machine sleeps. From one boot to the next there is
// the wall clock alone.
package steady

import (
	"hash/fnv"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Moment is a moment by both clocks.
type Moment struct {
	Wall time.Time
	Boot int64         // which boot it was of
	Up   time.Duration // since that, with the time that the machine slept
}

// boot is a hash of the id that the kernel gives each boot; 0 where it cannot be read,
// which no two moments have in common.
var boot = sync.OnceValue(func() int64 {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(id)
	return int64(h.Sum64() >> 1)
})

// Now is this moment.
func Now() Moment {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return Moment{Wall: time.Now()}
	}
	return Moment{Wall: time.Now().Round(0), Boot: boot(), Up: time.Duration(up.Nano())}
}

// since is how much time has passed, where both moments are of one boot.
func (m Moment) since(boot int64, up time.Duration) (time.Duration, bool) {
	return m.Up - up, boot != 0 && m.Boot == boot
}

// Deadline stands beside a stored time at which something ends. Records of older daemons
// have none.
type Deadline struct {
	Boot int64 `json:"boot"`
	Up   int64 `json:"up_ms"`   // when it is over, by the clock of that boot
	Span int64 `json:"span_ms"` // how much time there was when it was made
}

// In is the deadline that is over after a time.
func (m Moment) In(d time.Duration) *Deadline {
	return &Deadline{m.Boot, (m.Up + d).Milliseconds(), d.Milliseconds()}
}

// Left is how much time there is until a stored time that had this deadline beside it, nil
// for none. In another boot it is never more than there was, less what that boot has lasted.
func (m Moment) Left(until time.Time, d *Deadline) time.Duration {
	left := until.Sub(m.Wall)
	if d == nil {
		return left
	}
	if gone, same := m.since(d.Boot, time.Duration(d.Up)*time.Millisecond); same {
		return -gone
	}
	return min(left, time.Duration(d.Span)*time.Millisecond-m.Up)
}
