package mcp

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"net/http"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
)

// How long a daemon that is away is waited for: longer than a restart takes, and shorter than
// clients wait for an answer. And how often it is looked for.
const (
	awayTime  = 10 * time.Second
	awayPause = 200 * time.Millisecond
)

// ErrNotReady is a daemon that answers, and says that it takes no calls now.
var ErrNotReady = errors.New("the daemon takes no calls now")

// Away reports whether err is a daemon that restarts: nobody listens, or it does not know its
// sessions yet.
func Away(err error) bool {
	if e, ok := errors.AsType[*client.UnreachableError](err); ok {
		return !errors.Is(e, fs.ErrPermission)
	}
	e, ok := errors.AsType[*client.Error](err)
	return errors.Is(err, ErrNotReady) || ok && e.Status == http.StatusServiceUnavailable
}

// wordAway is err in words for a model, which cannot start a daemon.
func wordAway(err error) error {
	const next = "nothing was done; make the call again in a moment, and if that fails too tell the user "
	if e, ok := errors.AsType[*client.Error](err); ok && e.Status == http.StatusServiceUnavailable {
		return fault.Overloaded.Errorf("the tools cannot be used now: %s", e.Message).Next(next + "what toold says")
	}
	e, ok := errors.AsType[*client.UnreachableError](err)
	if !ok {
		return err
	}
	return fault.Overloaded.Errorf("the tools cannot be reached now: toold does not answer at %s (%s)", e.Socket, plain.Cause(e.Err)).
		Next(next + "that toold does not run")
}

// patiently does what may be done twice until no daemon is away, for awayTime at most.
func (s *Server) patiently(ctx context.Context, do func() error) error {
	return patiently(ctx, s.cfg.away, do)
}

// Patiently does what may be done twice until no daemon is Away, for as long as a call waits for one.
func Patiently(ctx context.Context, do func() error) error { return patiently(ctx, awayTime, do) }

func patiently(ctx context.Context, most time.Duration, do func() error) error {
	for until := time.Now().Add(most); ; {
		err := do()
		if !Away(err) || time.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(awayPause):
		}
	}
}

// whenBack opens a stream patiently: what fails before the first event is done again.
func (s *Server) whenBack(ctx context.Context, open func() iter.Seq2[client.Event, error]) iter.Seq2[client.Event, error] {
	return func(yield func(client.Event, error) bool) {
		begun, left := false, false
		err := s.patiently(ctx, func() error {
			for e, err := range open() {
				if err != nil && !begun && Away(err) {
					return err
				}
				begun = true
				if left = !yield(e, err); left {
					return nil
				}
			}
			return nil
		})
		if err != nil && !left {
			yield(client.Event{}, wordAway(err))
		}
	}
}
