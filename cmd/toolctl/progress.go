package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// progress says on a terminal what toolctl waits for, once that takes longer
// than a second.
type progress struct {
	what atomic.Pointer[string]
	done chan struct{}
	wait sync.WaitGroup
}

// progress begins one; its stop must be called before anything else is printed.
func (a *app) progress(what string) *progress {
	p := newProgress(what)
	if a.errTTY {
		p.wait.Go(func() { p.show(a) })
	}
	return p
}

// newProgress is one that says nothing.
func newProgress(what string) *progress {
	p := &progress{done: make(chan struct{})}
	p.set(what)
	return p
}

// set changes what is said. It may be called from any goroutine.
func (p *progress) set(what string) { p.what.Store(&what) }

func (p *progress) show(a *app) {
	begin := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			if time.Since(begin) >= time.Second {
				fmt.Fprint(a.stderr, "\r\x1b[K")
			}
			return
		case <-tick.C:
			fmt.Fprintf(a.stderr, "\r\x1b[Ktoolctl: %s … %ds", *p.what.Load(), int(time.Since(begin).Seconds()))
		}
	}
}

func (p *progress) stop() {
	close(p.done)
	p.wait.Wait()
}
