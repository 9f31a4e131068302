package session

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/tool/run"
)

// diskWatch watches over what is free on the disks of the host: that of the state directory,
// where the disks of sessions are, and those of worktrees that sessions write to.
type diskWatch struct{ *roster }

// surveyEvery is how old a survey of the disks may be.
const surveyEvery = 2 * time.Second

// watch runs as long as the daemon.
func (h diskWatch) watch() {
	w := &room.Watch{Unwritten: func() int64 { return h.disk.survey().Unwritten }}
	var last time.Time
	failed := map[string]bool{}
	for wait := time.Duration(0); h.pause(wait); {
		if time.Since(last) >= surveyEvery {
			if s := h.disk.survey(); h.disk.losses.News(s) {
				select {
				case h.disk.warned <- struct{}{}:
				default: // they wait to be looked at
				}
			}
			last = time.Now()
			failed = h.lookAtFailed(failed)
		}
		v, err := room.At(h.disk.dir)
		if err != nil {
			wait = surveyEvery // whoever writes there says so
			continue
		}
		w.Floor = h.settings.Load().HostFree
		var level room.Level
		level, wait = w.Look(v)
		if level != room.Tight && room.Level(h.disk.level.Load()) == room.Tight {
			h.lookForLosses() // before calls write again to a disk that has lost something
		}
		if was := room.Level(h.disk.level.Swap(int32(level))); level > was {
			h.log.Warn("the host's disk is nearly full: calls that write are stopped", "free_bytes", v.Free, "floor_bytes", w.Floor.Of(v.Size))
			// What is on its way is lost if it waits until there is no room. Where there is none
			// already, it waits for what comes: to write it now would lose it.
			if v.Free-h.disk.survey().Unwritten >= w.Floor.Of(v.Size)/2 {
				h.work.Go("flush of sessions' disks", h.flush)
			}
		}
		if level != room.Enough {
			h.disk.stopWorks(v, w.Floor.Of(v.Size))
			h.stop(h.writers(func(*Session) bool { return true }), level)
		}
	}
}

// lossesTime is how long a daemon that begins waits for the first look at what disks have lost.
// Where there are no warnings of a disk's file system, that is no time.
const lossesTime = 10 * time.Second

// watchLosses looks at what watch has seen warnings of. It is apart from it, since to write what is on its
// way to a disk takes its time. looked is closed when it has looked once.
func (h diskWatch) watchLosses(looked chan<- struct{}) {
	h.lookForLosses()
	close(looked)
	for {
		select {
		case <-h.disk.warned:
			h.lookForLosses()
		case <-h.ctx.Done():
			return
		}
	}
}

func (h diskWatch) lookForLosses() {
	looked, err := h.disk.losses.Find(h.disk.survey())
	if err != nil {
		h.log.Warn("look for what the disks of sessions have lost", "error", err)
	}
	if looked {
		h.disk.survey()
	}
}

// flush has what sessions wrote take its place on the host's disk while there is some.
func (h diskWatch) flush() {
	if err := loopdisk.Flush(h.disk.dir); err != nil {
		h.log.Warn("write what sessions have written to their disks", "error", err)
	}
}

// lookAtFailed stops what writes to sessions whose disks have failed, and logs those that were
// not failed before.
func (h diskWatch) lookAtFailed(before map[string]bool) map[string]bool {
	failed := map[string]bool{}
	for _, s := range h.live() {
		if diskFails(s) == nil {
			continue
		}
		failed[s.id] = true
		if !before[s.id] {
			s.log.Warn("the session's disk has failed: its calls may only read", "stopped", s.calls.StopWriting(run.ReasonDisk, ""))
		}
	}
	return failed
}

// diskTime is how long looks at the disks of worktrees are waited for, and silentTime after how
// long it is said that one is not watched.
const (
	diskTime   = 100 * time.Millisecond
	silentTime = 10 * time.Second
)

// watchSources is watch for worktrees on other disks. It is apart, and looks at each by itself,
// since one may be of a server that does not answer.
func (h diskWatch) watchSources() {
	watches := map[any]*room.Watch{}
	looks, silent := room.Looks{}, map[string]bool{}
	for wait := time.Duration(0); h.pause(wait); {
		wait = room.Seldom
		state, err := room.At(h.disk.dir)
		if err != nil {
			continue
		}
		on, writers := map[any]room.Volume{}, map[any][]*Session{}
		bound := h.writers(func(s *Session) bool { return s.Row().Worktree.Mode == client.WorktreeBind })
		seen := looks.All(sourcesOf(bound), diskTime)
		silent = h.lookAtSilent(&looks, bound, silent)
		for _, s := range bound {
			if v, ok := seen[s.Row().Worktree.Source]; ok && v.ID != state.ID {
				on[v.ID], writers[v.ID] = v, append(writers[v.ID], s)
			}
		}
		maps.DeleteFunc(watches, func(id any, _ *room.Watch) bool { return writers[id] == nil })
		for id, v := range on {
			w := watches[id]
			if w == nil {
				w = &room.Watch{}
				watches[id] = w
			}
			w.Floor = h.settings.Load().HostFree
			level, next := w.Look(v)
			wait = min(wait, next)
			if level != room.Enough {
				h.stop(writers[id], level)
			}
		}
	}
}

func sourcesOf(sessions []*Session) (paths []string) {
	for _, s := range sessions {
		paths = append(paths, s.Row().Worktree.Source)
	}
	return paths
}

// lookAtSilent logs of which worktrees the disks do not answer, and did before.
func (h diskWatch) lookAtSilent(looks *room.Looks, sessions []*Session, before map[string]bool) map[string]bool {
	silent := map[string]bool{}
	for _, s := range sessions {
		if !looks.Silent(s.Row().Worktree.Source, silentTime) {
			continue
		}
		silent[s.id] = true
		if !before[s.id] {
			s.log.Warn("the disk of the worktree does not answer: nobody sees to it that enough of it stays free", "source", s.Row().Worktree.Source)
		}
	}
	return silent
}

// writers are the sessions with calls that may write, those first that have most on their
// disks, and of equal ones the oldest.
func (h diskWatch) writers(of func(*Session) bool) (all []*Session) {
	bytes := map[*Session]int64{}
	for _, s := range h.live() {
		if s.calls.Writing() && of(s) {
			all = append(all, s)
			if late, ok := s.sandbox().(sandbox.Late); ok {
				bytes[s] = late.Held()
			}
		}
	}
	slices.SortFunc(all, func(a, b *Session) int {
		return cmp.Or(cmp.Compare(bytes[b], bytes[a]), strings.Compare(a.id, b.id))
	})
	return all
}

// stop ends the writing calls of the first of them, or of all where it is tight.
func (h diskWatch) stop(writers []*Session, level room.Level) {
	if level == room.Low && len(writers) > 1 {
		writers = writers[:1]
	}
	for _, s := range writers {
		if n := s.calls.StopWriting(run.ReasonDisk, ""); n > 0 {
			h.disk.stops.Add(1)
			s.log.Warn("calls were stopped: the host's disk is nearly full", "calls", n)
		}
	}
}

// DiskRoom looks at it.
func (m *Manager) DiskRoom() DiskRoom {
	h, set := m.daemon.disk, m.settings.Load()
	r := DiskRoom{Stopped: h.stops.Load(), Overcommit: set.DiskOvercommit}
	if v, err := room.At(h.dir); err == nil {
		r.Free, r.Floor = v.Free, set.HostFree.Of(v.Size)
	}
	s := h.survey()
	r.Promised, r.Unwritten = s.Promised, s.Unwritten
	return r
}
