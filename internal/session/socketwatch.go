package session

import (
	"errors"
	"maps"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool/run"
)

// socketWatch watches over what the kernel keeps for programs and counts in the memory of no
// session. Nothing else bounds what waits in netlink sockets; and where TCP is bounded, each
// connection may go beyond that by what keeps it going.
type socketWatch struct {
	*roster
	much   map[*Session]bool // those that have a good part of mostUncounted
	silent map[*Session]bool // those that could not be looked at, which was logged
}

// mostUncounted (bytes) is what a session may have of it: what cgroup.SocketMemory leaves to
// sockets, and half as much again.
const mostUncounted = 24 << 20

// How often sessions with calls are looked at: all of them, and those that have much. The looks
// together take a fifth of a processor at most, however many sessions there are.
const (
	uncountedSeldom = 100 * time.Millisecond
	uncountedOften  = 10 * time.Millisecond
	uncountedShare  = 4 // times as long as the looks took there is none
)

// watch runs as long as the daemon.
func (h socketWatch) watch() {
	var all time.Time // when all were looked at
	for wait := uncountedSeldom; h.pause(wait); {
		began := time.Now()
		if began.Sub(all) >= uncountedSeldom {
			all = began
			h.lookAtAll()
		} else {
			for s := range h.much {
				h.look(s)
			}
		}
		wait = uncountedSeldom
		if len(h.much) > 0 {
			wait = uncountedOften
		}
		wait = max(wait, uncountedShare*time.Since(began))
	}
}

func (h socketWatch) lookAtAll() {
	live := map[*Session]bool{}
	for _, s := range h.live() {
		live[s] = true
		h.look(s)
	}
	over := func(s *Session, _ bool) bool { return !live[s] }
	maps.DeleteFunc(h.much, over)
	maps.DeleteFunc(h.silent, over)
}

// look ends the calls of a session that has too much.
func (h socketWatch) look(s *Session) {
	delete(h.much, s)
	if s.calls.Open() == 0 {
		return
	}
	sb, ok := s.sandbox().(sandbox.Uncounted)
	if !ok {
		return
	}
	n, err := sb.Uncounted()
	if err != nil && !errors.Is(err, sandbox.ErrGone) && !h.silent[s] {
		h.silent[s] = true
		s.log.Warn("nobody sees to it that the session's sockets keep little of the host's memory", "error", err)
	}
	if n > mostUncounted/4 {
		h.much[s] = true
	}
	if n <= mostUncounted {
		return
	}
	const note = "its sockets kept too much of the host's memory beside that of the session; have fewer of them open, or read from them what has arrived"
	if stopped := s.calls.StopWriting(run.ReasonMemory, note); stopped > 0 {
		h.memory.stops.Add(1)
		s.log.Warn("calls were stopped: their sockets keep too much of the host's memory",
			"calls", stopped, "kept", client.Size(n).String(), "most", client.Size(mostUncounted).String())
	}
}
