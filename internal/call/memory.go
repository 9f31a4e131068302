package call

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/fault"
)

// returnAfter is when memory of results goes back to the system that is not much.
const returnAfter = time.Second

// results is the memory of the results of all calls.
type results struct {
	daemon *Config
	// returning is set while memory is about to be given back to the system.
	returning atomic.Bool
}

// give gives memory back.
func (r *results) give(bytes int64) {
	r.daemon.Memory.Give(bytes)
	if r.returning.CompareAndSwap(false, true) && !r.daemon.Work.Go(r.settle) {
		r.returning.Store(false)
	}
}

// settle waits a moment for more, then gives memory back to the system.
func (r *results) settle() {
	select {
	case <-time.After(returnAfter):
	case <-r.daemon.Context.Done():
	}
	r.returning.Store(false)
	r.daemon.Memory.Settle()
}

// held is the memory that a call's result takes, and how many hold the result:
// the call itself and those who still write an answer with it.
type held struct {
	of *results

	mu    sync.Mutex // guards the fields below
	n     int
	bytes int64
}

// take waits for memory for so many bytes of a result, on behalf of a session.
func (h *held) take(ctx context.Context, gone <-chan struct{}, session string, bytes int64) error {
	memory := h.of.daemon.Memory
	weight := memory.Weigh(bytes)
	switch err := memory.Take(ctx, gone, session, weight); {
	case errors.Is(err, budget.ErrGone):
		return agent.ErrLost
	case errors.Is(err, budget.ErrFull):
		return fault.Overloaded.Errorf("the result could not be taken: %w", err).
			Next("what the call did is done; ask for less at a time")
	case err != nil:
		return err
	}
	h.mu.Lock()
	h.bytes += weight
	h.mu.Unlock()
	return nil
}

// hold keeps the memory counted until release is called, once.
func (h *held) hold() (release func()) {
	h.mu.Lock()
	h.n++
	h.mu.Unlock()
	return sync.OnceFunc(h.release)
}

func (h *held) release() {
	h.mu.Lock()
	h.n--
	bytes := int64(0)
	if h.n == 0 {
		bytes, h.bytes = h.bytes, 0
	}
	h.mu.Unlock()
	if bytes > 0 {
		h.of.give(bytes)
	}
}
