package main

import (
	"fmt"
	"sync"
	"time"
)

// progress says on a terminal what toolctl waits for, once that takes longer
// than a second.
type progress struct {
	done chan struct{}
	wait sync.WaitGroup
}

// progress begins one; its stop must be called before anything else is printed.
func (a *app) progress(what string) *progress {
	p := &progress{done: make(chan struct{})}
	if a.errTTY {
		p.wait.Go(func() { p.show(a, what) })
	}
	return p
}

func (p *progress) show(a *app, what string) {
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
			fmt.Fprintf(a.stderr, "\r\x1b[Ktoolctl: %s … %ds", what, int(time.Since(begin).Seconds()))
		}
	}
}

func (p *progress) stop() {
	close(p.done)
	p.wait.Wait()
}
