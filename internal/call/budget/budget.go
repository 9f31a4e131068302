// Package budget bounds the bytes of large results that are in memory at a time. A
// result that comes when they are used up waits; sessions take turns.
package budget

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

const (
	// defaultTotal is used where a budget of 0 is asked for.
	defaultTotal = 256 << 20
	// copies is how many times the bytes of a large result are in memory at the
	// worst: as they came, decoded, as a data: URL (a third longer), and as the
	// JSON of its row or of the answer with the buffers that grow for it.
	copies = 6
	// roomTime bounds how long a finished call waits for room for its result.
	roomTime = 60 * time.Second
	// returnFrom is after how many released bytes memory goes back to the system.
	returnFrom = 64 << 20
)

// ErrFull says that there was no room for a result in all the time that one may wait.
var ErrFull = fmt.Errorf("the memory for large results was in use for %s", roomTime)

// ErrGone says that who the result comes from is gone.
var ErrGone = errors.New("nobody sends the result any more")

// Memory is one budget, of all sessions together. New makes it.
type Memory struct {
	total int64

	mu       sync.Mutex // guards the fields below
	free     int64
	turns    []*turn // sessions with somebody who waits, the next one first
	released int64   // bytes that were not yet returned to the system
}

// turn is who waits for room in one session, in the order in which they came.
type turn struct {
	session string
	waiting []*waiter
}

type waiter struct {
	bytes   int64
	granted chan struct{} // closed with Memory.mu held
}

// New makes a budget of total bytes; 0 is 256 MiB.
func New(total int64) *Memory {
	if total <= 0 {
		total = defaultTotal
	}
	return &Memory{total: total, free: total}
}

// Weigh is what a result of n bytes counts.
func (m *Memory) Weigh(n int64) int64 { return min(n*copies, m.total) }

// Take waits for room for that many bytes, which Weigh gave: at most a minute (ErrFull),
// until ctx ends (its cause) or gone is closed (ErrGone). Give returns them.
func (m *Memory) Take(ctx context.Context, gone <-chan struct{}, session string, bytes int64) error {
	w := m.join(session, bytes)
	if w == nil {
		return nil
	}
	timer := time.NewTimer(roomTime)
	defer timer.Stop()
	var err error
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-gone:
		err = ErrGone
	case <-timer.C:
		err = ErrFull
	}
	m.abandon(session, w)
	return err
}

// join takes the bytes, or a place in the queue when they are not to be had.
func (m *Memory) join(session string, bytes int64) *waiter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.turns) == 0 && bytes <= m.free {
		m.free -= bytes
		return nil
	}
	w := &waiter{bytes: bytes, granted: make(chan struct{})}
	i := slices.IndexFunc(m.turns, func(t *turn) bool { return t.session == session })
	if i < 0 {
		i = len(m.turns)
		m.turns = append(m.turns, &turn{session: session})
	}
	m.turns[i].waiting = append(m.turns[i].waiting, w)
	return w
}

// abandon gives up what w waits for, or has been given just now.
func (m *Memory) abandon(session string, w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-w.granted:
		m.free += w.bytes
	default:
		for i, t := range m.turns {
			if t.session != session {
				continue
			}
			t.waiting = slices.DeleteFunc(t.waiting, func(other *waiter) bool { return other == w })
			if len(t.waiting) == 0 {
				m.turns = slices.Delete(m.turns, i, i+1)
			}
			break
		}
	}
	m.grantLocked()
}

// Give returns bytes. What they held is garbage now; when there is much of it,
// the system gets it back before others may fill as much again.
func (m *Memory) Give(bytes int64) {
	m.mu.Lock()
	m.released += bytes
	much := m.released >= returnFrom
	if much {
		m.released = 0
	}
	m.mu.Unlock()
	if much {
		debug.FreeOSMemory()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free += bytes
	m.grantLocked()
}

// grantLocked gives what is free to those whose turn it is. Nobody is passed
// over for being large.
func (m *Memory) grantLocked() {
	for len(m.turns) > 0 {
		t := m.turns[0]
		w := t.waiting[0]
		if w.bytes > m.free {
			return
		}
		m.free -= w.bytes
		close(w.granted)
		t.waiting = t.waiting[1:]
		m.turns = m.turns[1:]
		if len(t.waiting) > 0 {
			m.turns = append(m.turns, t)
		}
	}
}

// Settle returns what Give has left to the system.
func (m *Memory) Settle() {
	m.mu.Lock()
	some := m.released > 0
	m.released = 0
	m.mu.Unlock()
	if some {
		debug.FreeOSMemory()
	}
}

// Taken is how many bytes are in use.
func (m *Memory) Taken() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total - m.free
}
