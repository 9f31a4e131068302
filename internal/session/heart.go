package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/sandbox"
)

// An agent is asked for signs of life: one that was stopped, or does not get any further,
// closes no connection. A session without calls is asked so seldom that a thousand idle ones
// cost a few messages a second.
const (
	beatEvery = 10 * time.Second
	beatIdle  = 2 * time.Minute
	// beatTime is how long the answer may take. An agent gives it without waiting
	// for any call, so that only a host which is out of its depth comes near.
	beatTime = 20 * time.Second
)

// beat is beatEvery, beatIdle and beatTime, for tests to replace.
type beat struct{ every, idle, time time.Duration }

// heart asks for signs of life.
type heart struct {
	beat    *beat
	sandbox func() sandbox.Sandbox
	agent   *agent.Runner
	lose    func(why string) // ends the session
	begun   func()           // told of each call that begins
	work    *crew.Crew
	ctx     context.Context //nolint:containedctx // the life of the session

	mu    sync.Mutex  // guards the fields below
	calls int         // that have begun and not ended
	timer *time.Timer // of the next question; nil before the first
	ended bool
}

// begin begins to watch over the agent of a session without calls.
func (h *heart) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set()
}

// stop ends the watch.
func (h *heart) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended = true; h.timer != nil {
		h.timer.Stop()
	}
}

// set lets the next question come when it should. h.mu is held.
func (h *heart) set() {
	next := h.beat.idle
	if h.calls > 0 {
		next = h.beat.every
	}
	switch {
	case h.ended || h.ctx.Err() != nil:
	case h.timer == nil:
		h.timer = time.AfterFunc(next, h.feel)
	default:
		h.timer.Reset(next)
	}
}

// Attend implements call.Place: it watches over the agent more closely, for a call.
func (h *heart) Attend() {
	defer h.begun()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls++; h.calls == 1 {
		h.set()
	}
}

// Leave implements call.Place.
func (h *heart) Leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls--; h.calls == 0 {
		h.set()
	}
}

// feel asks once, and again later.
func (h *heart) feel() {
	h.work.Go("sign of life of an agent", func() {
		if err := h.ping(); err != nil {
			h.lose(err.Error())
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.set()
	})
}

// ping says whether the agent is at the other end of its connection and does not
// answer. Connections that break are supervise's to mend.
func (h *heart) ping() error {
	l, err := h.agent.Link()
	if err != nil {
		return nil
	}
	limit := h.beat.time
	if d, ok := h.sandbox().(sandbox.Distant); ok {
		limit += d.Patience()
	}
	ctx, cancel := context.WithTimeout(h.ctx, limit)
	defer cancel()
	err = l.Ping(ctx)
	if now, cerr := h.agent.Link(); cerr != nil || now != l || h.ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("its agent did not answer for %s", client.Duration(limit))
}
