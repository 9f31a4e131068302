package exec

import (
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// guard keeps the limit on the tools' memory where the kernel counts it and does
// not keep it, as gVisor's does. A wall of the host's stands behind it, with room
// for what a program can take between two looks; who hits that takes the session
// along.
type guard struct {
	tools  int   // the cgroup of all programs
	memory int64 // bytes, 0: no limit

	mu      sync.Mutex // guards the fields below
	groups  map[*cgroup]bool
	looking bool
	wg      sync.WaitGroup // the looking goroutine; Add happens under mu
}

// guardPause is between two looks. gVisor fills memory by less than 2 GiB a
// second, which is 40 MiB in that time; a look takes 0.1 ms.
const guardPause = 20 * time.Millisecond

// limitHit says which limit has ended or hindered a program.
type limitHit int

const (
	limitNone limitHit = iota
	limitMemory
	limitPIDs
)

// enter begins to watch the program in c.
func (g *guard) enter(c *cgroup) {
	c.refused = g.refused()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.groups == nil {
		g.groups = make(map[*cgroup]bool)
	}
	g.groups[c] = true
	if !g.looking && g.memory > 0 {
		g.looking = true
		g.wg.Go(g.look)
	}
}

func (g *guard) leave(c *cgroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.groups, c)
}

// look ends with the last program.
func (g *guard) look() {
	for {
		time.Sleep(guardPause)
		g.mu.Lock()
		if len(g.groups) == 0 {
			g.looking = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		if figure(g.tools, "memory.current") > g.memory {
			g.relieve()
		}
	}
}

// relieve kills the program that has most of the memory, and all that it has
// started: there is no telling which of its processes could be done without.
func (g *guard) relieve() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var largest *cgroup
	most := int64(-1)
	for c := range g.groups {
		if n := figure(c.dir, "memory.current"); n > most {
			largest, most = c, n
		}
	}
	if largest != nil {
		largest.starved.Store(true)
		largest.kill()
	}
}

// refused counts the processes that the limit of the tools has refused so far.
func (g *guard) refused() int64 { return statField(readAt(g.tools, "pids.events"), "max") }

// figure is a control file with one number, 0 where there is none.
func figure(dir int, file string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(string(readAt(dir, file))), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readAt reads a control file, of which the first MiB is enough; nothing where there is none.
func readAt(dir int, file string) []byte {
	fd, err := unix.Openat(dir, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 1<<20))
	return b
}
