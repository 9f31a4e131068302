// Package crew starts goroutines and waits for them, and lets one at a time work on what has a
// name.
package crew

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Crew is goroutines that are waited for. Other than a sync.WaitGroup it may be
// closed while others still try to add to it, and says who is waited for. Its zero value is
// ready.
type Crew struct {
	mu     sync.Mutex     // guards the fields below
	at     map[string]int // how many are at a work
	n      int
	closed bool
	idle   chan struct{} // closed when n is 0; made by who waits
}

// Go runs fn in a goroutine, unless the crew is closed. work says of what fn is, for whoever
// waits for it in vain.
func (c *Crew) Go(work string, fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if c.at == nil {
		c.at = map[string]int{}
	}
	c.at[work]++
	c.n++
	go func() {
		defer c.left(work)
		fn()
	}()
	return true
}

func (c *Crew) left(work string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[work]--; c.at[work] == 0 {
		delete(c.at, work)
	}
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// None is closed when nobody is at work. Others may begin later.
func (c *Crew) None() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	if c.n == 0 {
		close(idle)
		c.idle = nil
	}
	return idle
}

// shownWork is how many that are waited for in vain are named.
const shownWork = 10

// Close lets nobody begin any more and waits for those at work. When ctx ends before they do,
// the error names them; they are left to themselves.
func (c *Crew) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	idle := c.None()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(c.at))
	more := ""
	if len(names) > shownWork {
		names, more = names[:shownWork], fmt.Sprintf(" and %d more", len(names)-shownWork)
	}
	return fmt.Errorf("not waited for any longer: %s%s: %w", strings.Join(names, ", "), more, context.Cause(ctx))
}
