package exec

import (
	"bytes"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is a group as the kernel keeps it: nothing that a program does takes a
// process out of it.
type cgroup struct {
	of     *groups
	parent int
	name   string
	dir    int
	events int           // cgroup.events, -1 where there is none
	peak   bool          // it counts the most memory, from its beginning on
	before time.Duration // processor time that earlier programs have used
	killed bool
	gone   bool

	refused int64       // processes that the limit had refused when it was made
	starved atomic.Bool // it was killed for the memory that it took
}

func (c *cgroup) fd() int { return c.dir }

func (c *cgroup) pids() []int {
	var pids []int
	for line := range bytes.Lines(readAt(c.dir, "cgroup.procs")) {
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
	c.killed = true
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
	u.cpu = max(u.cpu, c.used()-c.before)
	if !c.peak {
		return
	}
	u.memory = max(u.memory, figure(c.dir, "memory.peak"))
}

// used is the processor time of all that has been in the cgroup.
func (c *cgroup) used() time.Duration {
	return time.Duration(statField(readAt(c.dir, "cpu.stat"), "usage_usec")) * time.Microsecond
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

// limit implements group.
func (c *cgroup) limit() limitHit {
	switch {
	case c.starved.Load():
		return limitMemory
	case c.of.guard != nil && c.of.guard.refused() > c.refused:
		return limitPIDs
	default:
		return limitNone
	}
}

func (c *cgroup) remove() {
	if c.of.guard != nil {
		c.of.guard.leave(c)
	}
	vanish(c)
	if !c.of.reuse(c) {
		c.discard()
	}
}

// discard leaves a cgroup whose processes do not end to the next programs.
func (c *cgroup) discard() {
	if !c.unlink() {
		c.of.keep(c.name)
	}
	if c.events >= 0 {
		_ = unix.Close(c.events)
	}
	_ = unix.Close(c.dir)
	c.dir, c.events = -1, -1
}

// callLabel is the attribute of a cgroup that names the call; the daemon reads it.
const callLabel = "user.toold.call"

// label writes on a cgroup for which call it is, in the place of the one before. Where the
// kernel keeps no such attributes, nobody finds out whose it is.
func label(g group, call string) {
	if c, ok := g.(*cgroup); ok && call != "" {
		_ = unix.Fsetxattr(c.dir, callLabel, []byte(call), 0)
	}
}
