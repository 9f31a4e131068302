// Package queue has the places for the sessions of one tenant: so many as it may have, and
// those who wait for one, in turns.
package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
)

// maxQueued bounds the requests of one tenant that wait.
const maxQueued = 256

// ErrFull says that the tenant has all sessions that it may have, or that others
// wait for the next place.
var ErrFull = errors.New("no place for a session")

// Places are those of one tenant. New makes them.
type Places struct {
	tenant string
	most   func() int

	mu    sync.Mutex // guards the fields below
	taken int
	turns []*Turn       // in the order in which they came
	moved chan struct{} // closed when something changes, made by who waits
}

// Turn is a request that waits for a place.
type Turn struct{ said int } // the position that its client was told

// New makes the places of a tenant. most is how many there are, 0 for any number; it is asked
// each time, and may change before Move is called.
func New(tenant string, most func() int) *Places { return &Places{tenant: tenant, most: most} }

// Count is how many places are taken, and how many requests wait.
func (p *Places) Count() (taken, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken, len(p.turns)
}

// Take takes a place for w, nil for a request that does not wait: nobody overtakes those who
// do. With always no bound applies. Its error is ErrFull, or what also says, which is asked when
// there is a place; w waits no more where there is none.
func (p *Places) Take(w *Turn, always bool, also func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !always && p.fullLocked(w) {
		return ErrFull
	}
	if err := also(); err != nil {
		return err
	}
	p.taken++
	p.removeLocked(w)
	return nil
}

// Give gives a place back.
func (p *Places) Give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.moveLocked()
}

// Move has all who wait look again.
func (p *Places) Move() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moveLocked()
}

func (p *Places) moveLocked() {
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
}

func (p *Places) fullLocked(w *Turn) bool {
	most := p.most()
	return most > 0 && (p.taken >= most || len(p.turns) > 0 && p.turns[0] != w)
}

// removeLocked takes a request out, if it is in.
func (p *Places) removeLocked(w *Turn) {
	if i := slices.Index(p.turns, w); i >= 0 {
		p.turns = slices.Delete(p.turns, i, i+1)
		p.moveLocked()
	}
}

// None is the answer to a request that does not wait, or not any longer.
func (p *Places) None() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	others := ""
	if n := len(p.turns); n > 0 {
		others = ", and " + plain.Count(n, "request waits", "requests wait") + " for a place"
	}
	return fault.Quota.Errorf("tenant %s has %d sessions, which is all that it may have (max_sessions)%s", p.tenant, p.taken, others).
		Next("end one with toolctl session rm, or wait for a place: queue in the request, --queue 10m of toolctl")
}

// Join has a request wait, behind those who do; Leave takes it out.
func (p *Places) Join() (*Turn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.turns); n >= maxQueued {
		return nil, fault.Overloaded.Errorf("%d requests of tenant %s wait for a place, the maximum", n, p.tenant).
			Next("end a session with toolctl session rm, or try again later")
	}
	w := &Turn{}
	p.turns = append(p.turns, w)
	return w, nil
}

// Leave takes a request out, if it waits.
func (p *Places) Leave(w *Turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(w)
}

// turn reports whether w can have a place now, at which position it is, and when to look
// again.
func (p *Places) turn(w *Turn) (free bool, position int, moved <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moved == nil {
		p.moved = make(chan struct{})
	}
	return !p.fullLocked(w), slices.Index(p.turns, w) + 1, p.moved
}

// Await waits until w is the first and there is a place. tell, which may be nil, is given its
// position each time that it changes. Its error is what open says, that of ctx, or None when
// late comes first.
func (p *Places) Await(ctx context.Context, w *Turn, late <-chan time.Time, tell func(position int), open func() error) error {
	for {
		free, position, moved := p.turn(w)
		if err := open(); err != nil || free {
			return err
		}
		if tell != nil && position != w.said {
			w.said = position
			tell(position)
		}
		select {
		case <-moved:
		case <-late:
			p.Leave(w)
			return p.None()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
