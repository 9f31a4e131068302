package call

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
)

// QueueLen is how many calls may wait for a slot of their session. Each may
// hold an input of several MiB.
const QueueLen = 64

// slots are those of one session: so many of its calls run at a time, some wait, and no
// more are let in. It keeps count of them, for the session and for its tenant.
type slots struct {
	session string
	tenant  *Tenant
	quota   interface{ MostCalls(tenant string) int }
	free    chan struct{} // one for each call that runs
	open    atomic.Int64  // calls that have begun and not ended
	total   atomic.Int64  // calls ever
	active  atomic.Int64  // when a call last began or ended, in time since boot
}

// seat is what one call has of the slots of its session. It belongs to the call's own
// goroutine.
type seat struct {
	counted bool // in the numbers of open calls
	running bool // it has a slot
}

// boot is what times of activity are measured from: the monotonic clock, which
// nobody can set back.
var boot = time.Now()

func (s *slots) touch() { s.active.Store(int64(time.Since(boot))) }

// idle is how long no call has been open.
func (s *slots) idle() time.Duration {
	if s.open.Load() > 0 {
		return 0
	}
	return time.Since(boot) - time.Duration(s.active.Load())
}

// enter counts a call, if session and tenant may have another one.
func (s *slots) enter(c *seat) error {
	most := int64(s.quota.MostCalls(s.tenant.Name))
	if n := s.tenant.Calls.Add(1); most > 0 && n > most {
		s.tenant.Calls.Add(-1)
		return fault.Overloaded.Errorf("tenant %s has %s not ended, which is all that it may have", s.tenant.Name, plain.Count(most, "call that has", "calls that have")).
			Next("wait for one to end, then try again")
	}
	if n := s.open.Add(1); n > int64(cap(s.free)+QueueLen) {
		s.open.Add(-1)
		s.tenant.Calls.Add(-1)
		return fault.Overloaded.Errorf("session %s has %s running and %d waiting", s.session, plain.Count(cap(s.free), "call", "calls"), QueueLen).
			Next("wait for one to end, then try again; limits.calls says how many run at once")
	}
	s.touch()
	c.counted = true
	return nil
}

// reenter counts a call that an earlier daemon let in.
func (s *slots) reenter(c *seat) {
	s.open.Add(1)
	s.tenant.Calls.Add(1)
	c.counted = true
}

// uncount undoes enter and take. It comes before the call is known to have ended:
// whoever waited for that may make the next one, which then finds a slot free and
// has nothing to store before it gets one.
func (s *slots) uncount(c *seat) {
	s.leave(c)
	if !c.counted {
		return
	}
	c.counted = false
	s.touch()
	s.open.Add(-1)
	s.tenant.Calls.Add(-1)
}

// take waits for a slot until ctx ends; before it waits, it calls queued. leave gives the
// slot back.
func (s *slots) take(ctx context.Context, c *seat, queued func() error) error {
	select {
	case s.free <- struct{}{}:
	default:
		if err := queued(); err != nil {
			return err
		}
		select {
		case s.free <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.running = true
	return nil
}

// retake waits for a slot for a call that runs, in the sandbox, since an earlier daemon.
func (s *slots) retake(c *seat) {
	s.free <- struct{}{}
	c.running = true
}

// still waits until no call runs, and lets none run until release. It gives up when ctx
// ends. Two at a time would wait for each other.
func (s *slots) still(ctx context.Context) (release func(), err error) {
	taken := 0
	release = func() {
		for range taken {
			<-s.free
		}
	}
	for range cap(s.free) {
		select {
		case s.free <- struct{}{}:
			taken++
		case <-ctx.Done():
			release()
			return nil, context.Cause(ctx)
		}
	}
	return release, nil
}

// leave lets another call run in the place of c, if c has one.
func (s *slots) leave(c *seat) {
	if c.running {
		c.running = false
		<-s.free
	}
}
