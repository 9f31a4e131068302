// Package room judges how much of a host's disk, or memory, is left for sessions: the floor that must
// stay free, and how much of a disk may be promised beyond what there is.
package room

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// Floor is what must stay free of a file system: bytes, or percent of its size. Zero is none.
type Floor struct {
	Bytes   int64
	Percent float64
}

// most is the part of a file system that a floor in bytes takes at most: it is for disks, and
// would leave nothing of a small one.
const most = 8

// Of gives the floor of a file system in bytes.
func (f Floor) Of(size int64) int64 {
	if f.Percent > 0 {
		return int64(float64(size) * f.Percent / 100)
	}
	return min(f.Bytes, size/most)
}

// Volume is a file system as it was when it was looked at.
type Volume struct {
	Free, Size int64
	ID         unix.Fsid
}

// At looks at the file system of a path.
func At(path string) (Volume, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Volume{}, fmt.Errorf("look at the disk of %s: %w", path, err)
	}
	return From(&st), nil
}

// From is that of a file system which was looked at.
func From(st *unix.Statfs_t) Volume {
	return Volume{Free: int64(st.Bavail) * st.Bsize, Size: int64(st.Blocks) * st.Bsize, ID: st.Fsid}
}

// Level says how near a file system is to its floor.
type Level int32

// The levels. They begin above the floor, since a writer does not end at once.
const (
	Enough Level = iota
	Low          // half a floor above it: writers are stopped, one after the other
	Tight        // a quarter above it: all of them are, and none begins
)

// Low reports whether so little is free that nothing new should begin.
func (f Floor) Low(v Volume) bool { floor := f.Of(v.Size); return v.Free < floor+floor/2 }

// How often a file system is looked at: far from its floor, and at it.
const (
	Seldom = 500 * time.Millisecond
	Often  = 20 * time.Millisecond
)

// fastest is how many bytes a second can be taken from what is free, as far as one plans for it.
const fastest = 4 << 30

// pause is how long a file system can be left alone that has so many bytes above its floor: for
// half of the time that it takes to write them.
func pause(above int64) time.Duration {
	half := time.Duration(float64(above) / fastest / 2 * float64(time.Second))
	return min(Seldom, max(Often, half))
}

// Watch follows one file system.
type Watch struct {
	Floor Floor
	// Unwritten says how many bytes of those that are free will be taken by what is on its way
	// to them; nil is none. It is asked where less than Seldom is left.
	Unwritten func() int64

	free int64 // at the last look, 0 before that
	wait time.Duration
}

// Look judges the file system as it is now, and says when to look again. What is free counts as
// it will be at the next look, if it goes on to fall as it did.
func (w *Watch) Look(v Volume) (Level, time.Duration) {
	floor := w.Floor.Of(v.Size)
	if floor <= 0 {
		return Enough, Seldom
	}
	free := v.Free
	if pause(free-floor) < Seldom && w.Unwritten != nil {
		free -= w.Unwritten()
	}
	next, expected := pause(free-floor), free
	if fall := w.free - free; w.wait > 0 && fall > 0 {
		expected -= 2 * int64(float64(fall)*float64(next)/float64(w.wait))
	}
	w.free, w.wait = free, next
	switch {
	case expected < floor+floor/4:
		return Tight, next
	case expected < floor+floor/2:
		return Low, next
	}
	return Enough, next
}

// Overcommitted says why a disk of so many bytes is too much, when promised are those that
// there are already; "" where it is not.
func Overcommitted(v Volume, promised, more client.Size, times float64) string {
	if times <= 0 || float64(promised+more) <= times*float64(v.Free) {
		return ""
	}
	return fmt.Sprintf("sessions have disks of %s together, this one would have %s, and that is more than %v times the %s that are free",
		promised, more, times, client.Size(v.Free))
}
