package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// While a session has calls its agent is asked for a sign of life: one that was
// stopped, or does not get any further, closes no connection. A session without
// calls is left alone, so that an idle one costs nothing; the next call finds out.
const (
	beatEvery = 10 * time.Second
	// beatTime is how long the answer may take. An agent gives it without waiting
	// for any call, so that only a host which is out of its depth comes near.
	beatTime = 20 * time.Second
)

// beat is beatEvery and beatTime, for tests to replace.
type beat struct{ every, time time.Duration }

// heart asks for signs of life.
type heart struct {
	mu    sync.Mutex  // guards the fields below
	calls int         // that have begun and not ended
	timer *time.Timer // runs while there are any; nil before the first
}

// attend begins to watch over the agent, for a call; unattend ends it.
func (s *Session) Attend() {
	h := &s.heart
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls++; h.calls > 1 {
		return
	}
	if h.timer == nil {
		h.timer = time.AfterFunc(s.m.beat.every, s.feel)
	} else {
		h.timer.Reset(s.m.beat.every)
	}
}

func (s *Session) Leave() {
	h := &s.heart
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls--; h.calls == 0 {
		h.timer.Stop()
	}
}

// feel asks once, and again later while there are calls.
func (s *Session) feel() {
	s.m.work.Go(func() {
		if err := s.ping(); err != nil {
			s.Lose(err.Error())
			return
		}
		s.heart.mu.Lock()
		defer s.heart.mu.Unlock()
		if s.heart.calls > 0 && s.ctx.Err() == nil {
			s.heart.timer.Reset(s.m.beat.every)
		}
	})
}

// ping says whether the agent is at the other end of its connection and does not
// answer. Connections that break are supervise's to mend.
func (s *Session) ping() error {
	l, err := s.agent.Link()
	if err != nil {
		return nil
	}
	limit := s.m.beat.time
	if d, ok := s.sb.(sandbox.Distant); ok {
		limit += d.Patience()
	}
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	err = l.Ping(ctx)
	if now, cerr := s.agent.Link(); cerr != nil || now != l || s.ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("its agent did not answer for %s", client.Duration(limit))
}
