package docker

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/cgroup"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/state"
)

// containerConfig is what the container runs. Whatever the image says about that is
// replaced.
func (c *creation) containerConfig() *container.Config {
	stop := 1
	return &container.Config{
		Hostname:   inside.Hostname,
		Image:      c.image.ID, // and not its name, which may mean another by now
		User:       "0:0",
		WorkingDir: "/",
		Entrypoint: []string{sandbox.AgentPath},
		Cmd:        []string{"dial", sandbox.ControlDir},
		Env:        agentEnv(c.image),
		Labels:     state.Labels(&c.rec.Record),
		// A check would be run in the sandbox by the Engine, beside every limit.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
		StopTimeout: &stop,
	}
}

// agentEnv is the agent's environment: PATH alone. Variables of the image are taken
// away, since some of them are heard by every Go program.
func agentEnv(img *image.InspectResponse) []string {
	env := []string{"PATH=/usr/bin:/bin"}
	for _, kv := range img.Config.Env {
		if name, _, _ := strings.Cut(kv, "="); name != "" && name != "PATH" {
			env = append(env, name)
		}
	}
	return env
}

// hostConfig is how the container is held.
func (c *creation) hostConfig() *container.HostConfig {
	no := false
	h := &container.HostConfig{
		NetworkMode:    "none",
		LogConfig:      container.LogConfig{Type: "none"},
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		CapDrop:        []string{"ALL"},
		CapAdd:         inside.AgentCaps,
		CgroupnsMode:   container.CgroupnsModePrivate,
		IpcMode:        container.IPCModePrivate,
		ReadonlyRootfs: true,
		SecurityOpt:    []string{"no-new-privileges", "seccomp=" + c.d.seccomp},
		MaskedPaths:    inside.MaskedPaths,
		ReadonlyPaths:  inside.ReadonlyPaths,
		Sysctls:        inside.Sysctls,
		Init:           &no,
		Runtime:        c.rec.Runtime,
		Mounts:         c.binds(),
		Tmpfs:          c.tmpfs(),
		Resources:      c.resources(),
	}
	if c.info.CgroupDriver == "systemd" {
		h.CgroupParent = slice(c.d.cfg.CgroupParent)
	} else {
		h.CgroupParent = c.d.cfg.CgroupParent
	}
	return h
}

// slice is the name of a systemd slice for a cgroup path: of the innermost that it is
// in, whose bounds are to hold. A dash in a name makes a slice within a slice.
func slice(parent string) string {
	for _, part := range slices.Backward(strings.Split(parent, "/")) {
		if strings.HasSuffix(part, ".slice") {
			return part
		}
	}
	return strings.ReplaceAll(strings.Trim(parent, "/"), "/", "-") + ".slice"
}

// resources bound the container as a whole: what the tools may have, what the memory
// file systems can hold, and some for the agent.
func (c *creation) resources() container.Resources {
	l := c.spec.Limits
	r := container.Resources{Ulimits: []*container.Ulimit{{Name: "core", Soft: inside.CoreLimit, Hard: inside.CoreLimit}}}
	if l.Memory > 0 {
		r.Memory = int64(l.Memory+c.sizes.Sum()) + cgroup.AgentMemory
		r.MemorySwap = r.Memory // both together: no swap
	}
	if l.PIDs > 0 {
		most := l.PIDs + cgroup.AgentPIDs
		r.PidsLimit = &most
	}
	if l.CPUs > 0 {
		r.NanoCPUs = int64(l.CPUs * 1e9)
	}
	return r
}

// binds are the mounts that the agent's start needs. Their sources are this driver's
// own files.
func (c *creation) binds() []mount.Mount {
	bind := func(source, target string) mount.Mount {
		return mount.Mount{
			Type: mount.TypeBind, Source: source, Target: target, ReadOnly: true,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
		}
	}
	list := []mount.Mount{bind(c.d.programs.Agent, sandbox.AgentPath), bind(c.d.programs.Ripgrep, sandbox.RipgrepDir), bind(c.place.control(), sandbox.ControlDir)}
	for target, source := range c.d.files {
		list = append(list, bind(source, target))
	}
	return list
}

// tmpfs are the container's memory file systems, bounded in bytes and files, and the
// places where something is mounted once it runs: the root is read-only. An empty
// worktree's is one of the former.
func (c *creation) tmpfs() map[string]string {
	const placeholder = "ro,noexec,size=4k,nr_inodes=16,mode=755"
	m := map[string]string{}
	for _, p := range volumes(c.image) {
		m[p] = placeholder // a volume would be one more writable place, without a bound
	}
	if c.spec.Worktree.Overlay != nil {
		m[sandbox.TreeDir] = placeholder
	}
	if c.spec.JournalDir != "" {
		m[sandbox.JournalDir] = placeholder
	}
	if c.spec.OutputDir != "" {
		m[sandbox.OutputDir] = placeholder
	}
	for _, t := range c.outerTargets() {
		m[t] = placeholder
	}
	// In the place of sysfs and of the cgroup file systems, which tell of the host. The
	// places in it are for the session's own cgroups, see show.
	m["/sys"], m["/sys/fs/cgroup"] = "noexec,size=4k,nr_inodes=16,mode=755", placeholder
	for _, t := range cgroup.ViewDirs() {
		m[t] = placeholder
	}
	m["/run"] = "noexec,size=64k,nr_inodes=64,mode=755"
	for _, w := range c.sizes.Memories(c.spec.Worktree.Target) {
		m[w.Target] = strings.Join(w.Options(), ",") // with exec, which is not the Engine's default
	}
	for _, p := range c.rec.Own.Places {
		m[p.Target] = placeholder
	}
	return m
}

// outerTargets are those of the worktree and of mounts that do not lie in another
// one: what does has its mount point there, or is refused.
func (c *creation) outerTargets() []string {
	all := c.spec.Targets()
	var outer []string
	for _, t := range all {
		if !slices.ContainsFunc(all, func(o string) bool { return o != t && inside.Within(t, o) }) {
			outer = append(outer, t)
		}
	}
	return outer
}

// volumes are the places of an image's volumes that are not already ours.
func volumes(img *image.InspectResponse) []string {
	var list []string
	for p := range img.Config.Volumes {
		p = filepath.Clean("/" + p)
		if p == "/" || slices.ContainsFunc(inside.Reserved, func(r string) bool { return inside.Within(p, r) }) {
			continue
		}
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}
