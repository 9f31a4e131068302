package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/toold/toold/internal/descriptor"
)

// Share bounds what the networks below it use together: those of one session, of a tenant, of the
// host, each above the other. Its methods may be called from any goroutine; those of a nil Share
// bound nothing.
type Share struct {
	of     string
	over   *Share // that it is a part of; nil for none
	limits func() Limits
	bytes  atomic.Int64 // that have moved

	mu    sync.Mutex // guards the fields below, and is taken before that of over
	conns int        // that are open
	rate  *rate.Limiter
}

// NewShare makes one. of says whose it is, such as "the sessions of this tenant"; what is counted
// in it is counted in over too, if that is not nil. limits gives the Connections, PerSecond and
// Bytes of the moment; 0 is no bound.
func NewShare(of string, over *Share, limits func() Limits) *Share {
	return &Share{of: of, over: over, limits: limits, rate: rate.NewLimiter(rate.Inf, 0)}
}

// descriptors is how many a connection may need: two ends, and a pipe for each direction.
const descriptors = 6

// Room is how many connections this process may have open at once with the share of its
// descriptors that is for them.
func Room() int { return max(1, descriptor.Share()/descriptors) }

// wait waits until there may be a further connection.
func (s *Share) wait(ctx context.Context) error {
	for ; s != nil; s = s.over {
		if err := s.limiter(s.limits().PerSecond).Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Share) limiter(perSecond int) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.rate.Burst() == perSecond:
	case perSecond == 0:
		s.rate = rate.NewLimiter(rate.Inf, 0)
	default:
		s.rate = rate.NewLimiter(rate.Limit(perSecond), perSecond)
	}
	return s.rate
}

// enter counts a connection that is opened, and leave takes it back.
func (s *Share) enter() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch l := s.limits(); {
	case l.Bytes > 0 && s.bytes.Load() >= l.Bytes:
		return s.errMoved(l.Bytes)
	case l.Connections > 0 && s.conns >= l.Connections:
		return fmt.Errorf("%s have %d connections; at most %d are open at once", s.of, s.conns, l.Connections)
	}
	if err := s.over.enter(); err != nil {
		return err
	}
	s.conns++
	return nil
}

func (s *Share) leave() {
	for ; s != nil; s = s.over {
		s.mu.Lock()
		s.conns--
		s.mu.Unlock()
	}
}

// moved counts bytes. Its error is a limit that they are over.
func (s *Share) moved(n int64) (err error) {
	for ; s != nil; s = s.over {
		if all, most := s.bytes.Add(n), s.limits().Bytes; most > 0 && all > most {
			err = errors.Join(err, s.errMoved(most))
		}
	}
	return err
}

func (s *Share) errMoved(most int64) error {
	return fmt.Errorf("%s have moved their limit of %d bytes", s.of, most)
}

// turn waits until the session, and those that it shares with, may have a further connection.
func (n *Network) turn() error {
	if err := n.share.wait(n.ctx); err != nil {
		return err
	}
	return n.pace.Wait(n.ctx)
}

// enroll counts a connection among those that are open.
func (n *Network) enroll(c *client) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return net.ErrClosed
	}
	if err := n.share.enter(); err != nil {
		return err
	}
	n.clients[c] = struct{}{}
	if !n.watching {
		n.watching = true
		n.work.Go(n.watch)
	}
	return nil
}

// left is the end of what enroll began.
func (n *Network) left(c *client) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, enrolled := n.clients[c]; enrolled {
		delete(n.clients, c)
		n.share.leave()
	}
}

// count counts bytes of a connection in one direction. Its error is a limit that they are over,
// of which the gate knows before the program does.
func (c *client) count(direction *atomic.Int64, bytes int64) error {
	direction.Add(bytes)
	err := c.n.share.moved(bytes)
	if err != nil {
		c.fail(err)
		c.report()
	}
	return err
}
