package call

import (
	"context"
	"errors"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/stream"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/tool/run"
)

// ErrTooSlow says that a listener was cut off; what it missed is in the output.
var ErrTooSlow = fault.Overloaded.Errorf("the call's events were not read fast enough").
	Next("the call goes on; ask for it and for its output")

// await returns the call when it has ended, or as it is when nobody waits any
// longer, but not before it has a record or will never have one: with an error if
// nobody waits because l was too slow.
func (c *Call) await(ctx context.Context, waitMillis *int64, abort bool, l *stream.Listener) (*client.Call, error) {
	var late <-chan time.Time
	if waitMillis != nil {
		t := time.NewTimer(time.Duration(min(*waitMillis, maxTTL.Milliseconds())) * time.Millisecond)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-c.done:
	case <-late:
	case <-c.ctx.Done():
		// Its session is over or the daemon leaves; the former ends it at once.
		c.awaitEnd(ctx)
	case <-ctx.Done():
		if abort {
			c.abort(run.ReasonAborted)
		}
	case <-l.TooSlow():
		if abort {
			c.abort(run.ReasonAborted)
		}
	}
	<-c.known
	select {
	case <-l.TooSlow(): // whatever else is so: it has not had all
		return c.snapshot(), ErrTooSlow
	default:
		return c.snapshot(), nil
	}
}

// awaitEnd gives a call whose context has ended a moment to be recorded.
func (c *Call) awaitEnd(ctx context.Context) {
	if errors.Is(context.Cause(c.ctx), ErrLeaving) {
		return
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	case <-c.at.daemon.Context.Done():
	}
}
