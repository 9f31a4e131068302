package crew

import (
	"context"
	"sync"
)

// Turns lets one at a time work on what has a name. Its zero value is ready.
type Turns struct {
	mu   sync.Mutex               // guards busy
	busy map[string]chan struct{} // by name; closed when the turn is over
}

// Take waits for the turn of a name. done gives it back; the error is why ctx has ended.
func (t *Turns) Take(ctx context.Context, name string) (done func(), err error) {
	for {
		done, other := t.try(name)
		if done != nil {
			return done, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// try takes the turn, or says when that of another is over.
func (t *Turns) try(name string) (done func(), other <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.busy[name]; other != nil {
		return nil, other
	}
	if t.busy == nil {
		t.busy = map[string]chan struct{}{}
	}
	mine := make(chan struct{})
	t.busy[name] = mine
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.busy, name)
		close(mine)
	}, nil
}
