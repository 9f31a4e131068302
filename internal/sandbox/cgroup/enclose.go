package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// kernelMemory and kernelPIDs are what a kernel in user space may need for
// itself, beside the agent and the tools: one that was just started takes some 60
// MiB and 60 threads, and has one more process, of a few threads, for each
// address space of a program.
const (
	kernelMemory = 256 << 20
	kernelPIDs   = 512
	pidsPerTool  = 4
)

// Enclose makes the cgroups of a session that runs in a kernel of its own, and
// sets its limits, before anything of it is started:
//
//	<id>/        the session
//	<id>/tools   all that the host sees of it: that kernel and its helpers
//
// The host does not see which memory and which process is whose inside, so these
// limits are a wall around all of it, and hitting the wall is the end of the
// session; the agent keeps the limits of the tools. tmpfs is what the session's
// memory file systems can hold.
func (t *Tree) Enclose(id string, l client.Limits, tmpfs client.Size) error {
	if err := t.handDown(id); err != nil {
		return err
	}
	if err := os.Mkdir(t.toolsDir(id), 0o755); err != nil {
		return err
	}
	for name, mount := range t.v1limited() {
		if err := makeV1(mount, filepath.Join(t.Path(id), "tools"), name == "cpuset"); err != nil {
			return err
		}
	}
	return t.setLimits(id, l, int64(l.Memory+tmpfs)+AgentMemory+kernelMemory, pidsPerTool*l.PIDs+AgentPIDs+kernelPIDs)
}

func (t *Tree) toolsDir(id string) string { return filepath.Join(t.Dir(id), "tools") }

// makeV1 makes a cgroup and those above it in a v1 hierarchy. One of cpuset takes
// no process before it has processors and memory nodes, which it gets from above.
func makeV1(mount, path string, cpuset bool) error {
	dir := mount
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		above := dir
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if !cpuset {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if readFile(filepath.Join(dir, file)) != "" {
				continue
			}
			if err := write(filepath.Join(dir, file), readFile(filepath.Join(above, file))); err != nil {
				return err
			}
		}
	}
	return nil
}

// Enter makes what the calling thread starts from now on be born under the limits
// of an enclosed session, as far as they are on v1 hierarchies. The thread must be
// locked, and end soon: it is under them too.
func (t *Tree) Enter(id string) error { return t.AttachThread(id, unix.Gettid()) }

// OpenEnclosed opens the session's cgroup on v2 for SysProcAttr.CgroupFD.
func (t *Tree) OpenEnclosed(id string) (*os.File, error) {
	return os.OpenFile(t.toolsDir(id), unix.O_PATH|unix.O_DIRECTORY, 0)
}
