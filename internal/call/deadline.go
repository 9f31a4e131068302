package call

import (
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/tool"
)

// checkTimeout refuses a timeout_ms that the session cannot give.
func (g *Group) checkTimeout(r *client.CallCreate) error {
	wall := time.Duration(g.limits.Wall).Milliseconds()
	if r.TimeoutMillis < 0 || r.TimeoutMillis > maxTTL.Milliseconds() {
		return fault.Invalid.Errorf("timeout_ms is %d; give 1 or more milliseconds, or leave it out", r.TimeoutMillis)
	}
	if wall > 0 && r.TimeoutMillis > wall {
		return fault.Invalid.Errorf("timeout_ms is %d; limits.wall of this session is %d ms", r.TimeoutMillis, wall)
	}
	return nil
}

// deadline gives the time that the call may run: its own timeout_ms, else bash's
// default, else the session's limit, above which it may not be. A timeout of bash's
// input, wanted, has no effect above that, which the answer says (see shortened).
func (g *Group) deadline(r *client.CallCreate, inv *tool.Invocation) (_ time.Duration, wanted int64, _ error) {
	if err := g.checkTimeout(r); err != nil {
		return 0, 0, err
	}
	wall := time.Duration(g.limits.Wall)
	own := time.Duration(r.TimeoutMillis) * time.Millisecond
	timed, ok := inv.Input.(tool.Timed)
	if !ok {
		if own == 0 {
			own = wall
		}
		return own, 0, nil
	}
	wanted = timed.Timeout()
	switch def := g.svc.Settings().BashTimeout; {
	case own > 0:
		return own, wanted, nil
	case wanted > 0:
		return wall, wanted, nil // the tool keeps its own
	case wall > 0 && (def <= 0 || def > wall):
		return wall, 0, nil
	default:
		return def, 0, nil
	}
}

// timeouts are the time that a call of bash was given, and the most that its input could
// have asked for; 0 = no bound.
func (c *Call) timeouts() (given, most time.Duration) {
	given, most = c.timeout, time.Duration(c.g.limits.Wall)
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
	most := time.Duration(c.g.limits.Wall).Milliseconds()
	if most <= 0 || c.wanted <= most {
		return ""
	}
	return fmt.Sprintf("(timeout %d was cut to %d ms, the most that this session allows)", c.wanted, most)
}
