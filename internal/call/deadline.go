package call

import (
	"cmp"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/tool"
)

// allowance is the time that a call may run.
type allowance struct {
	timeout time.Duration // 0 = no bound
	wanted  int64         // the timeout of its input, in milliseconds; 0 = none, or not bash
}

// checkTimeout refuses a timeout_ms that the session cannot give.
func (s *site) checkTimeout(r *client.CallCreate) error {
	wall := time.Duration(s.limits.Wall).Milliseconds()
	if r.TimeoutMillis < 0 || r.TimeoutMillis > maxTTL.Milliseconds() {
		return fault.Invalid.Errorf("timeout_ms is %d; give 1 or more milliseconds, or leave it out", r.TimeoutMillis)
	}
	if wall > 0 && r.TimeoutMillis > wall {
		return fault.Invalid.Errorf("timeout_ms is %d; limits.wall of this session is %d ms", r.TimeoutMillis, wall)
	}
	return nil
}

// allow gives the time that a call may run: its own timeout_ms, else bash's
// default, else the session's limit, above which it may not be. A timeout of bash's
// input, wanted, has no effect above that, which the answer says (see shortened).
func (s *site) allow(r *client.CallCreate, inv *tool.Invocation) (allowance, error) {
	if err := s.checkTimeout(r); err != nil {
		return allowance{}, err
	}
	wall := time.Duration(s.limits.Wall)
	own := time.Duration(r.TimeoutMillis) * time.Millisecond
	timed, ok := inv.Input.(tool.Timed)
	if !ok {
		return allowance{timeout: cmp.Or(own, wall)}, nil
	}
	a := allowance{wanted: timed.Timeout()}
	switch def := s.daemon.Settings().BashTimeout; {
	case own > 0:
		a.timeout = own
	case a.wanted > 0 || wall > 0 && (def <= 0 || def > wall):
		a.timeout = wall // the tool keeps its own
	default:
		a.timeout = def
	}
	return a, nil
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

// shortened says that the call was not given the time that its input asks for; ""
// where it was.
func (c *Call) shortened() string {
	most := time.Duration(c.at.limits.Wall).Milliseconds()
	if most <= 0 || c.wanted <= most {
		return ""
	}
	return fmt.Sprintf("(timeout %d was cut to %d ms, the most that this session allows)", c.wanted, most)
}
