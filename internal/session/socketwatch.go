package session

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/room"
)

// socketWatch watches over what the kernel keeps for programs and counts in the memory of no
// session. Nothing else bounds what waits in netlink sockets and in connections that nobody has
// accepted; and where TCP is bounded, each connection may go beyond that by what keeps it going.
type socketWatch struct {
	*roster
	much   map[*Session]bool // those that have a good part of mostUncounted
	silent map[*Session]bool // those that could not be looked at, which was logged
	kept   int64             // by all sockets of the host, the least since all sessions were looked at
	busy   chan<- struct{}   // for lockWatch: full, there are calls
}

// mostUncounted (bytes) is what a session may have of it: what cgroup.SocketMemory leaves to
// sockets, and as much again.
const mostUncounted = 16 << 20

// While there are calls, one file says how much the sockets of the whole host keep, 500 times a
// second: programs fill them with a mebibyte in a millisecond. The sessions with calls are looked at
// when that has grown by uncountedStep, and else 10 times a second; those that have much, each
// time. The looks together take a fifth of a processor at most, however many sessions there are, and
// half of one while a session has much.
const (
	uncountedSeldom = 100 * time.Millisecond
	uncountedOften  = 2 * time.Millisecond
	uncountedStep   = 2 << 20 // bytes
	uncountedShare  = 4       // times as long as the looks took there is none
)

// watch runs as long as the daemon.
func (h *socketWatch) watch() {
	host := room.Sockets()
	defer host.Close()
	var all time.Time // when all were looked at
	for wait := time.Duration(0); h.await(wait); {
		select {
		case h.busy <- struct{}{}:
		default:
		}
		began, kept := time.Now(), host.Now()
		if began.Sub(all) >= uncountedSeldom || kept > h.kept+uncountedStep {
			all, h.kept = began, kept
			live := lookAtAll(h.roster, h.look)
			over := func(s *Session, _ bool) bool { return !live[s] }
			maps.DeleteFunc(h.much, over)
			maps.DeleteFunc(h.silent, over)
		} else {
			h.kept = min(h.kept, kept)
			for s := range h.much {
				h.look(s)
			}
		}
		wait = time.Since(began)
		if len(h.much) == 0 {
			wait *= uncountedShare
		}
		wait = max(uncountedOften, wait)
	}
}

// await is pause, and then waits until there are calls.
func (h *socketWatch) await(wait time.Duration) bool {
	for h.pause(wait) {
		some, busy := h.calls.Live()
		if busy {
			return true
		}
		var again <-chan time.Time
		if some { // they begin when a person has answered, without a word to this one
			again = time.After(uncountedSeldom)
		}
		select {
		case <-h.calls.Began():
		case <-again:
		case <-h.ctx.Done():
		}
		wait = uncountedOften // most calls are over by then
	}
	return false
}

// lookAtAll calls look for each live session, and gives them.
func lookAtAll(r *roster, look func(*Session)) (live map[*Session]bool) {
	live = map[*Session]bool{}
	for _, s := range r.live() {
		live[s] = true
		look(s)
	}
	return live
}

// look ends the calls of a session that has too much.
func (h *socketWatch) look(s *Session) {
	delete(h.much, s)
	if s.calls.Open() == 0 {
		return
	}
	sb, ok := s.sandbox().(sandbox.Uncounted)
	if !ok {
		return
	}
	n, err := sb.Uncounted(mostUncounted)
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
	stopForMemory(h.memory, s, note, "calls were stopped: their sockets keep too much of the host's memory",
		"kept", client.Size(n).String(), "most", client.Size(mostUncounted).String())
}

// lockWatch watches over the locks of files that programs have, which the kernel counts for nobody and
// bounds by nothing.
type lockWatch struct {
	*roster
	kept int64           // by the locks of the host, the least since all sessions were looked at
	busy <-chan struct{} // a value while there are calls
	// late are those whose locks could not be counted in this time, which was logged.
	late map[*Session]time.Duration
}

// mostLocks is how many a session may have: 3 MiB of them. To count them takes a look at each descriptor
// of each of its processes, and while 16,000 are counted a program makes as many. So sessions are looked at
// only when the host has locksStep (bytes) more.
const (
	mostLocks  = 16 << 10
	locksStep  = 1 << 20
	locksOften = 10 * time.Millisecond
	// locksTime is how long the first look at one session may take: it may have millions of descriptors, and
	// the others are looked at after it. The next one may take twice as long, up to mostLocksTime.
	locksTime     = 500 * time.Millisecond
	mostLocksTime = 30 * time.Second
)

// watch runs as long as the daemon.
func (h *lockWatch) watch() {
	host := room.FileLocks()
	defer host.Close()
	h.kept = host.Now()
	for wait := locksOften; h.pause(wait); {
		select {
		case <-h.busy:
		case <-h.ctx.Done():
			return
		}
		began, kept := time.Now(), host.Now()
		if kept > h.kept+locksStep {
			live := lookAtAll(h.roster, h.look)
			maps.DeleteFunc(h.late, func(s *Session, _ time.Duration) bool { return !live[s] })
			if len(h.late) == 0 {
				h.kept = kept // else all are looked at again
			}
		}
		h.kept = min(h.kept, kept)
		wait = max(locksOften, uncountedShare*time.Since(began))
	}
}

// look ends the calls of a session that has too many.
func (h *lockWatch) look(s *Session) {
	limit := max(h.late[s], locksTime)
	delete(h.late, s)
	if s.calls.Open() == 0 {
		return
	}
	sb, ok := s.sandbox().(sandbox.Uncounted)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(h.ctx, limit)
	defer cancel()
	n, err := sb.FileLocks(ctx, mostLocks)
	if n <= mostLocks && err == nil {
		return
	}
	if n <= mostLocks {
		if h.late[s] = min(2*limit, mostLocksTime); limit == locksTime {
			s.log.Warn("the session's locks of files cannot be counted yet", "error", err)
		}
		return
	}
	const note = "its programs had too many locks of files (fcntl), which are the host's memory; lock less at once"
	stopForMemory(h.memory, s, note, "calls were stopped: they have too many locks of files", "most", mostLocks)
}
