// Package process pins a process, as the first of a sandbox, so that a pid that is used
// again is never taken for it.
package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/descriptor"
	"github.com/toold/toold/internal/procstat"
	"github.com/toold/toold/internal/sandbox"
)

// Process is one process of this host: its pid by a pidfd, its /proc directory by
// a descriptor. What is read by way of it is that process's or an error. Its
// methods may be called from any goroutine.
type Process struct {
	pid   int
	start uint64
	pidfd *os.File
	dir   *os.File
	done  chan struct{}
	watch sync.WaitGroup
	close func() error
}

// Open pins a process. When start is not 0, it must be the process's start time.
// The error is sandbox.ErrGone when there is no such process. exited, unless nil, is
// called once when the process ends before Close, before Done is closed.
func Open(pid int, start uint64, exited func()) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, Gone(err)
	}
	p := &Process{pid: pid, pidfd: os.NewFile(uintptr(fd), "pidfd"), done: make(chan struct{})}
	if err := p.pin(start); err != nil {
		return nil, errors.Join(err, p.pidfd.Close())
	}
	p.close = sync.OnceValue(p.closeFiles)
	p.watch.Go(func() { p.wait(exited) })
	return p, nil
}

func (p *Process) pin(want uint64) error {
	dir, err := os.OpenFile("/proc/"+strconv.Itoa(p.pid), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return Gone(err)
	}
	p.dir = dir
	p.start, err = startTime(dir)
	if err == nil && want != 0 && want != p.start {
		err = fmt.Errorf("pid %d is another process: %w", p.pid, sandbox.ErrGone)
	}
	// What was read is the process's only if it is alive now.
	if err == nil {
		err = p.Alive()
	}
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	return nil
}

// PID is the process's id on this host, Start its start time in clock ticks since
// the host's.
func (p *Process) PID() int { return p.pid }

// Start: see PID.
func (p *Process) Start() uint64 { return p.start }

// Dir is the process's directory in /proc, which Process closes.
func (p *Process) Dir() *os.File { return p.dir }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Close lets go of the process, which lives on.
func (p *Process) Close() error { return p.close() }

// Alive is sandbox.ErrGone when the process has ended.
func (p *Process) Alive() error {
	dead, err := descriptor.Use(p.pidfd, func(fd int) (bool, error) { return readable(uintptr(fd)), nil })
	if err != nil {
		return err
	}
	if dead {
		return fmt.Errorf("process %d has exited: %w", p.pid, sandbox.ErrGone)
	}
	return nil
}

// Signal sends a signal to the process, and to no other that got its pid.
func (p *Process) Signal(sig unix.Signal) error {
	_, err := descriptor.Use(p.pidfd, func(fd int) (struct{}, error) { return struct{}{}, unix.PidfdSendSignal(fd, sig, nil, 0) })
	return Gone(err)
}

func readable(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

// wait waits in the network poller, so that a thousand sandboxes need no thousand
// threads.
func (p *Process) wait(exited func()) {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return
	}
	dead := false
	err = raw.Read(func(fd uintptr) bool {
		dead = readable(fd)
		return dead
	})
	if err != nil || !dead {
		return // Close
	}
	if exited != nil {
		exited()
	}
	close(p.done)
}

func (p *Process) closeFiles() error {
	err := errors.Join(p.pidfd.Close(), p.dir.Close())
	p.watch.Wait()
	return err
}

// Open opens a file of the process's directory in /proc, magic links included.
func (p *Process) Open(name string, flags int) (*os.File, error) {
	return OpenIn(p.dir, name, flags)
}

// Read reads a file of the process's directory in /proc, at most a mebibyte of it.
func (p *Process) Read(name string) ([]byte, error) { return readIn(p.dir, name) }

// CgroupV2 is the process's cgroup in the v2 hierarchy, as /proc shows it to this
// process.
func (p *Process) CgroupV2() (string, error) {
	data, err := p.Read("cgroup")
	if err != nil {
		return "", Gone(err)
	}
	for line := range strings.Lines(string(data)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path, nil
		}
	}
	return "", errors.New("process has no v2 cgroup")
}

// Thread finds the host's id of the thread that has an id inside the sandbox. Who
// lies about it can name another thread of the process, not one of another.
func (p *Process) Thread(inside int) (int, error) {
	task, err := p.Open("task", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return 0, Gone(err)
	}
	defer task.Close()
	names, err := task.Readdirnames(-1)
	if err != nil {
		return 0, Gone(err)
	}
	for _, name := range names {
		status, err := p.Read(filepath.Join("task", name, "status"))
		if err != nil {
			continue // a thread that ended meanwhile
		}
		if innermostPID(status) == inside {
			return strconv.Atoi(name)
		}
	}
	return 0, fmt.Errorf("no thread of the agent has id %d", inside)
}

// OpenIn opens a file of a directory in /proc, magic links included. Another goroutine may close
// the directory meanwhile.
func OpenIn(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := descriptor.Use(dir, func(at int) (int, error) { return unix.Openat(at, name, flags|unix.O_CLOEXEC, 0) })
	if _, ok := errors.AsType[unix.Errno](err); err != nil && !ok {
		err = fs.ErrClosed // as os.File says it
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func readIn(dir *os.File, name string) ([]byte, error) {
	f, err := OpenIn(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<20))
}

// Gone makes sandbox.ErrGone of what the kernel says of those that have ended, and of what is said
// of a Process that was let go of.
func Gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("%w: %w", sandbox.ErrGone, err)
	}
	return err
}

func startTime(dir *os.File) (uint64, error) {
	stat, err := readIn(dir, "stat")
	if err != nil {
		return 0, Gone(err)
	}
	n, err := procstat.Number(stat, procstat.Start)
	return uint64(n), err
}

// innermostPID is the last number of the NSpid line.
func innermostPID(status []byte) int {
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(list)
			if len(fields) < 2 {
				return 0
			}
			n, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}
