package client

import (
	"context"
	"errors"
	"time"
)

// retry paces the attempts to take up a broken stream.
type retry struct {
	limit  time.Duration
	worked bool      // something arrived once, so there is something to resume
	since  time.Time // when it broke; zero while it works
	delay  time.Duration
}

// The pauses between attempts: a daemon that restarts is back in well under a
// second, one that is upgraded in a few.
const (
	retryFirst = 20 * time.Millisecond
	retryMost  = time.Second
)

func (c *Client) newRetry() *retry { return &retry{limit: c.opts.Reconnect} }

// arrived notes that the stream works.
func (r *retry) arrived() { r.worked, r.since, r.delay = true, time.Time{}, 0 }

// again waits before the next attempt and reports whether there should be one
// after err.
func (r *retry) again(ctx context.Context, err error) bool {
	if !r.worked || !temporary(err) || ctx.Err() != nil {
		return false
	}
	switch {
	case r.limit < 0:
		return false
	case r.since.IsZero(): // one attempt is always made, however slow this machine is
		r.since, r.delay = time.Now(), retryFirst
	case time.Since(r.since) >= r.limit:
		return false
	}
	pause := time.After(r.delay)
	r.delay = min(2*r.delay, retryMost)
	select {
	case <-ctx.Done():
		return false
	case <-pause:
		return true
	}
}

// temporary reports whether err is of the kind that a restart of the daemon causes.
func temporary(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code == CodeOverloaded
	}
	_, unreachable := errors.AsType[*UnreachableError](err)
	return unreachable || errors.Is(err, ErrDisconnected)
}
