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

// While a session has calls its agent is asked for a sign of life: one that was
// stopped, or does not get any further, closes no connection. A session without
// calls is left alone, so that an idle one costs nothing; the next call finds out.
const (
	beatEvery = 10 * time.Second
	// beatTime is how long the answer may take. An agent gives it without waiting
	// for any call, so that only a host which is out of its depth comes near.
	beatTime = 20 * time.Second
)

// beat is beatEvery and beatTime, for tests to replace.
type beat struct{ every, time time.Duration }

// heart asks for signs of life.
type heart struct {
	beat    *beat
	sandbox func() sandbox.Sandbox
	agent   *agent.Runner
	lose    func(why string) // ends the session
	work    *crew.Crew
	ctx     context.Context //nolint:containedctx // the life of the session

	mu    sync.Mutex  // guards the fields below
	calls int         // that have begun and not ended
	timer *time.Timer // runs while there are any; nil before the first
}

// Attend implements call.Place: it begins to watch over the agent, for a call.
func (h *heart) Attend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls++; h.calls > 1 {
		return
	}
	if h.timer == nil {
		h.timer = time.AfterFunc(h.beat.every, h.feel)
	} else {
		h.timer.Reset(h.beat.every)
	}
}

// Leave implements call.Place.
func (h *heart) Leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls--; h.calls == 0 {
		h.timer.Stop()
	}
}

// feel asks once, and again later while there are calls.
func (h *heart) feel() {
	h.work.Go(func() {
		if err := h.ping(); err != nil {
			h.lose(err.Error())
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.calls > 0 && h.ctx.Err() == nil {
			h.timer.Reset(h.beat.every)
		}
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
