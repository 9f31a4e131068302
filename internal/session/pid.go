package session

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/session/lease"
)

// pidfd watches one process. Its descriptor names that process for good: the
// number may be given to another one, the descriptor never is.
type pidfd struct {
	f    *os.File
	gone chan struct{} // closed when the process has ended
	work sync.WaitGroup
}

// openPID watches a process that holds the lease of a session. It must belong
// to the user who asks, unless that is an administrator: else a session would
// tell when the processes of others end.
func openPID(pid int, uid uint32, admin bool) (*pidfd, uint64, error) {
	p, owner, start, err := watchPID(pid)
	if err != nil {
		return nil, 0, &client.Error{
			Code:    client.CodeInvalidRequest,
			Message: fmt.Sprintf("lease_pid %d: %s", pid, plain.Cause(err)),
			Hint:    "give the id of a process that runs",
		}
	}
	if owner != uid && !admin {
		p.close()
		return nil, 0, &client.Error{
			Code:    client.CodeForbidden,
			Message: fmt.Sprintf("lease_pid %d is not a process of yours", pid),
			Hint:    "give the id of a process that runs with your uid",
		}
	}
	return p, start, nil
}

// watchPID opens a process and says whose it is and when it began.
func watchPID(pid int) (p *pidfd, owner uint32, start uint64, err error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, 0, 0, err
	}
	p = &pidfd{f: os.NewFile(uintptr(fd), "pidfd"), gone: make(chan struct{})}
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

// watch waits for the end of the process without a thread of its own.
func (p *pidfd) watch() {
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

// close stops watching. It may be called on nil and more than once.
func (p *pidfd) close() {
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

// leaseGone is closed when the process that holds the session's lease has
// ended; nil, which never is, without a lease.
func (s *Session) leaseGone() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pidfd == nil {
		return nil
	}
	return s.pidfd.gone
}
