package steady

import (
	"sync"
	"time"
)

const (
	// jump is from which difference of the two clocks on somebody has set one.
	jump = time.Minute
	// Hold is how long nothing is swept after that: who sets a clock wrong may set it right.
	Hold = time.Hour
)

// earliest is before every right clock.
var earliest = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// Slow is a clock for what goes when it is old enough. It is never ahead of the wall clock,
// nor of where that would be if nobody had set it since the boot: one that is set forward
// makes nothing old. It goes on from a Mark.
type Slow struct {
	now func() Moment

	mu   sync.Mutex // guards mark
	mark Mark
}

// Mark is the state of a Slow, which is kept over restarts. All are nanoseconds, but Boot.
type Mark struct {
	Line  int64 // where the wall clock would be if nobody had set it since the boot
	Wall  int64 // where it was
	Boot  int64
	Up    int64
	Until int64 // to which time of that boot nothing is swept; 0 for no hold
	Last  int64 // what Slow said at the end of the boot before
}

// NewSlow goes on from a mark; the zero Mark is for none. now is Now, but in tests.
func NewSlow(from Mark, now func() Moment) *Slow { return &Slow{now: now, mark: from} }

// Now is what the clock says, and whether nothing may be swept: somebody has set the wall
// clock less than Hold ago.
func (s *Slow) Now() (now time.Time, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, was := s.now(), s.mark
	next := Mark{Line: m.Wall.UnixNano(), Wall: m.Wall.UnixNano(), Boot: m.Boot, Up: int64(m.Up)}
	if gone, same := m.since(was.Boot, time.Duration(was.Up)); same {
		next.Line, next.Until, next.Last = was.Line+int64(gone), was.Until, was.Last
		off := time.Duration(next.Wall-was.Wall) - gone
		if off.Abs() >= jump {
			next.Until = next.Up + int64(Hold)
		}
		// A clock that began before what was there already was wrong, and is set right.
		if off >= jump && next.Line < max(next.Last, earliest.UnixNano()) {
			next.Line = next.Wall
		}
	} else {
		next.Last = min(was.Line, was.Wall)
	}
	s.mark = next
	return time.Unix(0, min(next.Line, next.Wall)), next.Up < next.Until
}

// Mark is what a later Slow goes on from.
func (s *Slow) Mark() Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark
}
