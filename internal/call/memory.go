package call

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call/budget"
)

// returnAfter is when memory of results goes back to the system that is not much.
const returnAfter = time.Second

// Room is agent.Hello.Room: it takes memory for a result on behalf of its call.
func (g *Group) Room(ctx context.Context, gone <-chan struct{}, id string, bytes int64) error {
	v, ok := g.svc.live.Load(id)
	if !ok {
		return fmt.Errorf("result of call %s, which is over", id)
	}
	c := v.(*Call)
	c.stopWatch() // its tool has ended; what is slow now is not the tool
	weight := g.svc.Memory.Weigh(bytes)
	switch err := g.svc.Memory.Take(ctx, gone, g.id, weight); {
	case errors.Is(err, budget.ErrGone):
		return agent.ErrLost
	case errors.Is(err, budget.ErrFull):
		return &client.Error{
			Code:    client.CodeOverloaded,
			Message: "the result could not be taken: " + err.Error(),
			Hint:    "what the call did is done; ask for less at a time",
		}
	case err != nil:
		return err
	}
	c.held.mu.Lock()
	c.held.bytes += weight
	c.held.mu.Unlock()
	return nil
}

// held is the memory that a call's result takes, and how many hold the result:
// the call itself and those who still write an answer with it.
type held struct {
	mu    sync.Mutex // guards the fields below
	n     int
	bytes int64
}

// hold keeps the call's memory counted until release is called, once.
func (c *Call) hold() (release func()) {
	c.held.mu.Lock()
	c.held.n++
	c.held.mu.Unlock()
	return sync.OnceFunc(c.release)
}

func (c *Call) release() {
	c.held.mu.Lock()
	c.held.n--
	bytes := int64(0)
	if c.held.n == 0 {
		bytes, c.held.bytes = c.held.bytes, 0
	}
	c.held.mu.Unlock()
	if bytes == 0 {
		return
	}
	s := c.g.svc
	s.Memory.Give(bytes)
	if s.returning.CompareAndSwap(false, true) && !s.Work.Go(s.returnMemory) {
		s.returning.Store(false)
	}
}

// returnMemory waits a moment for more, then gives memory back to the system.
func (s *Service) returnMemory() {
	select {
	case <-time.After(returnAfter):
	case <-s.Context.Done():
	}
	s.returning.Store(false)
	s.Memory.Settle()
}
