package session

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/tool/run"
)

// memoryWatch watches over what is left of the host's memory. What the kernel keeps for sessions
// may be counted for none of them, and what is counted may be more than the host has.
type memoryWatch struct{ *roster }

// watch runs as long as the daemon.
func (h memoryWatch) watch() {
	var last *Session // whose calls were stopped
	var at time.Time
	for wait := time.Duration(0); h.pause(wait); {
		v, err := h.memory.look()
		if err != nil {
			wait = room.Seldom // who begins a session is told
			continue
		}
		// A new one each time: programs take memory in bursts, and how fast it went says little of
		// how it goes on.
		w := room.Watch{Floor: h.settings.Load().HostMemory}
		var level room.Level
		level, wait = w.Look(v)
		if was := room.Level(h.memory.level.Swap(int32(level))); level > was {
			h.log.Warn("the host's memory is nearly full: calls are stopped, one session after the other", "free_bytes", v.Free, "floor_bytes", w.Floor.Of(v.Size))
		}
		if level == room.Enough || last != nil && last.calls.Open() > 0 && time.Since(at) < h.memory.patience {
			continue
		}
		if last = h.most(); last != nil {
			at = time.Now()
			stopForMemory(h.memory, last, "the host's memory is nearly full, and this session had most of it; try again with less at once",
				"calls were stopped: the host's memory is nearly full")
		}
	}
}

// stopForMemory ends the calls of s that may write, since it takes too much of the host's memory:
// note is what they answer with, why what is logged, with more.
func stopForMemory(h *hostMemory, s *Session, note, why string, more ...any) {
	if n := s.calls.StopWriting(run.ReasonMemory, note); n > 0 {
		h.stops.Add(1)
		s.log.Warn(why, append([]any{"calls", n}, more...)...)
	}
}

// outsideLeast (bytes) is what each session may have outside its limit without being the first to go.
const outsideLeast = 2 << 20

// most is the session with calls that may write which has most memory outside its limit; where none
// has any to speak of, which has most in all; of equal ones the oldest. nil: there is none.
func (h memoryWatch) most() *Session {
	ctx, cancel := context.WithTimeout(h.ctx, memoryTime)
	defer cancel()
	type share struct {
		*Session
		outside, used int64
	}
	var all []share
	for _, s := range h.live() {
		if s.calls.Open() == 0 || !s.calls.Writing() {
			continue
		}
		one := share{Session: s}
		if sb, ok := s.sandbox().(sandbox.Uncounted); ok {
			if one.outside, _ = sb.Uncounted(math.MaxInt64); one.outside < outsideLeast {
				one.outside = 0
			}
		}
		one.used, _ = s.measure(ctx)
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.outside, a.outside), cmp.Compare(b.used, a.used), strings.Compare(a.id, b.id))
	}).Session
}

// MemoryRoom looks at it.
func (m *Manager) MemoryRoom() MemoryRoom {
	h := m.daemon.memory
	r := MemoryRoom{Stopped: h.stops.Load()}
	if v, err := h.look(); err == nil {
		r.Free, r.Size, r.Floor = v.Free, v.Size, m.settings.Load().HostMemory.Of(v.Size)
	}
	return r
}
