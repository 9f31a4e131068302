package oci

import (
	"os"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// Unfiltered takes the seccomp filter away, for negative controls.
func (d *Driver) Unfiltered() { d.seccomp = nil }

// Detached makes the driver use a v2 hierarchy of its own, as on a host that
// has none mounted.
func (d *Driver) Detached() error { return d.cg.mountDetached() }

// KillDir is the session's v2 cgroup.
func (d *Driver) KillDir(id string) string { return d.cg.kill(id) }

// LimitFile is a control file of the tools.
func (d *Driver) LimitFile(id, controller, v1, v2 string) string {
	return d.cg.file(id, "tools", controller, v1, v2)
}

// SessionMemory is the memory limit of a session, its agent included.
func (d *Driver) SessionMemory(id string) int64 {
	return readInt(d.cg.file(id, "", "memory", "memory.limit_in_bytes", "memory.max"))
}

// NoControllers is a host without cgroup controllers.
func NoControllers(l client.Limits) error { return (&cgroups{}).check(l) }

// TmpfsSum is what the memory file systems of a sandbox can hold.
func TmpfsSum(s *sandbox.Spec) (client.Size, error) {
	t, err := sizeTmpfs(s)
	return t.sum(), err
}

var (
	ParseCPUs    = parseCPUs
	PickCPUs     = pickCPUs
	InnermostPID = innermostPID
	NewProfile   = newSeccompProfile
	RemoveTree   = removeTree
)

// StartTime of a process directory.
func StartTime(proc *os.File) (uint64, error) { return startTime(proc) }
