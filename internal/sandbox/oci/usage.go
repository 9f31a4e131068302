package oci

import (
	"path/filepath"

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
