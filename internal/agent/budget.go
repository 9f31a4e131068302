package agent

import (
	"context"
	"sync"
)

// budget bounds the bytes of large results that are on their way at a time. Who
// comes when it is used up waits for those before.
type budget struct {
	mu   sync.Mutex // guards the fields below
	free int64
	held map[*exchange]int64
	room chan struct{} // closed and renewed when something is given back
}

func newBudget(bytes int64) *budget {
	return &budget{free: bytes, held: make(map[*exchange]int64), room: make(chan struct{})}
}

// take reserves x's offer. It gives up when ctx ends or the connection does.
func (b *budget) take(ctx context.Context, gone <-chan struct{}, x *exchange) error {
	for {
		b.mu.Lock()
		if x.offer <= b.free {
			b.free -= x.offer
			b.held[x] = x.offer
			b.mu.Unlock()
			return nil
		}
		room := b.room
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-gone:
			return ErrLost
		}
	}
}

// give returns what x holds, if anything.
func (b *budget) give(x *exchange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, ok := b.held[x]
	if !ok {
		return
	}
	delete(b.held, x)
	b.free += n
	close(b.room)
	b.room = make(chan struct{})
}
