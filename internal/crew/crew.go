// Package crew starts goroutines and waits for them, and lets one at a time work on what has a
// name.
package crew

import "sync"

// Crew is goroutines that are waited for. Other than a sync.WaitGroup it may be
// closed while others still try to add to it. Its zero value is ready.
type Crew struct {
	mu     sync.Mutex // guards the fields below
	n      int
	closed bool
	idle   chan struct{} // closed when n is 0; made by who waits
}

// Go runs fn in a goroutine, unless the crew is closed.
func (c *Crew) Go(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.n++
	go func() {
		defer c.left()
		fn()
	}()
	return true
}

func (c *Crew) left() {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// Close lets nobody begin any more and waits for those at work.
func (c *Crew) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	<-c.None()
}
