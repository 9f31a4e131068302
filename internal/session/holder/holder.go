// Package holder watches the process that a session ends with, the holder of its lease.
package holder

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/session/lease"
)

// Process is one that is watched. Its descriptor names that process for good: the
// number may be given to another one, the descriptor never is.
type Process struct {
	f    *os.File
	gone chan struct{} // closed when the process has ended
	work sync.WaitGroup
}

// Watch opens a process and says whose it is, by its real uid, and when it began, in clock
// ticks since boot.
func Watch(pid int) (p *Process, owner uint32, start uint64, err error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, 0, 0, err
	}
	p = &Process{f: os.NewFile(uintptr(fd), "pidfd"), gone: make(chan struct{})}
	owner, start, err = processOf(pid)
	if err == nil {
		// Alive after its files were read: they were this process's files.
		err = unix.PidfdSendSignal(fd, 0, nil, 0)
	}
	if err != nil && !errors.Is(err, unix.EPERM) {
		_ = p.f.Close()
		return nil, 0, 0, err
	}
	p.work.Go(p.watch)
	return p, owner, start, nil
}

// Again watches a process that was watched before, if it is still the one that began at
// start. It gives one that is gone otherwise.
func Again(pid int, start uint64) *Process {
	p, _, began, err := Watch(pid)
	if err == nil && began == start {
		return p
	}
	p.Close()
	p = &Process{gone: make(chan struct{})}
	close(p.gone)
	return p
}

// Gone is closed when the process has ended; nil, which never is, for nil.
func (p *Process) Gone() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.gone
}

// watch waits for the end of the process without a thread of its own.
func (p *Process) watch() {
	raw, err := p.f.SyscallConn()
	if err != nil {
		return
	}
	ended := false
	_ = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		ended = n == 1 && err == nil
		return ended
	})
	if ended {
		close(p.gone)
	}
}

// Close stops watching. It may be called on nil and more than once.
func (p *Process) Close() {
	if p == nil {
		return
	}
	_ = p.f.Close()
	p.work.Wait()
}

// processOf reads a process's real uid and its start time in clock ticks.
func processOf(pid int) (uid uint32, start uint64, err error) {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0, 0, err
	}
	uids := lease.UIDs(string(status))
	if len(uids) == 0 {
		return 0, 0, errors.New("it has no uid")
	}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// The name, in parentheses, may hold anything; the start time is the 20th
	// field after it.
	_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return 0, 0, errors.New("its stat file is not readable")
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return uids[0], start, err
}
