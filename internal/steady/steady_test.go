package steady

import (
	"math/rand/v2"
	"testing"
	"time"
)

// clocks are a wall clock that can be set, and a kernel's.
type clocks struct{ Moment }

func newClocks() *clocks {
	return &clocks{Moment{Wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Boot: 1, Up: 5 * time.Hour}}
}

func (c *clocks) now() Moment          { return c.Moment }
func (c *clocks) pass(d time.Duration) { c.Wall, c.Up = c.Wall.Add(d), c.Up+d }
func (c *clocks) set(d time.Duration)  { c.Wall = c.Wall.Add(d) }
func (c *clocks) reboot(off time.Duration) {
	c.Wall, c.Boot, c.Up = c.Wall.Add(off), c.Boot+1, time.Minute
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name string
		do   func(c *clocks)
		want time.Duration // of 12 hours
	}{
		{"nothing", func(*clocks) {}, 12 * time.Hour},
		{"time passes", func(c *clocks) { c.pass(5 * time.Hour) }, 7 * time.Hour},
		{"set back", func(c *clocks) { c.pass(time.Hour); c.set(-day); c.pass(time.Hour) }, 10 * time.Hour},
		{"set forward", func(c *clocks) { c.pass(time.Hour); c.set(day) }, 11 * time.Hour},
		{"over though set back", func(c *clocks) { c.set(-day); c.pass(13 * time.Hour) }, -time.Hour},
		{"another boot", func(c *clocks) { c.reboot(2 * time.Hour) }, 10 * time.Hour},
		{"set back before another boot", func(c *clocks) { c.set(-day); c.reboot(0) }, 12*time.Hour - time.Minute},
		{"set back before a long boot", func(c *clocks) { c.set(-day); c.reboot(0); c.pass(11 * time.Hour) }, time.Hour - time.Minute},
	} {
		c := newClocks()
		until, d := c.Wall.Add(12*time.Hour), c.In(12*time.Hour)
		tt.do(c)
		if got := c.Left(until, d); got != tt.want {
			t.Errorf("%s: %v are left, want %v", tt.name, got, tt.want)
		}
	}
	c := newClocks()
	if got := c.Left(c.Wall.Add(time.Hour), nil); got != time.Hour {
		t.Errorf("a record of an older daemon: %v", got)
	}
	if now := Now(); now.Boot == 0 || now.Up <= 0 || now.In(time.Hour).Up <= now.Up.Milliseconds() {
		t.Errorf("now: %+v", now)
	}
}

// TestSlow: whatever is done to the wall clock, the slow one is never ahead of it, nor of the
// kernel's; it is held for an hour, and one that is set right makes it go right.
func TestSlow(t *testing.T) {
	t.Parallel()
	c := newClocks()
	s := NewSlow(Mark{}, c.now)
	began, held := s.Now()
	up, set := c.Up, -2*Hold
	if held || !began.Equal(c.Wall) {
		t.Fatalf("it begins with %v, %v; the wall clock is at %v", began, held, c.Wall)
	}
	for range 2000 {
		c.pass(time.Duration(rand.Int64N(int64(20 * time.Minute))))
		if rand.IntN(10) == 0 {
			off := jump + time.Duration(rand.Int64N(int64(100*time.Hour)))
			if rand.IntN(2) == 0 {
				off = -off
			}
			c.set(off)
			set = c.Up
		}
		if rand.IntN(5) == 0 {
			s = NewSlow(s.Mark(), c.now)
		}
		now, held := s.Now()
		want := began.Add(c.Up - up)
		if c.Wall.Before(want) {
			want = c.Wall
		}
		if !now.Equal(want) || held != (c.Up-set < Hold) {
			t.Fatalf("it says %v, %v; want %v; the clock was set %v ago", now, held, want, c.Up-set)
		}
	}
	c.reboot(time.Hour)
	if now, held := s.Now(); held || !now.Equal(c.Wall) {
		t.Errorf("after a boot: %v, %v; the wall clock is at %v", now, held, c.Wall)
	}
}

// TestSlowOfAWrongClock: a machine whose clock begins years ago, and is set right later,
// sweeps when the hour is over.
func TestSlowOfAWrongClock(t *testing.T) {
	t.Parallel()
	for _, from := range []Mark{{}, {Line: time.Date(2026, 5, 5, 0, 0, 0, 0, time.UTC).UnixNano(), Wall: 1 << 62, Boot: 7}} {
		c := newClocks()
		right := c.Wall.AddDate(3, 0, 0)
		if from == (Mark{}) {
			c.Wall = time.Unix(0, 0)
		}
		s := NewSlow(from, c.now)
		s.Now()
		c.pass(time.Minute)
		c.Wall = right
		if _, held := s.Now(); !held {
			t.Error("it is not held")
		}
		c.pass(Hold)
		if now, held := s.Now(); held || !now.Equal(c.Wall) {
			t.Errorf("%v, %v; the wall clock is at %v", now, held, c.Wall)
		}
	}
}
