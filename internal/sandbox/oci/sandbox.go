package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// Sandbox is one live container.
type Sandbox struct {
	d     *Driver
	rec   *record
	pidfd *os.File
	proc  *os.File // /proc/PID of the agent
	stdio *os.File // what the agent prints; nil after Adopt
	done  chan struct{}
	watch sync.WaitGroup
	close func() error
}

// pid reads the pid file that the runtime wrote.
func (b bundle) pid() (int, error) {
	pid, err := strconv.Atoi(readFile(b.path("pid")))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("the runtime left no pid in %s", b.path("pid"))
	}
	return pid, nil
}

// open pins the agent: pid by pidfd, its /proc directory by descriptor. That it
// is the session's process is seen from its cgroup, where nothing else is born.
func (d *Driver) open(pid int, rec *record, stdio *os.File) (*Sandbox, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, gone(err)
	}
	sb := &Sandbox{d: d, rec: rec, stdio: stdio, pidfd: os.NewFile(uintptr(fd), "pidfd"), done: make(chan struct{})}
	if err := sb.pin(pid); err != nil {
		return nil, errors.Join(err, sb.pidfd.Close())
	}
	sb.close = sync.OnceValue(sb.closeFiles)
	sb.watch.Go(sb.wait)
	return sb, nil
}

func (s *Sandbox) pin(pid int) error {
	dir := "/proc/" + strconv.Itoa(pid)
	proc, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return gone(err)
	}
	s.proc = proc
	start, err := startTime(proc)
	if err == nil && s.rec.PIDStart != 0 && s.rec.PIDStart != start {
		err = fmt.Errorf("pid %d is another process: %w", pid, sandbox.ErrGone)
	}
	if err == nil {
		err = s.d.cg.owns(s.rec.SessionID, proc)
	}
	// All that was read is the agent's only if the agent is alive now.
	if err == nil && s.exited() {
		err = fmt.Errorf("agent has exited: %w", sandbox.ErrGone)
	}
	if err != nil {
		return errors.Join(err, proc.Close())
	}
	s.rec.PID, s.rec.PIDStart = pid, start
	return nil
}

// owns checks that a process is in the session's cgroup on v2.
func (c *cgroups) owns(id string, proc *os.File) error {
	path, err := v2path(proc)
	if err != nil {
		return err
	}
	if within(path, c.path(id)) || within(path, c.path(id)+runtimeSuffix) {
		return nil
	}
	return fmt.Errorf("process is not in the session's cgroup: %w", sandbox.ErrGone)
}

// v2path is the cgroup of a process on v2.
func v2path(proc *os.File) (string, error) {
	data, err := readIn(proc, "cgroup")
	if err != nil {
		return "", gone(err)
	}
	for line := range strings.Lines(string(data)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path, nil
		}
	}
	return "", errors.New("process has no v2 cgroup")
}

func gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", sandbox.ErrGone, err)
	}
	return err
}

// startTime is field 22 of /proc/PID/stat.
func startTime(proc *os.File) (uint64, error) {
	data, err := readIn(proc, "stat")
	if err != nil {
		return 0, gone(err)
	}
	// The second field is the command, which may hold anything.
	i := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[i+1:]))
	if i < 0 || len(fields) < 20 {
		return 0, errors.New("/proc/PID/stat is too short")
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// readIn reads a file of /proc/PID.
func readIn(proc *os.File, name string) ([]byte, error) {
	f, err := openIn(proc, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<20))
}

// exited says whether the agent is dead. (File.Fd would take the descriptor away
// from the network poller.)
func (s *Sandbox) exited() bool {
	raw, err := s.pidfd.SyscallConn()
	dead := false
	if err == nil {
		err = raw.Control(func(fd uintptr) { dead = readable(fd) })
	}
	return err == nil && dead
}

func readable(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

// wait closes done when the agent exits. It waits in the network poller, so a
// thousand sandboxes need no thousand threads.
func (s *Sandbox) wait() {
	raw, err := s.pidfd.SyscallConn()
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
	if s.stdio != nil {
		if text := printed(s.stdio); text != "" {
			s.d.log.Warn("agent has exited with a message", "sandbox", s.rec.SessionID, "printed", text)
		}
	}
	close(s.done)
}

func (s *Sandbox) closeFiles() error {
	err := errors.Join(s.pidfd.Close(), s.proc.Close())
	s.watch.Wait()
	if s.stdio != nil {
		err = errors.Join(err, s.stdio.Close())
	}
	return err
}

// Record implements sandbox.Sandbox.
func (s *Sandbox) Record() sandbox.Record { return s.rec.Record }

// Dial implements sandbox.Sandbox.
func (s *Sandbox) Dial(ctx context.Context) (*net.UnixConn, error) {
	c, err := dial(ctx, s.d.bundle(s.rec.SessionID))
	if err != nil {
		return nil, fmt.Errorf("dial sandbox %s: %w", s.rec.SessionID, err)
	}
	return c, nil
}

// Attach implements sandbox.Sandbox.
func (s *Sandbox) Attach(_ context.Context, forkTID int) error {
	if len(s.d.cg.v1limited()) == 0 {
		return nil
	}
	tid, err := s.hostTID(forkTID)
	if err != nil {
		return fmt.Errorf("sandbox %s: find fork thread: %w", s.rec.SessionID, err)
	}
	return s.d.cg.attachThread(s.rec.SessionID, tid)
}

// hostTID finds the agent's thread that has this id inside. A lying agent can
// name another of its own threads, not one of another process.
func (s *Sandbox) hostTID(inside int) (int, error) {
	task, err := openIn(s.proc, "task", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return 0, gone(err)
	}
	defer task.Close()
	names, err := task.Readdirnames(-1)
	if err != nil {
		return 0, gone(err)
	}
	for _, name := range names {
		status, err := readIn(s.proc, filepath.Join("task", name, "status"))
		if err != nil {
			continue // a thread that ended meanwhile
		}
		if innermostPID(status) == inside {
			return strconv.Atoi(name)
		}
	}
	return 0, fmt.Errorf("no thread of the agent has id %d", inside)
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

// CallCgroup implements sandbox.Sandbox. The descriptor is a mount of its own:
// a plain one would show the directories above by "..".
func (s *Sandbox) CallCgroup() (*os.File, error) {
	f, err := s.d.cg.openTools(s.rec.SessionID)
	if err != nil {
		return nil, fmt.Errorf("call cgroup of sandbox %s: %w", s.rec.SessionID, err)
	}
	return f, nil
}

// Notes implements sandbox.Sandbox.
func (s *Sandbox) Notes() []string { return append(s.d.cg.notes(), s.rec.Notes...) }

// IDMap implements sandbox.Sandbox.
func (s *Sandbox) IDMap() string { return s.rec.IDMap }

// Usage implements sandbox.Sandbox. Calls and DiskBytes are not the driver's to
// know.
func (s *Sandbox) Usage(context.Context) (client.Usage, error) {
	if _, err := os.Stat(s.d.cg.kill(s.rec.SessionID)); err != nil {
		return client.Usage{}, fmt.Errorf("usage of sandbox %s: %w", s.rec.SessionID, gone(err))
	}
	return s.d.cg.usage(s.rec.SessionID), nil
}

// IOBytes implements sandbox.Meter.
func (s *Sandbox) IOBytes() int64 { return s.d.cg.ioBytes(s.rec.SessionID) }

// OOMKills implements sandbox.Sandbox.
func (s *Sandbox) OOMKills() int64 { return s.d.cg.oomKills(s.rec.SessionID) }

// PIDsHits implements sandbox.Sandbox.
func (s *Sandbox) PIDsHits() int64 { return s.d.cg.pidsHits(s.rec.SessionID) }

// Done implements sandbox.Sandbox.
func (s *Sandbox) Done() <-chan struct{} { return s.done }

// Close implements sandbox.Sandbox.
func (s *Sandbox) Close() error { return s.close() }
