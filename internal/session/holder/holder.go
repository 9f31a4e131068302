// Package holder watches the process that a session ends with, the holder of its lease.
package holder

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
)

// Process is one that is watched.
type Process struct {
	proc *process.Process // nil for one that is gone
}

// Watch opens a process and says whose it is, by its real uid, and when it began, in clock
// ticks since boot.
func Watch(pid int) (p *Process, owner uint32, start uint64, err error) {
	proc, err := process.Open(pid, 0, nil)
	if errors.Is(err, sandbox.ErrGone) {
		err = unix.ESRCH // it is no sandbox's
	}
	if err != nil {
		return nil, 0, 0, err
	}
	status, err := proc.Read("status")
	uids := process.UIDs(string(status))
	if err == nil && len(uids) == 0 {
		err = errors.New("it has no uid")
	}
	if err != nil {
		return nil, 0, 0, errors.Join(err, proc.Close())
	}
	return &Process{proc}, uids[0], proc.Start(), nil
}

// Again watches a process that was watched before, if it is still the one that began at
// start. It gives one that is gone otherwise.
func Again(pid int, start uint64) *Process {
	proc, err := process.Open(pid, start, nil)
	if err != nil {
		return &Process{}
	}
	return &Process{proc}
}

var gone = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// Gone is closed when the process has ended; nil, which never is, for nil.
func (p *Process) Gone() <-chan struct{} {
	switch {
	case p == nil:
		return nil
	case p.proc == nil:
		return gone
	}
	return p.proc.Done()
}

// Close stops watching. It may be called on nil and more than once.
func (p *Process) Close() {
	if p != nil && p.proc != nil {
		_ = p.proc.Close()
	}
}
