package agent

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
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

	mu    sync.Mutex // guards the fields below
	left  []string   // that could not be removed yet: their processes hang in the kernel
	spare *cgroup    // of an earlier program, empty, for the next one
}

func (g *groups) make() (group, error) {
	if g.parent < 0 {
		return &sessionGroup{}, nil
	}
	if c := g.tidy(); c != nil {
		return c, nil
	}
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
	c.peak = unix.Faccessat(dir, "memory.peak", unix.R_OK, 0) == nil
	return c, nil
}

// tidy takes the spare, and tries again to remove what is left of earlier
// programs. The kernel bounds the number of cgroups: without it, no program could
// start some day.
func (g *groups) tidy() *cgroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.spare
	g.spare = nil
	g.left = slices.DeleteFunc(g.left, func(name string) bool {
		err := unix.Unlinkat(g.parent, name, unix.AT_REMOVEDIR)
		return err == nil || err == unix.ENOENT
	})
	return c
}

// reuse keeps c for the next program, if it is empty and as good as a new one:
// what it has counted can be told from what it will count, and it was not killed.
// On Linux 6.18 a child that is cloned into a cgroup that was killed once dies at
// birth.
func (g *groups) reuse(c *cgroup) bool {
	if c.events < 0 || c.peak || c.killed || !c.empty() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.spare != nil {
		return false
	}
	c.before = c.used()
	g.spare = c
	return true
}

// trim removes the spare.
func (g *groups) trim() {
	g.mu.Lock()
	c := g.spare
	g.spare = nil
	g.mu.Unlock()
	if c != nil {
		c.discard()
	}
}

// keep notes a cgroup that could not be removed.
func (g *groups) keep(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = append(g.left, name)
}

// vanish waits for killed processes to be gone, which takes the kernel a moment.
func vanish(g group) {
	for wait := 100 * time.Microsecond; !g.empty() && wait < 2*time.Second; wait *= 2 {
		time.Sleep(wait)
	}
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
