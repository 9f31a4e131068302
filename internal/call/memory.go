package call

import (
	"context"
	"errors"
	"sync"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/fault"
)

// held is the memory that a call's result takes, and how many hold the result:
// the call itself and those who still write an answer with it.
type held struct {
	of *budget.Memory

	mu    sync.Mutex // guards the fields below
	n     int
	bytes int64
}

// take waits for memory for so many bytes of a result, in the turn of its session.
func (h *held) take(ctx context.Context, gone <-chan struct{}, turn budget.Turn, bytes int64) error {
	weight := h.of.Weigh(bytes)
	switch err := h.of.Take(ctx, gone, turn, weight); {
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
		h.of.Give(bytes)
	}
}
