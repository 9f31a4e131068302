package lease

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/hostlock"
	"github.com/toold/toold/internal/sandbox"
)

// claims keep the daemons of a host from giving out one uid range twice. They are a
// file that all daemons open, with a byte for each range. The kernel lets one daemon
// lock a byte and unlocks it when that daemon is gone; the byte is 1 from the claim
// until the range is given back, so that a range with a 1 and no lock is one whose
// daemon was killed: its session may live on.
type claims struct{ hostlock.File }

func at(base uint32) int64 { return int64(base / sandbox.RangeSize) }

// look says whether another daemon has a range, and if not, whether one that was
// killed has left it.
func (c claims) look(base uint32) (taken, left bool, err error) {
	if taken, err = c.Locked(at(base)); err != nil || taken {
		return true, false, err
	}
	mark := make([]byte, 1)
	if _, err := c.ReadAt(mark, at(base)); err != nil && !errors.Is(err, io.EOF) {
		return true, false, err
	}
	return false, mark[0] != 0, nil
}

// take claims a range. It is false when another daemon was faster.
func (c claims) take(base uint32) (bool, error) {
	if ok, err := c.Lock(unix.F_WRLCK, at(base)); err != nil || !ok {
		return false, err
	}
	if _, err := c.WriteAt([]byte{1}, at(base)); err != nil {
		_, unlocked := c.Lock(unix.F_UNLCK, at(base))
		return false, errors.Join(err, unlocked)
	}
	return true, nil
}

// drop gives a range back. A mark that cannot be removed is no harm: who takes the
// range next looks for processes.
func (c claims) drop(base uint32) {
	_, _ = c.WriteAt([]byte{0}, at(base))
	_, _ = c.Lock(unix.F_UNLCK, at(base))
}
