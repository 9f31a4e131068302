package session

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/session/room"
)

// memoryTime is how long the sessions are asked what they have, and how long a session whose calls
// were stopped has to give it back before another one's are.
const memoryTime = 2 * time.Second

// hostMemory is how much of the host's memory is left for sessions.
type hostMemory struct {
	look     func() (room.Volume, error) // room.Memory; tests replace it
	patience time.Duration               // memoryTime; in tests more
	level    atomic.Int32                // a room.Level
	stops    atomic.Int64                // sessions whose calls were stopped, for sockets and locks too
}

const freesMemory = "wait until calls have ended, end sessions (toolctl session rm), or have memory freed on the host"

// admits refuses a call that may write while hardly anything is left.
func (h *hostMemory) admits() error {
	if room.Level(h.level.Load()) != room.Tight {
		return nil
	}
	return fault.Overloaded.Errorf("the host's memory is nearly full: calls that may write are refused until there is some again").
		Next(freesMemory)
}

// accepts refuses a session while little is left.
func (h *hostMemory) accepts(set *Settings) error {
	v, err := h.look()
	if err != nil {
		return err
	}
	if !set.HostMemory.Low(v) {
		return nil
	}
	return fault.Overloaded.Errorf("no new session now: only %s of the host's memory are available, and %s must stay (daemon.host_memory)",
		inMiB(v.Free), inMiB(set.HostMemory.Of(v.Size))).Next(freesMemory)
}

// MemoryRoom is how much of the host's memory is left, in bytes.
type MemoryRoom struct {
	Free, Size, Floor int64
	Stopped           int64 // sessions whose calls were stopped for it, so far
}

// Checks says for doctor how much is left.
func (r MemoryRoom) Checks() []client.Check {
	c := client.Check{
		Group: "host", Name: "memory available", Status: client.CheckOK,
		Detail: fmt.Sprintf("%s of %s, of which %s must stay; calls are stopped and new sessions refused when half as much again is left", inMiB(r.Free), inMiB(r.Size), inMiB(r.Floor)),
	}
	if r.Floor <= 0 {
		c.Status, c.Detail, c.Hint = client.CheckWarn, fmt.Sprintf("%s of %s, and nothing sees to it that some stay", inMiB(r.Free), inMiB(r.Size)), "set daemon.host_memory"
	} else if r.Free < r.Floor*3/2 {
		c.Status, c.Hint = client.CheckFail, freesMemory
	}
	return []client.Check{c}
}

// inMiB leaves out what is below a mebibyte, which nobody wants to read.
func inMiB(bytes int64) client.Size { return client.Size(bytes >> 20 << 20) }
