package session

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
)

const (
	// defaultResultMemory is used where Config.ResultMemory is 0.
	defaultResultMemory = 256 << 20
	// copies is how many times the bytes of a large result are in memory at the
	// worst: as they came, decoded, as a data: URL (a third longer), and as the
	// JSON of its row or of the answer with the buffers that grow for it.
	copies = 6
	// roomTime bounds how long a finished call waits for room for its result.
	roomTime = 60 * time.Second
	// returnFrom is after how many released bytes memory goes back to the system.
	returnFrom = 64 << 20
	// returnAfter is when smaller amounts do.
	returnAfter = time.Second
)

// memory bounds the bytes of large results that are in memory at a time, of all
// sessions together. Who comes when it is used up waits; sessions take turns.
type memory struct {
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
	granted chan struct{} // closed with memory.mu held
}

func newMemory(total int64) *memory {
	if total <= 0 {
		total = defaultResultMemory
	}
	return &memory{total: total, free: total}
}

// weigh is what a result of n bytes counts.
func (m *memory) weigh(n int64) int64 { return min(n*copies, m.total) }

// take waits for room for that many bytes, at most roomTime.
func (m *memory) take(ctx context.Context, gone <-chan struct{}, session string, bytes int64) error {
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
		err = agent.ErrLost
	case <-timer.C:
		err = &client.Error{
			Code:    client.CodeOverloaded,
			Message: fmt.Sprintf("the result could not be taken: the memory for large results was in use for %s", roomTime),
			Hint:    "what the call did is done; ask for less at a time",
		}
	}
	m.abandon(session, w)
	return err
}

// join takes the bytes, or a place in the queue when they are not to be had.
func (m *memory) join(session string, bytes int64) *waiter {
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
func (m *memory) abandon(session string, w *waiter) {
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

// give returns bytes. What they held is garbage now; when there is much of it,
// the system gets it back before others may fill as much again.
func (m *memory) give(bytes int64) {
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
func (m *memory) grantLocked() {
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

// settle returns what give has left to the system.
func (m *memory) settle() {
	m.mu.Lock()
	some := m.released > 0
	m.released = 0
	m.mu.Unlock()
	if some {
		debug.FreeOSMemory()
	}
}

// room is agent.Hello.Room: it takes memory for a result on behalf of its call.
func (s *Session) room(ctx context.Context, gone <-chan struct{}, id string, bytes int64) error {
	v, ok := s.m.calls.Load(id)
	if !ok {
		return fmt.Errorf("result of call %s, which is over", id)
	}
	c := v.(*call)
	c.stopWatch() // its tool has ended; what is slow now is not the tool
	weight := s.m.memory.weigh(bytes)
	if err := s.m.memory.take(ctx, gone, s.id, weight); err != nil {
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
func (c *call) hold() (release func()) {
	c.held.mu.Lock()
	c.held.n++
	c.held.mu.Unlock()
	return sync.OnceFunc(c.release)
}

func (c *call) release() {
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
	m := c.s.m
	m.memory.give(bytes)
	if m.returning.CompareAndSwap(false, true) && !m.work.Go(m.returnMemory) {
		m.returning.Store(false)
	}
}

// returnMemory waits a moment for more, then gives memory back to the system.
func (m *Manager) returnMemory() {
	select {
	case <-time.After(returnAfter):
	case <-m.ctx.Done():
	}
	m.returning.Store(false)
	m.memory.settle()
}
