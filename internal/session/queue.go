package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toold/toold/internal/fault"
)

const (
	// maxQueue is how long a request may wait for a place.
	maxQueue = 24 * time.Hour
	// maxQueued bounds the requests of one tenant that wait.
	maxQueued = 256
)

// errFull says that the tenant has all sessions that it may have, or that others
// wait for the next place; it never leaves the package.
var errFull = errors.New("no place for a session")

// queue has the requests of one tenant that wait for a place, in the order in which
// they came. Whoever holds roster.mu may use it.
type queue struct {
	all   []*place
	moved chan struct{} // closed when something changes, made by who waits
}

// place is a request in a queue.
type place struct{ said int } // the position that its client was told

// move has all who wait look again.
func (q *queue) move() {
	if q.moved != nil {
		close(q.moved)
		q.moved = nil
	}
}

// remove takes a request out, if it is in.
func (q *queue) remove(w *place) {
	if i := slices.Index(q.all, w); i >= 0 {
		q.all = slices.Delete(q.all, i, i+1)
		q.move()
	}
}

// fullLocked reports whether there is no place for w, nil for one that does not
// wait: nobody overtakes those who do.
func (m *roster) fullLocked(t *tenant, w *place) bool {
	most := m.settings.Load().maxSessions(t.Name)
	return most > 0 && (t.sessions >= most || len(t.queue.all) > 0 && t.queue.all[0] != w)
}

// noPlace is the answer to a request that does not wait, or not any longer.
func (m *roster) noPlace(t *tenant) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	others := ""
	if n := len(t.queue.all); n > 0 {
		others = fmt.Sprintf(", and %d requests wait for a place", n)
	}
	return fault.Quota.Errorf("tenant %s has %d sessions, which is all that it may have (max_sessions)%s", t.Name, t.sessions, others).
		Next("end one with toolctl session rm, or wait for a place: queue in the request, --queue 10m of toolctl")
}

func (m *roster) enqueue(t *tenant) (*place, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(t.queue.all); n >= maxQueued {
		return nil, fault.Overloaded.Errorf("%d requests of tenant %s wait for a place, the maximum", n, t.Name).
			Next("end a session with toolctl session rm, or try again later")
	}
	w := &place{}
	t.queue.all = append(t.queue.all, w)
	return w, nil
}

func (m *roster) dequeue(t *tenant, w *place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.queue.remove(w)
}

// awaitTurn waits until w is the first in its queue and there is a place.
func (m *roster) awaitTurn(ctx context.Context, t *tenant, w *place, late <-chan time.Time, queued func(position int)) error {
	for {
		m.mu.Lock()
		free, position := !m.fullLocked(t, w), slices.Index(t.queue.all, w)+1
		if t.queue.moved == nil {
			t.queue.moved = make(chan struct{})
		}
		moved := t.queue.moved
		m.mu.Unlock()
		if err := m.Accepting(); err != nil || free {
			return err
		}
		if queued != nil && position != w.said {
			w.said = position
			queued(position)
		}
		select {
		case <-moved:
		case <-late:
			m.dequeue(t, w)
			return m.noPlace(t)
		case <-ctx.Done():
			return m.internal("wait for a place", ctx.Err())
		case <-m.ctx.Done():
			return fault.Overloaded.Errorf("the daemon is stopping").Next("try again when it is back")
		}
	}
}
