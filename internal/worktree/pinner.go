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

	// turns has by uid a channel, which is full when maxWaiting pins are under way. One stays
	// for each user of the host that ever pinned.
	turns sync.Map
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
	of, _ := p.turns.LoadOrStore(uid, make(chan struct{}, maxWaiting))
	turns := of.(chan struct{})
	select {
	case turns <- struct{}{}:
	case <-timer.C:
		return nil, fmt.Errorf("%q: %d directories of uid %d are still being looked at: %w", source, maxWaiting, uid, ErrUnresponsive)
	}
	type result struct {
		dir *Directory
		err error
	}
	done := make(chan result)
	tired := make(chan struct{})
	go func() {
		defer func() { <-turns }()
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
