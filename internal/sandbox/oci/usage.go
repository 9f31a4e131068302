package oci

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/toold/toold/client"
)

// usage reads what a session has used. On a hybrid host CPU time is counted by
// the v2 hierarchy too, where no controller is needed for it.
func (c *cgroups) usage(id string) client.Usage {
	return client.Usage{
		CPUMillis:   readKey(filepath.Join(c.kill(id), "cpu.stat"), "usage_usec") / 1000,
		MemoryBytes: readInt(c.file(id, "", "memory", "memory.usage_in_bytes", "memory.current")),
		PIDs:        readInt(c.file(id, "", "pids", "pids.current", "pids.current")),
	}
}

// ioBytes counts bytes read from and written to block devices; 0 where nothing
// counts them. v1 has lines such as "8:0 Read 4096", v2 such as "8:0 rbytes=4096
// wbytes=0 rios=1".
func (c *cgroups) ioBytes(id string) int64 {
	if mount, ok := c.v1["blkio"]; ok {
		return sumIO(readFile(filepath.Join(mount, c.path(id), "blkio.throttle.io_service_bytes_recursive")))
	}
	if c.v2io {
		return sumIO(readFile(filepath.Join(c.kill(id), "io.stat")))
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

// oomKills counts what the kernel killed for memory, among the tools and, should
// it come to that, in the whole session. v2 counts the tools' in the session's.
func (c *cgroups) oomKills(id string) int64 {
	session := readKey(c.file(id, "", "memory", "memory.oom_control", "memory.events"), "oom_kill")
	if _, v1 := c.v1["memory"]; v1 {
		session += readKey(c.file(id, "tools", "memory", "memory.oom_control", ""), "oom_kill")
	}
	return session
}

// pidsHits counts forks that the tools' limit refused.
func (c *cgroups) pidsHits(id string) int64 {
	return readKey(c.file(id, "tools", "pids", "pids.events", "pids.events"), "max")
}
