package oci

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// Annotations of a bundle say whose it is.
const (
	annotationOwner       = "toold.owner"
	annotationSession     = "toold.session"
	annotationIncarnation = "toold.incarnation"
	annotationRuntime     = "toold.runtime"
	annotationUIDBase     = "toold.uid-base"
)

// agentCaps are what the agent keeps: it changes to the tool user and kills
// that user's processes, nothing else.
var agentCaps = []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL"}

// maskedPaths and readonlyPaths follow Moby; /sys is an empty directory here.
var (
	maskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/pressure", "/proc/sys", "/proc/sysrq-trigger"}
)

// noNamespaces forbids, inside the session's user namespace, to make further
// namespaces: a second wall behind the seccomp filter. The limits belong to the
// user namespace of whoever writes them, so that somebody in it has to; the
// runtime runs this hook there, while it still shows the host's files and before
// anything of the session runs. A multi-threaded process like this one cannot
// enter a user namespace to do it itself. The first line makes sure that it is
// not the host's own limits that are written.
func noNamespaces(base uint32) specs.Hook {
	return specs.Hook{
		Path: "/bin/sh",
		Args: []string{"sh", "-ec", fmt.Sprintf(`
			read -r inside outside rest </proc/self/uid_map && [ "$outside" = %d ]
			cd /proc/sys/user
			for f in max_user_namespaces max_mnt_namespaces max_pid_namespaces max_net_namespaces \
				max_ipc_namespaces max_uts_namespaces max_cgroup_namespaces max_time_namespaces; do
				[ ! -e $f ] || echo 0 >$f
			done`, base)},
		Env: []string{"PATH=/usr/bin:/bin"},
	}
}

// bundleSpec is the runtime-spec of one sandbox.
func (d *Driver) bundleSpec(rec *sandbox.Record, s *sandbox.Spec, root string, uids, gids []specs.LinuxIDMapping, sizes tmpfsSizes) *specs.Spec {
	adj := oomScoreAdj()
	return &specs.Spec{
		Version:  "1.0.2",
		Hostname: hostname,
		Root:     &specs.Root{Path: root, Readonly: s.Root == nil},
		Process: &specs.Process{
			Args:            []string{sandbox.AgentPath},
			Cwd:             "/",
			Env:             []string{"PATH=/usr/bin:/bin"},
			NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{
				Bounding: agentCaps, Effective: agentCaps, Permitted: agentCaps,
			},
			// No core files, and no upcall to the host's core pattern.
			Rlimits:     []specs.POSIXRlimit{{Type: "RLIMIT_CORE"}},
			OOMScoreAdj: &adj,
		},
		Mounts: d.bundleMounts(s, sizes),
		Hooks:  &specs.Hooks{CreateContainer: []specs.Hook{noNamespaces(s.UIDBase)}},
		Annotations: map[string]string{
			annotationOwner: rec.Owner, annotationSession: rec.SessionID, annotationIncarnation: rec.Incarnation,
			annotationRuntime: rec.Runtime, annotationUIDBase: strconv.FormatUint(uint64(rec.UIDBase), 10),
		},
		Linux: &specs.Linux{
			UIDMappings:   uids,
			GIDMappings:   gids,
			Namespaces:    namespaces(),
			CgroupsPath:   d.cg.Path(s.SessionID),
			Resources:     sessionResources(),
			Seccomp:       d.seccomp,
			MaskedPaths:   maskedPaths,
			ReadonlyPaths: readonlyPaths,
		},
	}
}

// sessionResources is what the runtime itself is asked to set. The limits are
// not among it: package cgroup writes them, the same way for all runtimes.
func sessionResources() *specs.LinuxResources {
	return &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}}
}

func namespaces() []specs.LinuxNamespace {
	var list []specs.LinuxNamespace
	for _, t := range []specs.LinuxNamespaceType{
		specs.UserNamespace, specs.MountNamespace, specs.PIDNamespace, specs.NetworkNamespace,
		specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace,
	} {
		list = append(list, specs.LinuxNamespace{Type: t})
	}
	return list
}

func (d *Driver) bundleMounts(s *sandbox.Spec, sizes tmpfsSizes) []specs.Mount {
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=64k", "nr_inodes=64"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		tmpfs("/dev/shm", sizes.shm, "noexec", "mode=1777"),
		tmpfs("/tmp", sizes.tmp, "mode=1777"),
		tmpfs(sandbox.Home, sizes.home, "mode=700", "uid=1000", "gid=1000"),
	}
	for _, e := range d.entries(s) {
		if e.source != "" {
			mounts = append(mounts, readOnly(e.path, e.source))
		}
	}
	mounts = append(mounts, readOnly(sandbox.AgentPath, d.agent))
	if s.Worktree.Mode == client.WorktreeEmpty {
		mounts = append(mounts, tmpfs(s.Worktree.Target, sizes.worktree, "mode=755", "uid=1000", "gid=1000"))
	}
	return mounts
}

func readOnly(target, source string) specs.Mount {
	return specs.Mount{
		Destination: target, Type: "bind", Source: source,
		Options: []string{"rbind", "rro", "nosuid", "nodev", "rprivate"},
	}
}

// tmpfs is bounded in bytes and in inodes: an empty file costs a kilobyte of
// kernel memory that size does not count.
func tmpfs(target string, size client.Size, options ...string) specs.Mount {
	return specs.Mount{
		Destination: target, Type: "tmpfs", Source: "tmpfs",
		Options: append([]string{
			"nosuid", "nodev",
			fmt.Sprintf("size=%d", size), fmt.Sprintf("nr_inodes=%d", inodes(size)),
		}, options...),
	}
}

func inodes(size client.Size) int64 { return max(1024, int64(size)/(8<<10)) }

// tmpfsSizes are the bounds of a sandbox's memory file systems.
type tmpfsSizes struct{ tmp, shm, home, worktree, disk client.Size }

// sum is what they can hold together.
func (t tmpfsSizes) sum() client.Size { return t.tmp + t.shm + t.home + t.worktree + t.disk }

// Pages that a tool wrote count as the tools' memory. A tmpfs that can fill all of
// it would wedge the session: even rm would be killed for memory, until the agent
// has made room. Together they stay at or below three quarters of it. The home directory is the largest: build
// caches live there, and that of a small Go program with its part of the standard
// library takes over 100 MiB.
func sizeTmpfs(s *sandbox.Spec) (tmpfsSizes, error) {
	const leastTmp, unlimited = 1 << 20, 256 << 20
	t := tmpfsSizes{tmp: s.Limits.Tmp}
	if t.tmp == 0 {
		t.tmp = unlimited
		if m := s.Limits.Memory; m > 0 {
			t.tmp = max(leastTmp, min(t.tmp, m/8))
		}
	}
	t.home, t.shm = 3*t.tmp, t.tmp/4
	if s.Worktree.Mode == client.WorktreeEmpty {
		t.worktree = t.tmp
	}
	if m := s.Limits.Memory; m > 0 && t.sum() > m/4*3 {
		return t, fmt.Errorf("limits.tmp %v: with the home directory, /dev/shm and an empty worktree this makes %v of memory file systems, more than three quarters of limits.memory %v: lower limits.tmp or raise limits.memory",
			t.tmp, t.sum(), s.Limits.Memory)
	}
	return t, nil
}

// oomScoreAdj keeps a container from inheriting the daemon's protection; it
// never goes below the daemon's own value, which may take a capability.
func oomScoreAdj() int {
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return max(0, own)
}
