package exec

import (
	"context"
	"errors"

	"github.com/toold/toold/internal/tool/run"
)

// EndedError is the cause with which the context of a program is cancelled.
type EndedError struct{ Reason run.Reason }

// Error implements error.
func (e *EndedError) Error() string { return e.Reason.Words() }

// ReasonOf says why ctx has ended.
func ReasonOf(ctx context.Context) run.Reason {
	cause := context.Cause(ctx)
	var e *EndedError
	switch {
	case errors.As(cause, &e):
		return e.Reason
	case errors.Is(cause, context.DeadlineExceeded):
		return run.ReasonTimeout
	default:
		return run.ReasonAborted
	}
}
