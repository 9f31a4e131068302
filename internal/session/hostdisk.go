package session

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/session/room"
)

// hostDisk is how much room sessions have on the disk of the state directory.
type hostDisk struct {
	dir   string       // which disks lie below
	level atomic.Int32 // a room.Level
	stops atomic.Int64 // sessions whose calls were stopped

	mu       sync.Mutex // guards the fields below: bytes of disks
	surveyed int64      // that there were at the last survey
	pending  int64      // that are being made
	settled  int64      // that were made, or came to nothing, since the last survey began

	works map[*context.CancelCauseFunc]struct{} // the daemon's own writing, guarded by mu

	last   atomic.Pointer[loopdisk.Survey]
	losses loopdisk.Losses
	warned chan struct{} // has something where a survey saw warnings that losses have not seen; capacity 1
}

func newHostDisk(dir string) *hostDisk {
	return &hostDisk{dir: dir, losses: loopdisk.Losses{Dir: dir}, warned: make(chan struct{}, 1)}
}

// promise is how large the disks of a session are: that of its home directory, which comes
// late, and the others.
type promise struct{ home, rest client.Size }

// survey looks at the disks that there are.
func (h *hostDisk) survey() loopdisk.Survey {
	h.mu.Lock()
	seen := h.settled
	h.mu.Unlock()
	s := loopdisk.Look(h.dir)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settled -= seen
	h.surveyed = s.Promised
	h.last.Store(&s)
	return s
}

// promisedLocked is how large the disks of all sessions are together, and may count one twice
// until the next survey.
func (h *hostDisk) promisedLocked() client.Size {
	return client.Size(h.surveyed + h.pending + h.settled)
}

// promise counts disks of so many bytes, which are being made. They count until a survey that
// begins after kept was called.
func (h *hostDisk) promise(n client.Size) (kept func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.promiseLocked(n)
}

func (h *hostDisk) promiseLocked(n client.Size) (kept func()) {
	h.pending += int64(n)
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.pending -= int64(n)
		h.settled += int64(n)
	})
}

// admits refuses a call that may write while hardly anything is free.
func (h *hostDisk) admits() error {
	if room.Level(h.level.Load()) != room.Tight {
		return nil
	}
	return fault.Overloaded.Errorf("the host's disk is nearly full: calls that may write are refused until there is room again").
		Next(freesSpace)
}

// failed reports whether a disk of a session has failed, as of the last survey. others gives the
// names of those that are not named after it.
func (h *hostDisk) failed(session string, others func() []string) bool {
	s := h.last.Load()
	return s != nil && len(s.Failed) > 0 && (s.Has(session) || s.Has(session+"-root", others()...))
}

// room refuses the daemon's own writers so many bytes that would leave less than twice what must
// stay free (daemon.host_free). All that the daemon writes for somebody asks here first: it is
// no call, and must not have the calls of others stopped (see room.Level), which looks at how fast
// the disk fills too.
func (h *hostDisk) room(set *Settings, bytes int64) error {
	v, err := room.At(h.dir)
	if err != nil {
		return err
	}
	floor := set.HostFree.Of(v.Size)
	if floor <= 0 || v.Free-bytes >= 2*floor {
		return nil
	}
	takes := "this would take more of them"
	if bytes > 0 {
		takes = fmt.Sprintf("this takes %s of them", client.Size(bytes))
	}
	return fault.Overloaded.Errorf("the host's disk is nearly full: only %s are free, %s must stay (daemon.host_free), and %s",
		client.Size(v.Free), client.Size(floor), takes).
		Next(freesSpace + "; then try again")
}

// begin is room for work of which nobody knows before how much it writes; bytes is what is known of
// it, at least. ctx ends as soon as the disk is so full that calls that write are stopped.
func (h *hostDisk) begin(ctx context.Context, set *Settings, bytes int64) (context.Context, func(), error) {
	if err := h.room(set, bytes); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.works == nil {
		h.works = map[*context.CancelCauseFunc]struct{}{}
	}
	h.works[&cancel] = struct{}{}
	return ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.works, &cancel)
		cancel(nil)
	}, nil
}

// stopWorks ends the daemon's own writing.
func (h *hostDisk) stopWorks(v room.Volume, floor int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for cancel := range h.works {
		(*cancel)(fault.Overloaded.Errorf("the host's disk is nearly full: %s are free, and %s must stay (daemon.host_free): this was stopped before it was done",
			client.Size(v.Free), client.Size(floor)).Next(freesSpace + "; then try again"))
	}
}

const freesSpace = "end sessions (toolctl session rm --discard), remove images (toolctl image rm), look for leftovers (toolctl gc), or have space freed on the host"

// accepts refuses a session of which disks would take so many bytes, or promises those of them
// that are made at once. tree has a worktree that it writes to, nil for none.
func (h *hostDisk) accepts(set *Settings, p promise, tree *room.Volume) (kept func(), err error) {
	v, err := room.At(h.dir)
	if err != nil {
		return nil, err
	}
	if err := enough(set, v, "the host's disk"); err != nil {
		return nil, err
	}
	if tree != nil {
		if err := enough(set, *tree, "the disk of the worktree"); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock() // two that come at once are not both given the same room
	if why := room.Overcommitted(v, h.promisedLocked(), p.home+p.rest, set.DiskOvercommit); p.home+p.rest > 0 && why != "" {
		return nil, fault.Overloaded.Errorf("no new session now: %s", why).
			Next("ask for less (--limit disk=), or " + freesSpace + "; an admin can raise sandbox.disk_overcommit")
	}
	return h.promiseLocked(p.rest), nil
}

func enough(set *Settings, v room.Volume, what string) error {
	if floor := set.HostFree.Of(v.Size); set.HostFree.Low(v) {
		return fault.Overloaded.Errorf("no new session now: only %s are free on %s, and %s must stay (daemon.host_free)", client.Size(v.Free), what, client.Size(floor)).
			Next(freesSpace)
	}
	return nil
}

// DiskRoom is how much room there is for the disks of sessions, in bytes.
type DiskRoom struct {
	Free, Floor         int64
	Promised, Unwritten int64
	Stopped             int64 // sessions whose calls were stopped for it, so far
	Overcommit          float64
}

// Checks says for doctor how much room there is.
func (r DiskRoom) Checks() []client.Check {
	free := client.Check{
		Group: "disk", Name: "free on the host", Status: client.CheckOK,
		Detail: fmt.Sprintf("%s, of which %s must stay; writers are stopped and new sessions refused when half as much again is left", client.Size(r.Free), client.Size(r.Floor)),
	}
	if r.Free < r.Floor*3/2 {
		free.Status, free.Hint = client.CheckFail, freesSpace
	}
	promised := client.Check{
		Group: "disk", Name: "promised to sessions", Status: client.CheckOK,
		Detail: fmt.Sprintf("disks of %s, at most %v times what is free", client.Size(r.Promised), r.Overcommit),
	}
	if float64(r.Promised) > r.Overcommit*float64(r.Free) {
		promised.Status, promised.Hint = client.CheckWarn, "new sessions are refused: "+freesSpace
	}
	return []client.Check{free, promised}
}
