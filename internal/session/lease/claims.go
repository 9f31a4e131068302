package lease

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
)

// claims keep the daemons of a host from giving out one uid range twice. They are a
// file that all daemons open, with a byte for each range. The kernel lets one daemon
// lock a byte and unlocks it when that daemon is gone; the byte is 1 from the claim
// until the range is given back, so that a range with a 1 and no lock is one whose
// daemon was killed: its session may live on.
type claims struct{ file *os.File }

// openClaims opens the file, which nobody else may be able to open: who holds
// locks on it could keep a daemon from making sessions.
func openClaims(path string) (*claims, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil {
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok || !fi.Mode().IsRegular() || int(st.Uid) != os.Geteuid() || fi.Mode().Perm()&0o077 != 0 {
			err = &fs.PathError{Op: "open", Path: path, Err: errors.New("it must be a regular file of toold's user that nobody else can open; remove it")}
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &claims{f}, nil
}

func at(base uint32) int64 { return int64(base / sandbox.RangeSize) }

// lockAt is one of fcntl's operations on the lock of a range. Locks belong to the open
// file, so that two daemons in one process are two.
func (c *claims) lockAt(op int, kind int16, base uint32) (*unix.Flock_t, error) {
	l := unix.Flock_t{Type: kind, Start: at(base), Len: 1}
	return &l, unix.FcntlFlock(c.file.Fd(), op, &l)
}

// look says whether another daemon has a range, and if not, whether one that was
// killed has left it.
func (c *claims) look(base uint32) (taken, left bool, err error) {
	l, err := c.lockAt(unix.F_OFD_GETLK, unix.F_WRLCK, base)
	if err != nil || l.Type != unix.F_UNLCK {
		return true, false, err
	}
	mark := make([]byte, 1)
	if _, err := c.file.ReadAt(mark, at(base)); err != nil && !errors.Is(err, io.EOF) {
		return true, false, err
	}
	return false, mark[0] != 0, nil
}

// take claims a range. It is false when another daemon was faster.
func (c *claims) take(base uint32) (bool, error) {
	if _, err := c.lockAt(unix.F_OFD_SETLK, unix.F_WRLCK, base); errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if _, err := c.file.WriteAt([]byte{1}, at(base)); err != nil {
		_, unlocked := c.lockAt(unix.F_OFD_SETLK, unix.F_UNLCK, base)
		return false, errors.Join(err, unlocked)
	}
	return true, nil
}

// drop gives a range back. A mark that cannot be removed is no harm: who takes the
// range next looks for processes.
func (c *claims) drop(base uint32) {
	_, _ = c.file.WriteAt([]byte{0}, at(base))
	_, _ = c.lockAt(unix.F_OFD_SETLK, unix.F_UNLCK, base)
}
