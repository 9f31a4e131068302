package cgroup

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/toold/toold/client"
)

// Usage reads what a session has used. On a hybrid host CPU time is counted by
// the v2 hierarchy too, where no controller is needed for it.
func (t *Tree) Usage(id string) client.Usage {
	return client.Usage{
		CPUMillis:   readKey(filepath.Join(t.Dir(id), "cpu.stat"), "usage_usec") / 1000,
		MemoryBytes: readInt(t.File(id, "", "memory", "memory.usage_in_bytes", "memory.current")),
		PIDs:        readInt(t.File(id, "", "pids", "pids.current", "pids.current")),
	}
}

// SocketBytes is what sockets of the tools keep beside their memory; 0 with v2, where it is memory.
func (t *Tree) SocketBytes(id string) int64 {
	mount, v1 := t.v1["memory"]
	if !v1 {
		return 0
	}
	return readInt(filepath.Join(mount, t.Path(id), "tools", "memory.kmem.tcp.usage_in_bytes"))
}

// Processes are the ids, as this daemon sees them, of the processes of a session's calls.
func (t *Tree) Processes(id string) (pids []string) {
	lists, _ := filepath.Glob(filepath.Join(t.toolsDir(id), "*", "cgroup.procs"))
	for _, list := range append(lists, filepath.Join(t.toolsDir(id), "cgroup.procs")) {
		pids = append(pids, strings.Fields(readFile(list))...)
	}
	return pids
}

// IOBytes counts bytes read from and written to block devices; 0 where nothing
// counts them. v1 has lines such as "8:0 Read 4096", v2 such as "8:0 rbytes=4096
// wbytes=0 rios=1".
func (t *Tree) IOBytes(id string) int64 {
	if mount, ok := t.v1["blkio"]; ok {
		return sumIO(readFile(filepath.Join(mount, t.Path(id), "blkio.throttle.io_service_bytes_recursive")))
	}
	if t.v2io {
		return sumIO(readFile(filepath.Join(t.Dir(id), "io.stat")))
	}
	return 0
}

// sumIO adds up the bytes of all devices, in either form.
func sumIO(text string) (sum int64) {
	add := func(number string) {
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && n > 0 {
			sum += n
		}
	}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 3 && (fields[1] == "Read" || fields[1] == "Write") {
			add(fields[2])
			continue
		}
		for _, f := range fields {
			if k, v, _ := strings.Cut(f, "="); k == "rbytes" || k == "wbytes" {
				add(v)
			}
		}
	}
	return sum
}

// OOMKills counts what the kernel killed for memory, among the tools and, should
// it come to that, in the whole session. v2 counts the tools' in the session's.
func (t *Tree) OOMKills(id string) int64 {
	session := readKey(t.File(id, "", "memory", "memory.oom_control", "memory.events"), "oom_kill")
	if _, v1 := t.v1["memory"]; v1 {
		session += readKey(t.File(id, "tools", "memory", "memory.oom_control", ""), "oom_kill")
	}
	return session
}

// PIDsHits counts forks that the tools' limit refused.
func (t *Tree) PIDsHits(id string) int64 {
	return readKey(t.File(id, "tools", "pids", "pids.events", "pids.events"), "max")
}
