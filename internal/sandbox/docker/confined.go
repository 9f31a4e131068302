package docker

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
)

// agentCaps are inside.AgentCaps as the kernel shows them.
const agentCaps = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// isOf checks that a process is in the cgroups of a container, whose names have its
// id: the agents of all sessions run the same file.
func isOf(p *process.Process, container string) error {
	data, err := p.Read("cgroup")
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), container) {
		return fmt.Errorf("process %d, which the Docker Engine says is the container's, is in no cgroup of that: %w", p.PID(), sandbox.ErrUnsupported)
	}
	return nil
}

// confined checks by the kernel's word that the agent is held as the Engine was asked
// to: a runtime of its may know nothing of some of that, and leave it out.
func confined(p *process.Process) error {
	data, err := p.Read("status")
	if err != nil {
		return err
	}
	status := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.TrimSpace(value)
	}
	for name, want := range map[string]string{"NoNewPrivs": "1", "Seccomp": "2"} {
		if status[name] != want {
			return fmt.Errorf("the container's process has %s %q and not %s: %w", name, status[name], want, sandbox.ErrUnsupported)
		}
	}
	for _, name := range []string{"CapBnd", "CapPrm", "CapInh", "CapAmb"} {
		if caps, err := strconv.ParseUint(status[name], 16, 64); err != nil || caps&^agentCaps != 0 {
			return fmt.Errorf("the container's process has capabilities beyond the agent's, %s %q: %w", name, status[name], sandbox.ErrUnsupported)
		}
	}
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		if err := apart(p, ns); err != nil {
			return err
		}
	}
	return nil
}

// apart checks that a process has a namespace of its own.
func apart(p *process.Process, ns string) error {
	var its, ours unix.Stat_t
	if err := unix.Fstatat(int(p.Dir().Fd()), "ns/"+ns, &its, 0); err != nil {
		return &os.PathError{Op: "stat", Path: "ns/" + ns, Err: err}
	}
	if err := unix.Stat("/proc/self/ns/"+ns, &ours); err != nil {
		return &os.PathError{Op: "stat", Path: "ns/" + ns, Err: err}
	}
	if its.Dev == ours.Dev && its.Ino == ours.Ino {
		return fmt.Errorf("the container has the host's %s namespace: %w", ns, sandbox.ErrUnsupported)
	}
	return nil
}
