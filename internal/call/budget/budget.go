// Package budget bounds the bytes of large results that are in memory at a time. A
// result that comes when they are used up waits; sessions take turns.
package budget

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// Total is the usual budget in bytes.
	Total = 256 << 20
	// copies is how many times the bytes of a large result are in memory at the
	// worst: as they came, decoded, as a data: URL (a third longer), and as the
	// JSON of its row or of the answer with the buffers that grow for it.
	copies = 6
	// roomTime bounds how long a finished call waits for room for its result.
	roomTime = 60 * time.Second
	// returnFrom is after how many released bytes memory goes back to the system at once,
	// and returnAfter how long less than that is let lie, in case more comes.
	returnFrom  = 64 << 20
	returnAfter = time.Second
)

// ErrFull says that there was no room for a result in all the time that one may wait.
var ErrFull = fmt.Errorf("the memory for large results was in use for %s", roomTime)

// ErrGone says that who the result comes from is gone.
var ErrGone = errors.New("nobody sends the result any more")

// Memory is one budget, of all sessions together. New makes it.
type Memory struct {
	total    int64
	room     *semaphore.Weighted // who waits gets it in the order of coming, and nobody is passed over for being large
	released atomic.Int64        // bytes that were not yet returned to the system
	settle   *time.Timer         // returns them
}

// Turn is that of one session: one of its results at a time waits among those of all.
type Turn chan struct{}

// NewTurn makes the turn of a session.
func NewTurn() Turn { return make(Turn, 1) }

// New makes a budget of total bytes.
func New(total int64) *Memory {
	m := &Memory{total: total, room: semaphore.NewWeighted(total)}
	m.settle = time.AfterFunc(returnAfter, func() { m.giveBack(1) })
	return m
}

// Weigh is what a result of n bytes counts.
func (m *Memory) Weigh(n int64) int64 { return min(n*copies, m.total) }

// Take waits for room for that many bytes, which Weigh gave: at most a minute (ErrFull),
// until ctx ends (its cause) or gone is closed (ErrGone). Give returns them.
func (m *Memory) Take(ctx context.Context, gone <-chan struct{}, turn Turn, bytes int64) error {
	if m.room.TryAcquire(bytes) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, roomTime, ErrFull)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	var watched sync.WaitGroup
	defer watched.Wait()
	defer end(nil)
	watched.Go(func() {
		select {
		case <-gone:
			end(ErrGone)
		case <-ctx.Done():
		}
	})
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if m.room.Acquire(ctx, bytes) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Give returns bytes. What they held is garbage now; when there is much of it,
// the system gets it back before others may fill as much again.
func (m *Memory) Give(bytes int64) {
	m.released.Add(bytes)
	m.giveBack(returnFrom)
	m.settle.Reset(returnAfter)
	m.room.Release(bytes)
}

// giveBack returns what was released to the system, if that is at least so much.
func (m *Memory) giveBack(least int64) {
	if n := m.released.Load(); n >= least && m.released.CompareAndSwap(n, 0) {
		debug.FreeOSMemory()
	}
}
