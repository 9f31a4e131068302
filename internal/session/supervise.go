package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/steady"
)

// supervisor watches over a session, in a goroutine of its own.
type supervisor struct {
	*Session
	losses []time.Time // of the connection to the agent, the last ones
}

// An agent that welcomes every connection and drops it at once would have the
// daemon reconnect for ever: more than maxLosses within lossTime end the session.
const (
	maxLosses = 5
	lossTime  = 10 * time.Second
)

// tooMany counts a loss of the connection to the agent and reports whether there
// were too many in a short time.
func (s *supervisor) tooMany(now time.Time) bool {
	s.losses = append(s.losses, now)
	if len(s.losses) <= maxLosses {
		return false
	}
	first := s.losses[0]
	s.losses = s.losses[1:]
	return now.Sub(first) < lossTime
}

// pause waits for d, or less when the session is over or its agent is dead.
func (s *supervisor) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.sb.Done():
	case <-s.ctx.Done():
	}
}

// run watches over the session until it is over or the daemon leaves.
func (s *supervisor) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	s.heart.begin()
	defer s.heart.stop()
	for {
		l, err := s.agent.Link()
		if err != nil || s.isEnding() {
			return
		}
		timer.Reset(s.untilTimeout()) // before it is asked: what changes in between is looked at then
		if why := s.timedOut(); why != "" {
			s.expire(why)
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case <-l.Done():
			if s.ctx.Err() != nil || s.relink(l) {
				continue
			}
			return
		case <-s.sb.Done():
			s.Lose(s.death())
			return
		case <-s.leaseGone():
			s.expire(fmt.Sprintf("process %d, which held its lease, ended", s.Row().LeasePID))
			return
		case <-s.changed:
		case <-timer.C:
		}
	}
}

// causeTime bounds the question why an agent has died: calls end with the answer. An
// Engine learns of it a moment later than we do, and on a busy host that takes seconds.
const causeTime = 10 * time.Second

// death says that the agent has died, and why, if anybody knows.
func (s *supervisor) death() string {
	const died = "its agent died"
	w, ok := s.sb.(sandbox.Witness)
	if !ok {
		return died
	}
	ctx, cancel := context.WithTimeout(s.daemon.ctx, causeTime)
	defer cancel()
	if why := w.Cause(ctx); why != "" {
		return died + ": " + why
	}
	return died
}

// relink makes a new connection after l was lost. It reports whether the
// session lives on.
func (s *supervisor) relink(l *agent.Link) bool {
	if err := l.Err(); errors.Is(err, agent.ErrViolation) {
		s.Lose("its agent broke the control protocol: " + err.Error())
		return false
	}
	if s.tooMany(time.Now()) {
		s.Lose(fmt.Sprintf("the connection to its agent was lost more than %d times within %s", maxLosses, client.Duration(lossTime)))
		return false
	}
	s.pause(reconnectFirst << len(s.losses))
	w, err := s.reach(s.ctx, s.patience())
	switch {
	case err == nil:
		s.log.Warn("connected to the agent again")
		s.calls.ForgetUnknown(&s.agent, w.Calls)
		return true
	case s.ctx.Err() != nil || s.isEnding():
		return true // supervise sees why
	case errors.Is(err, sandbox.ErrGone):
		s.Lose(s.death())
	default:
		s.Lose("the connection to its agent was lost: " + err.Error())
	}
	return false
}

// untilTimeout is how long supervise may sleep.
func (s *supervisor) untilTimeout() time.Duration {
	row := s.Row()
	d := 24 * time.Hour
	if row.Expires != nil {
		d = min(d, steady.Now().Left(*row.Expires, row.Until))
	}
	if idle := time.Duration(row.IdleTimeout); idle > 0 {
		d = min(d, idle-s.calls.Idle())
	}
	return max(min(d, untilSpent(s.Session)), 10*time.Millisecond)
}

// timedOut says why the session has lived long enough, "" when it has not.
func (s *supervisor) timedOut() string {
	row := s.Row()
	if row.Expires != nil && steady.Now().Left(*row.Expires, row.Until) <= 0 {
		return fmt.Sprintf("its ttl of %s ended", row.TTL)
	}
	if idle := time.Duration(row.IdleTimeout); idle > 0 && s.calls.Idle() >= idle {
		return fmt.Sprintf("no call for %s (idle_timeout)", row.IdleTimeout)
	}
	return s.spent()
}

// expire ends the session from inside supervise.
func (s *supervisor) expire(reason string) {
	if err := s.end(s.daemon.ctx, ending{state: client.SessionEnded, reason: reason}); err != nil {
		s.log.Error("end an expired session", "error", err)
	}
}
