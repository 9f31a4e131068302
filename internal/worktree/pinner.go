package worktree

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrUnresponsive: the file system of the directory does not answer. It may be
// a network's, or one that a user's own program serves.
var ErrUnresponsive = errors.New("its file system does not answer")

const (
	// patience is how long a Pinner waits for one directory.
	patience = 5 * time.Second
	// maxWaiting bounds the pins of one user that are under way, and with them
	// the threads that hang in the kernel.
	maxWaiting = 8
)

// Pinner pins directories for several users, whose file systems may hang: for a
// bounded time, and so that no user's take more than a few threads. The zero
// value is ready for use; its methods may be called from any goroutine.
type Pinner struct {
	// Patience is how long Pin waits at most; 5 s if zero.
	Patience time.Duration

	// mu guards queues.
	mu     sync.Mutex
	queues map[uint32]*queue // by uid, of those who pin
}

// queue is where the pins of one user take turns.
type queue struct {
	turns chan struct{} // full when maxWaiting pins are under way
	users int           // pins that have a turn or wait for one
}

// Pin is like the function Pin, on behalf of the user uid. After Patience it
// gives up with ErrUnresponsive. A call into a file system that hangs cannot be
// taken back: its goroutine is waited for by nobody and ends when the file
// system answers or is aborted. Until then it has one of the user's turns; who
// gets none within Patience fails with ErrUnresponsive too.
func (p *Pinner) Pin(uid uint32, source string, rules Rules) (*Directory, error) {
	wait := p.Patience
	if wait == 0 {
		wait = patience
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	q := p.enter(uid)
	select {
	case q.turns <- struct{}{}:
	case <-timer.C:
		p.leave(uid)
		return nil, fmt.Errorf("%q: %d directories of uid %d are still being looked at: %w", source, maxWaiting, uid, ErrUnresponsive)
	}
	type result struct {
		dir *Directory
		err error
	}
	done := make(chan result)
	tired := make(chan struct{})
	go func() {
		defer p.leave(uid)
		defer func() { <-q.turns }()
		d, err := Pin(source, rules)
		select {
		case done <- result{d, err}:
		case <-tired:
			if d != nil {
				_ = d.Close() // nobody waits for it
			}
		}
	}()
	select {
	case r := <-done:
		return r.dir, r.err
	case <-timer.C:
		close(tired)
		return nil, fmt.Errorf("%q: %w (waited %v)", source, ErrUnresponsive, wait)
	}
}

func (p *Pinner) enter(uid uint32) *queue {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[uid]
	if q == nil {
		q = &queue{turns: make(chan struct{}, maxWaiting)}
		if p.queues == nil {
			p.queues = map[uint32]*queue{}
		}
		p.queues[uid] = q
	}
	q.users++
	return q
}

func (p *Pinner) leave(uid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.queues[uid]; q != nil {
		if q.users--; q.users == 0 {
			delete(p.queues, uid)
		}
	}
}
