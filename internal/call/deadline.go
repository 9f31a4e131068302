package call

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/deadline"
	"github.com/toold/toold/internal/tool"
)

// allowance is the time that a call may run.
type allowance struct {
	timeout time.Duration // 0 = no bound
	wanted  int64         // the timeout of its input, in milliseconds; 0 = none, or not bash
	clipped string        // says that the session does not give it all of wanted
}

// allow gives the time that a call may run: its own timeout_ms, else bash's
// default, else the session's limit, above which it may not be. A timeout of bash's
// input, wanted, has no effect above that, which the answer says.
func (s *site) allow(r *client.CallCreate, inv *tool.Invocation) allowance {
	wall := time.Duration(s.limits.Wall)
	if inv.Tool.OwnDeadline {
		wall = 0
	}
	own := time.Duration(r.TimeoutMillis) * time.Millisecond
	timed, ok := inv.Input.(tool.Timed)
	if !ok {
		return allowance{timeout: cmp.Or(own, wall)}
	}
	a := allowance{wanted: timed.Timeout()}
	if most := time.Duration(s.limits.Wall).Milliseconds(); most > 0 && a.wanted > most {
		a.clipped = fmt.Sprintf("(timeout %d was cut to %d ms, the most that this session allows)", a.wanted, most)
	}
	switch def := s.daemon.Settings().BashTimeout; {
	case own > 0:
		a.timeout = own
	case a.wanted > 0 || wall > 0 && (def <= 0 || def > wall):
		a.timeout = wall // the tool keeps its own
	default:
		a.timeout = def
	}
	return a
}

// timeouts are the time that a call of bash was given, and the most that its input could
// have asked for; 0 = no bound.
func (c *Call) timeouts() (given, most time.Duration) {
	given, most = c.timeout, time.Duration(c.at.limits.Wall)
	if c.req.TimeoutMillis > 0 {
		most = time.Duration(c.req.TimeoutMillis) * time.Millisecond
	}
	if c.wanted > 0 {
		if own := time.Duration(min(c.wanted, 1<<40)) * time.Millisecond; given == 0 || own < given {
			given = own
		}
	}
	return given, most
}

// pause counts the waits of a running call for answers that are not its own time.
type pause struct {
	mu    sync.Mutex // guards the field below, and is held while the runner is told
	waits int
}

// hold lets the time of the call stand still until release, though it ends with limits.wall.
// Several waits at once are one.
func (c *Call) hold() (release func()) {
	most := cmp.Or(time.Duration(c.at.limits.Wall), deadline.Forever)
	c.pause.count(1, func() { c.stand(most) })
	return func() { c.pause.count(-1, func() { c.stand(0) }) }
}

// count calls changed where the first wait begins, or the last one ends.
func (p *pause) count(n int, changed func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits += n; p.waits == 0 || n > 0 && p.waits == 1 {
		changed()
	}
}

// stand tells who keeps the call's deadlines.
func (c *Call) stand(most time.Duration) {
	c.watch.hold(most)
	if h, ok := c.runner.(Holder); ok {
		h.Hold(c.id, most)
	}
}
