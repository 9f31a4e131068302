package exec

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// tagged is a group where there are no cgroups. Each of its processes has an
// additional group id that is the program's alone: what a process starts has it
// too, and only who may change groups, which no tool may, can take it off. So
// nothing gets away by sessions, daemons or changes of parent. There are no
// figures for it, and processes can see the id.
type tagged struct {
	of  *tags
	tag uint32 // 0: of the agent's own user, for tests; then it goes by sid
	sid int
}

// tags gives out group ids.
type tags struct {
	mu   sync.Mutex // guards the fields below
	last uint32
	used map[uint32]bool
}

// The ids are those that no user of a distribution has, and that every user
// namespace of a sandbox has.
const (
	firstTag = 50000
	lastTag  = 59999
)

// newTags begins anywhere: agents may see each other's processes, as in tests.
func newTags() *tags {
	first := rand.Uint32N(lastTag - firstTag) //nolint:gosec // no secret: every process can see its groups
	return &tags{last: firstTag + first, used: make(map[uint32]bool)}
}

// take gives an id that is in nobody's use. Far fewer programs run than there are.
func (t *tags) take() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range lastTag - firstTag + 1 {
		if t.last++; t.last > lastTag {
			t.last = firstTag
		}
		if !t.used[t.last] {
			t.used[t.last] = true
			return t.last
		}
	}
	return 0
}

func (t *tags) give(tag uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.used, tag)
}

func (g *tagged) fd() int     { return -1 }
func (g *tagged) bill(*usage) {}
func (g *tagged) empty() bool { return len(g.pids()) == 0 }

func (g *tagged) limit() limitHit { return limitNone }

// remove gives the id back, unless somebody has it still.
func (g *tagged) remove() {
	vanish(g)
	if g.tag != 0 && g.empty() {
		g.of.give(g.tag)
	}
}

// killTime bounds kill: a limit on processes keeps those few that can be made
// faster than they are found.
const killTime = 5 * time.Second

// kill stops all of them before it kills any, so that none is made meanwhile.
func (g *tagged) kill() {
	stopped := make(map[int]bool)
	for began := time.Now(); time.Since(began) < killTime; {
		news := false
		for _, pid := range g.pids() {
			if !stopped[pid] {
				news, stopped[pid] = true, true
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
		if !news {
			break
		}
	}
	for _, pid := range g.pids() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func (g *tagged) pids() []int {
	if g.tag == 0 && g.sid <= 1 {
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
		status, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err == nil && g.has(status) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// has says whether the process with this status is alive and of the group. One
// whose first thread has ended is shown as a zombie while its others run on.
func (g *tagged) has(status []byte) bool {
	key, want := "Groups:", strconv.FormatUint(uint64(g.tag), 10)
	if g.tag == 0 {
		key, want = "NSsid:", strconv.Itoa(g.sid)
	}
	found, ended := false, false
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), "\t")
		switch name {
		case "State:":
			ended = strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X")
		case "Threads:":
			ended = ended && (value == "1" || value == "0") // as kernels count a zombie
		case key:
			found = slices.Contains(strings.Fields(value), want)
		}
	}
	return found && !ended
}
