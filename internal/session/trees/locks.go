package trees

import (
	"context"
	"sync"
)

// locks are whose trees somebody has, by session.
type locks struct {
	mu   sync.Mutex // guards the field below
	busy map[string]chan struct{}
}

// take waits until nobody else has the tree of a session.
func (l *locks) take(ctx context.Context, session string) (release func(), err error) {
	for {
		l.mu.Lock()
		other := l.busy[session]
		if other == nil {
			mine := make(chan struct{})
			l.busy[session] = mine
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.busy, session)
				l.mu.Unlock()
				close(mine)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
