package call

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/tool/run"
)

// TestWhy: a call that the host has stopped before it ran says so, whatever it was waiting for; one
// that somebody has aborted, and one that failed by itself, say that.
func TestWhy(t *testing.T) {
	t.Parallel()
	own := errors.New("its own")
	for _, by := range []run.Reason{run.ReasonDisk, run.ReasonMemory, run.ReasonAborted} {
		c := &Call{}
		c.ctx, c.cancel = context.WithCancelCause(t.Context())
		if c.abort(by); !errors.Is(c.why(own), own) {
			t.Errorf("%s: %v", by, c.why(own))
		}
		for _, err := range []error{context.Canceled, fmt.Errorf("wait: %w", context.Canceled), run.Errorf(run.CodeAborted, "aborted")} {
			if got := c.why(err); errors.Is(got, fault.Overloaded) != (by != run.ReasonAborted) {
				t.Errorf("%s, %v: %v", by, err, got)
			}
		}
	}
}
