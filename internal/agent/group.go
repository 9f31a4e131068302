package agent

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// group is all processes of one program: what it started, and what those did.
type group interface {
	// fd is the cgroup that the program is started in, -1 without.
	fd() int
	// pids lists the processes that are alive, apart from the leader's zombie.
	pids() []int
	// empty reports whether none is alive.
	empty() bool
	// kill ends all of them at once.
	kill()
	// bill adds what the kernel has counted for all of them together.
	bill(u *usage)
	// remove lets go of the group; all processes have ended or been killed.
	remove()
}

// usage is the bill of one program.
type usage struct {
	cpu    time.Duration
	memory int64 // bytes, the most at one time
	io     int64 // bytes read and written
}

// groups makes groups.
type groups struct {
	parent int // descriptor of the directory for cgroups, -1: none
	last   atomic.Int64

	mu   sync.Mutex // guards left
	left []string   // that could not be removed yet: their processes hang in the kernel
}

func (g *groups) make() (group, error) {
	if g.parent < 0 {
		return &sessionGroup{}, nil
	}
	g.tidy()
	name := "call-" + strconv.FormatInt(g.last.Add(1), 10)
	if err := unix.Mkdirat(g.parent, name, 0o755); err != nil {
		return nil, fmt.Errorf("make cgroup %s: %w", name, err)
	}
	dir, err := unix.Openat(g.parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Unlinkat(g.parent, name, unix.AT_REMOVEDIR)
		return nil, fmt.Errorf("open cgroup %s: %w", name, err)
	}
	c := &cgroup{of: g, parent: g.parent, name: name, dir: dir}
	// Where it is not there, empty has to find out in another way.
	c.events, _ = unix.Openat(dir, "cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return c, nil
}

// tidy tries again to remove what is left of earlier programs. The kernel bounds
// the number of cgroups: without it, no program could start some day.
func (g *groups) tidy() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = slices.DeleteFunc(g.left, func(name string) bool {
		err := unix.Unlinkat(g.parent, name, unix.AT_REMOVEDIR)
		return err == nil || err == unix.ENOENT
	})
}

// keep notes a cgroup that could not be removed.
func (g *groups) keep(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = append(g.left, name)
}

// cgroup is a group as the kernel keeps it: nothing that a program does takes a
// process out of it.
type cgroup struct {
	of     *groups
	parent int
	name   string
	dir    int
	events int // cgroup.events, -1 where there is none
	gone   bool
}

func (c *cgroup) fd() int { return c.dir }

func (c *cgroup) read(file string, most int) []byte {
	fd, err := unix.Openat(c.dir, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	buf := make([]byte, most)
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || m <= 0 {
			break
		}
		n += m
	}
	return buf[:n]
}

func (c *cgroup) pids() []int {
	var pids []int
	for line := range bytes.Lines(c.read("cgroup.procs", 1<<20)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(line))); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (c *cgroup) empty() bool {
	if c.gone {
		return true
	}
	if c.events < 0 {
		return c.unlink()
	}
	var buf [64]byte
	n, err := unix.Pread(c.events, buf[:], 0)
	return err == nil && bytes.HasPrefix(buf[:n], []byte("populated 0\n"))
}

// unlink removes the cgroup, which the kernel does only when nobody alive is in
// it.
func (c *cgroup) unlink() bool {
	if !c.gone && unix.Unlinkat(c.parent, c.name, unix.AT_REMOVEDIR) == nil {
		c.gone = true
	}
	return c.gone
}

func (c *cgroup) kill() {
	fd, err := unix.Openat(c.dir, "cgroup.kill", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte("1"))
		_ = unix.Close(fd)
	}
	if err == nil {
		return
	}
	// Kernels before 5.14 have no cgroup.kill. Whoever forks meanwhile is caught
	// by the next round.
	for range 100 {
		pids := c.pids()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func (c *cgroup) bill(u *usage) {
	if c.gone {
		return
	}
	if usec := statField(c.read("cpu.stat", 4096), "usage_usec"); usec > 0 {
		u.cpu = max(u.cpu, time.Duration(usec)*time.Microsecond)
	}
	if peak, err := strconv.ParseInt(strings.TrimSpace(string(c.read("memory.peak", 64))), 10, 64); err == nil {
		u.memory = max(u.memory, peak)
	}
}

func statField(stat []byte, name string) int64 {
	for line := range bytes.Lines(stat) {
		if v, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(string(v)), 10, 64)
			return n
		}
	}
	return 0
}

// vanish waits for killed processes to be gone, which takes the kernel a moment.
func vanish(g group) {
	for wait := 100 * time.Microsecond; !g.empty() && wait < 2*time.Second; wait *= 2 {
		time.Sleep(wait)
	}
}

// remove leaves a cgroup whose processes do not end to the next programs.
func (c *cgroup) remove() {
	vanish(c)
	if !c.unlink() {
		c.of.keep(c.name)
	}
	if c.events >= 0 {
		_ = unix.Close(c.events)
	}
	_ = unix.Close(c.dir)
	c.dir, c.events = -1, -1
}

// sessionGroup stands in where there are no cgroups: it finds processes by the
// session id of their leader. A process that starts a session of its own gets
// away from it. That is weaker, and the agent says so in its welcome.
type sessionGroup struct{ sid int }

func (s *sessionGroup) fd() int     { return -1 }
func (s *sessionGroup) bill(*usage) {}
func (s *sessionGroup) remove()     {}

func (s *sessionGroup) empty() bool { return len(s.pids()) == 0 }

func (s *sessionGroup) kill() {
	for range 100 {
		pids := s.pids()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *sessionGroup) pids() []int {
	if s.sid <= 1 {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 1 {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid pgrp session …; the name may hold anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 3 && fields[0][0] != 'Z' && string(fields[3]) == strconv.Itoa(s.sid) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
