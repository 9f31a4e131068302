package trees

import (
	"context"
	"sync"
)

// locks are whose trees somebody has: by session, a channel that is closed when that is over.
type locks struct{ busy sync.Map }

// try gives the tree of a session, or else says until when somebody has it.
func (l *locks) try(session string) (release func(), other <-chan struct{}) {
	mine := make(chan struct{})
	if has, busy := l.busy.LoadOrStore(session, mine); busy {
		return nil, has.(chan struct{})
	}
	return func() {
		l.busy.Delete(session)
		close(mine)
	}, nil
}

// take waits until nobody else has the tree of a session.
func (l *locks) take(ctx context.Context, session string) (release func(), err error) {
	for {
		release, other := l.try(session)
		if release != nil {
			return release, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
