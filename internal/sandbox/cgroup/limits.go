package cgroup

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
)

// AgentMemory (bytes) and AgentPIDs are the agent's. It is outside the limits of the
// tools, but not without a bound: the session as a whole gets this much more, and all
// that its memory file systems can hold. Their pages count as the memory of who wrote
// them, which for a file tool is the agent: without room for them, full file systems
// and full tools together would be the end of the agent.
const (
	AgentMemory = 256 << 20
	AgentPIDs   = 64
)

// SocketMemory (bytes) is what TCP and UDP sockets of the tools may hold on cgroup v1, which counts
// it apart from limits.memory. v2 counts it as memory. Above it the kernel lets each connection have
// what keeps it going: 64 KiB at either end.
const SocketMemory = 8 << 20

// cpuPeriod is the accounting period of the CPU quota in microseconds.
const cpuPeriod = 100_000

// Check refuses limits that this host cannot enforce.
func (t *Tree) Check(l client.Limits) error {
	for _, need := range []struct {
		limit, controller string
		set               bool
	}{
		{"memory", "memory", l.Memory > 0},
		{"pids", "pids", l.PIDs > 0},
		{"cpus", "cpu", l.CPUs > 0},
	} {
		if need.set && !t.has(need.controller) {
			return fmt.Errorf("limits.%s: this host has no cgroup controller %q: %w", need.limit, need.controller, sandbox.ErrUnsupported)
		}
	}
	return nil
}

// Divide makes the cgroups below a session whose agent has just been started, and
// sets all limits:
//
//	<id>/        the session, agent headroom included
//	<id>/agent   the agent, where v2 has controllers
//	<id>/tools   all calls, with the limits that were asked for
//
// uid is the agent's on the host: it makes the cgroups of its calls. tmpfs is what
// the session's memory file systems can hold.
func (t *Tree) Divide(id string, agent *process.Process, uid int, l client.Limits, tmpfs client.Size) error {
	kill := t.Dir(id)
	if err := os.Mkdir(filepath.Join(kill, "tools"), 0o755); err != nil {
		return err
	}
	if err := t.settle(id, agent); err != nil {
		return fmt.Errorf("move agent: %w", err)
	}
	if err := t.handDown(id); err != nil {
		return err
	}
	for _, mount := range t.v1limited() {
		if err := os.Mkdir(filepath.Join(mount, t.Path(id), "tools"), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := t.delegate(id, uid); err != nil {
		return err
	}
	err := t.setLimits(id, l, int64(l.Memory+tmpfs)+AgentMemory, l.PIDs+AgentPIDs)
	if err == nil && l.Memory > 0 {
		err = errors.Join(t.setMemory(id, "tools", int64(l.Memory)), t.setSockets(id))
	}
	if err == nil && l.PIDs > 0 {
		err = t.setPIDs(id, "tools", l.PIDs)
	}
	return err
}

// handDown gives the controllers of v2 to the cgroups below a session.
func (t *Tree) handDown(id string) error {
	for _, name := range limited {
		if t.v2has[name] {
			if err := write(filepath.Join(t.Dir(id), "cgroup.subtree_control"), "+"+name); err != nil {
				return fmt.Errorf("delegate %s: %w", name, err)
			}
		}
	}
	return nil
}

// settle moves the agent within v2 where it cannot stay. That may cost 10 ms, so
// it is not done where the runtime has put it into the session's own cgroup and
// that one hands no controllers down: only then may it hold processes itself.
func (t *Tree) settle(id string, agent *process.Process) error {
	path, err := agent.CgroupV2()
	if err != nil {
		return err
	}
	if path == t.Path(id) && len(t.v2has) == 0 {
		return nil
	}
	dir := filepath.Join(t.Dir(id), "agent")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(agent.PID()))
}

// v1limited are the v1 hierarchies on which calls are limited or counted.
func (t *Tree) v1limited() map[string]string {
	m := map[string]string{}
	for _, name := range append([]string{"cpuacct"}, limited...) {
		if mount, ok := t.v1[name]; ok {
			m[name] = mount
		}
	}
	return m
}

// delegate lets the agent make cgroups below tools and clone into them. For the
// latter the kernel asks for cgroup.procs of the common ancestor, to which the
// agent has no path: its descriptor ends at tools.
func (t *Tree) delegate(id string, uid int) error {
	kill := t.Dir(id)
	tools := filepath.Join(kill, "tools")
	return errors.Join(
		os.Chown(filepath.Join(kill, "cgroup.procs"), uid, uid),
		os.Chown(tools, uid, uid),
		write(filepath.Join(tools, "cgroup.max.depth"), "1"),
		write(filepath.Join(tools, "cgroup.max.descendants"), "1024"))
}

// setLimits sets what bounds a session as a whole, memory in bytes and pids, where limits
// are set, and the processors of its tools.
func (t *Tree) setLimits(id string, l client.Limits, memory, pids int64) error {
	var err error
	if l.Memory > 0 {
		err = t.setMemory(id, "", memory)
	}
	if l.PIDs > 0 {
		err = errors.Join(err, t.setPIDs(id, "", pids))
	}
	if l.CPUs > 0 {
		err = errors.Join(err, t.setQuota(id, l.CPUs))
	}
	if err = errors.Join(err, t.setCPUSet(id, l.CPUs)); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	return nil
}

func (t *Tree) setPIDs(id, sub string, most int64) error {
	return write(t.File(id, sub, "pids", "pids.max", "pids.max"), strconv.FormatInt(most, 10))
}

func (t *Tree) setMemory(id, sub string, bytes int64) error {
	value := strconv.FormatInt(bytes, 10)
	if err := write(t.File(id, sub, "memory", "memory.limit_in_bytes", "memory.max"), value); err != nil {
		return err
	}
	// Swap would only stretch the limit. Where swap is not accounted, there is
	// no such file (Notes tells when that matters).
	swap := value // v1 counts both together
	if _, v1 := t.v1["memory"]; !v1 {
		swap = "0"
	}
	err := write(t.File(id, sub, "memory", "memory.memsw.limit_in_bytes", "memory.swap.max"), swap)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// socketsV1 bounds in v1 the memory of the sockets that the processes of this very cgroup make:
// one above it does not count them.
const socketsV1 = "memory.kmem.tcp.limit_in_bytes"

// setSockets bounds what the tools' sockets hold, where that is not memory like other (Notes tells
// where v1 cannot).
func (t *Tree) setSockets(id string) error {
	mount, v1 := t.v1["memory"]
	if !v1 {
		return nil
	}
	err := write(filepath.Join(mount, t.Path(id), "tools", socketsV1), strconv.Itoa(SocketMemory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// setQuota bounds the CPU time of the tools.
func (t *Tree) setQuota(id string, cpus float64) error {
	quota := strconv.FormatInt(max(1000, int64(cpus*cpuPeriod)), 10)
	if _, v1 := t.v1["cpu"]; v1 {
		return errors.Join(
			write(t.File(id, "tools", "cpu", "cpu.cfs_period_us", ""), strconv.Itoa(cpuPeriod)),
			write(t.File(id, "tools", "cpu", "cpu.cfs_quota_us", ""), quota))
	}
	return write(t.File(id, "tools", "cpu", "", "cpu.max"), quota+" "+strconv.Itoa(cpuPeriod))
}

// Unthrottle takes away a quota of CPU time that somebody else has set for a session
// as a whole. That of the tools stays.
func (t *Tree) Unthrottle(id string) error {
	if _, v1 := t.v1["cpu"]; v1 {
		return write(t.File(id, "", "cpu", "cpu.cfs_quota_us", ""), "-1")
	}
	if !t.v2has["cpu"] {
		return nil
	}
	return write(t.File(id, "", "cpu", "", "cpu.max"), "max")
}

// setCPUSet gives the tools as many processors as the quota is worth, so that
// programs which count them do not start more threads than can run. Without a
// quota it gives all: a v1 cpuset takes no process before it has some.
func (t *Tree) setCPUSet(id string, cpus float64) error {
	if !t.has("cpuset") {
		return nil
	}
	if cpus == 0 {
		cpus = math.MaxInt32
	}
	from := t.File(id, "", "cpuset", "cpuset.cpus", "cpuset.cpus.effective")
	all, err := parseCPUs(readFile(from))
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if _, v1 := t.v1["cpuset"]; v1 {
		mems := readFile(t.File(id, "", "cpuset", "cpuset.mems", ""))
		if err := write(t.File(id, "tools", "cpuset", "cpuset.mems", ""), mems); err != nil {
			return err
		}
	}
	return write(t.File(id, "tools", "cpuset", "cpuset.cpus", "cpuset.cpus"), pickCPUs(all, cpus, id))
}

// pickCPUs takes as many of all as cpus needs, from a place that differs between
// sessions, so that small sessions do not crowd the first processors.
func pickCPUs(all []int, cpus float64, id string) string {
	n := min(len(all), int(math.Ceil(cpus)))
	h := fnv.New32a()
	h.Write([]byte(id))
	first := int(h.Sum32() % uint32(max(1, len(all))))
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(all[(first+i)%len(all)])
	}
	return strings.Join(list, ",")
}

// parseCPUs reads the kernel's list format, "0-3,8".
func parseCPUs(s string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if err1 != nil || err2 != nil || a < 0 || b < a || b-a > 1<<16 {
			return nil, fmt.Errorf("bad processor list %q", s)
		}
		for ; a <= b; a++ {
			list = append(list, a)
		}
	}
	return list, nil
}
