// Package deadline has deadlines that stand still while a piece of work waits for somebody
// else: the time that a person takes to answer is not the work's.
package deadline

import (
	"context"
	"sync"
	"time"
)

// Forever is a bound for Hold where there is none.
const Forever = 365 * 24 * time.Hour

// Clock is the time of one piece of work. Its methods may be called from any goroutine.
type Clock struct {
	began time.Time

	mu     sync.Mutex // guards the fields below
	since  time.Time  // when it was held; zero while it goes
	most   time.Duration
	alarms map[*alarm]struct{} // that are to come
}

// alarm is a function that is to be called.
type alarm struct {
	at    time.Time // while the clock goes
	timer *time.Timer
}

// New makes a clock, which goes.
func New() *Clock { return &Clock{began: time.Now(), alarms: make(map[*alarm]struct{})} }

// Hold lets all deadlines stand still until Release, but none for longer than most after New.
// One that is later by itself stays where it is. A second Hold has no effect.
func (c *Clock) Hold(most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() {
		return
	}
	c.since, c.most = time.Now(), min(most, Forever)
	c.set()
}

// Release lets them go on.
func (c *Clock) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return
	}
	waited, end := time.Since(c.since), c.began.Add(c.most)
	c.since = time.Time{}
	for a := range c.alarms {
		moved := a.at.Add(waited)
		if moved.After(end) {
			moved = end
		}
		if moved.After(a.at) {
			a.at = moved
		}
	}
	c.set()
}

// set sets all timers. The caller holds mu.
func (c *Clock) set() {
	for a := range c.alarms {
		a.timer.Reset(time.Until(c.due(a)))
	}
}

// due is when it is time, as far as is known. The caller holds mu.
func (c *Clock) due(a *alarm) time.Time {
	if end := c.began.Add(c.most); !c.since.IsZero() && end.After(a.at) {
		return end
	}
	return a.at
}

// AfterFunc calls f in a goroutine when so much time has passed, unless stop is called before.
func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func()) {
	_, stop = c.after(d, f)
	return stop
}

func (c *Clock) after(d time.Duration, f func()) (a *alarm, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a = &alarm{at: time.Now().Add(d)}
	a.timer = time.AfterFunc(time.Until(c.due(a)), func() {
		if c.rings(a) {
			f()
		}
	})
	c.alarms[a] = struct{}{}
	return a, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		a.timer.Stop()
		delete(c.alarms, a)
	}
}

// rings reports whether it is time. A timer may have run off when its deadline was moved.
func (c *Clock) rings(a *alarm) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.alarms[a]; !ok || time.Now().Before(c.due(a)) {
		return false
	}
	delete(c.alarms, a)
	return true
}

// timed is a context with a deadline of a clock.
type timed struct {
	context.Context
	clock *Clock
	alarm *alarm
}

type clockKey struct{}

// Value implements context.Context.
func (t timed) Value(key any) any {
	if key == (clockKey{}) {
		return t.clock
	}
	return t.Context.Value(key)
}

// Deadline implements context.Context: the one of the moment.
func (t timed) Deadline() (time.Time, bool) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	at := t.clock.due(t.alarm)
	if of, ok := t.Context.Deadline(); ok && of.Before(at) {
		at = of
	}
	return at, true
}

// WithTimeout is context.WithTimeout by the clock. The cause of its end is
// context.DeadlineExceeded; its error is context.Canceled, as that of its children is.
func (c *Clock) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	a, stop := c.after(d, func() { cancel(context.DeadlineExceeded) })
	return timed{ctx, c, a}, func() { stop(); cancel(nil) }
}

// AfterFunc is time.AfterFunc by the clock of a context that WithTimeout made, or one below it.
func AfterFunc(ctx context.Context, d time.Duration, f func()) (stop func()) {
	if c, ok := ctx.Value(clockKey{}).(*Clock); ok {
		return c.AfterFunc(d, f)
	}
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}
