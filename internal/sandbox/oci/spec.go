package oci

import (
	"fmt"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/hardening"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/inside"
)

// noNamespaces forbids, inside the session's user namespace, to make further
// namespaces: a second wall behind the seccomp filter. The limits belong to the
// user namespace of whoever writes them, so that somebody in it has to; the
// runtime runs this hook there, while it still shows the host's files and before
// anything of the session runs. A multi-threaded process like this one cannot
// enter a user namespace to do it itself. The first line makes sure that it is
// not the host's own limits that are written. The last one forbids to have copies of
// what was sent in a socket's error queue, which is counted for nobody; a kernel that
// has no such setting for each network has none there.
func noNamespaces(base uint32) specs.Hook {
	return specs.Hook{
		Path: "/bin/sh",
		Args: []string{"sh", "-ec", fmt.Sprintf(`
			read -r inside outside rest </proc/self/uid_map && [ "$outside" = %d ]
			cd /proc/sys/user
			for f in max_user_namespaces max_mnt_namespaces max_pid_namespaces max_net_namespaces \
				max_ipc_namespaces max_uts_namespaces max_cgroup_namespaces max_time_namespaces; do
				[ ! -e $f ] || echo 0 >$f
			done
			for f in instances watches; do
				[ ! -e max_inotify_$f ] || echo $(($(cat ../fs/inotify/max_user_$f) / %d)) >max_inotify_$f
			done
			[ ! -e ../net/core/tstamp_allow_data ] || echo 0 >../net/core/tstamp_allow_data`, base, hardening.WatchShare)},
		Env: []string{"PATH=/usr/bin:/bin"},
	}
}

// bundleSpec is the runtime-spec of the sandbox, with the directory of its root.
func (c *creation) bundleSpec(root string) *specs.Spec {
	rec, w, adj, cores := &c.rec.Record, &c.spec.Worktree, oomScoreAdj(), coreLimit()
	return &specs.Spec{
		Version:  "1.0.2",
		Hostname: inside.Hostname,
		Root:     &specs.Root{Path: root, Readonly: c.spec.Root == nil},
		Process: &specs.Process{
			Args:            []string{sandbox.AgentPath},
			Cwd:             "/",
			Env:             []string{"PATH=/usr/bin:/bin"},
			NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{
				Bounding: inside.AgentCaps, Effective: inside.AgentCaps, Permitted: inside.AgentCaps,
			},
			// No core files, and no program of the host's core pattern: for that 0 would not do.
			Rlimits:     []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Soft: cores, Hard: cores}},
			OOMScoreAdj: &adj,
		},
		Mounts: c.d.bundleMounts(&c.spec.Shape, &c.spec.Claim, c.sizes),
		Hooks:  &specs.Hooks{CreateContainer: []specs.Hook{noNamespaces(rec.UIDBase)}},
		Linux: &specs.Linux{
			UIDMappings:   c.idMappings(sandbox.ToolUID, w.UID),
			GIDMappings:   c.idMappings(sandbox.ToolGID, w.GID),
			Namespaces:    namespaces(),
			CgroupsPath:   c.d.cg.Path(rec.SessionID),
			Resources:     sessionResources(),
			Seccomp:       c.d.seccomp,
			Sysctl:        inside.Sysctls,
			MaskedPaths:   inside.MaskedPaths,
			ReadonlyPaths: inside.ReadonlyPaths,
		},
	}
}

// coreLimit is inside.CoreLimit, unless this process may have less: the runtime may have no right
// to give more.
func coreLimit() uint64 {
	var own unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &own) != nil {
		return 0
	}
	return min(inside.CoreLimit, own.Max)
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

func (d *Driver) bundleMounts(s *sandbox.Shape, c *sandbox.Claim, sizes inside.TmpfsSizes) []specs.Mount {
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=64k", "nr_inodes=64"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", "max=" + strconv.Itoa(inside.Terminals)}},
	}
	for _, m := range sizes.Memories(c.Worktree.Target) {
		mounts = append(mounts, specs.Mount{Destination: m.Target, Type: "tmpfs", Source: "tmpfs", Options: m.Options()})
	}
	for _, e := range d.entries(s) {
		if e.source != "" {
			mounts = append(mounts, readOnly(e.path, e.source))
		}
	}
	return append(mounts, readOnly(sandbox.AgentPath, d.programs.Agent), readOnly(sandbox.RipgrepDir, d.programs.Ripgrep))
}

func readOnly(target, source string) specs.Mount {
	return specs.Mount{
		Destination: target, Type: "bind", Source: source,
		Options: []string{"rbind", "rro", "nosuid", "nodev", "rprivate"},
	}
}

// oomScoreAdj keeps a container from inheriting the daemon's protection; it
// never goes below the daemon's own value, which may take a capability.
func oomScoreAdj() int {
	own, err := readNumber("/proc/self/oom_score_adj")
	if err != nil {
		return 0
	}
	return max(0, own)
}
