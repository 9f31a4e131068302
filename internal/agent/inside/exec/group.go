package exec

import (
	"errors"
	"fmt"
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
	// limit is what the program ran into, where the agent knows.
	limit() limitHit
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
	parent int    // descriptor of the directory for cgroups, -1: none
	tags   *tags  // instead of cgroups; nil: the tools are the agent's own user
	guard  *guard // nil: the kernel keeps the limits
	last   atomic.Int64

	mu    sync.Mutex // guards the fields below
	left  []string   // that could not be removed yet: their processes hang in the kernel
	spare *cgroup    // of an earlier program, empty, for the next one
}

func (g *groups) make() (group, error) {
	if g.parent < 0 {
		if g.tags == nil {
			return &tagged{}, nil
		}
		tag := g.tags.take()
		if tag == 0 {
			return nil, errors.New("no group id is left for a program")
		}
		return &tagged{of: g.tags, tag: tag}, nil
	}
	c, err := g.makeCgroup()
	if err != nil {
		return nil, err
	}
	if g.guard != nil {
		g.guard.enter(c)
	}
	return c, nil
}

func (g *groups) makeCgroup() (*cgroup, error) {
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

// reaped waits until no process has one of the pids any more. One that was killed
// leaves its cgroup before it is dead, and counts for the limit of pids until it has
// been waited for: after many at once, the next program could find no room.
func reaped(pids []int) {
	end := time.Now().Add(2 * time.Second)
	for _, pid := range pids {
		for wait := 100 * time.Microsecond; unix.Kill(pid, 0) != unix.ESRCH && time.Now().Before(end); wait *= 2 {
			time.Sleep(wait)
		}
	}
}

// vanish waits for killed processes to be gone, which takes the kernel a moment.
func vanish(g group) {
	for wait := 100 * time.Microsecond; !g.empty() && wait < 2*time.Second; wait *= 2 {
		time.Sleep(wait)
	}
}
