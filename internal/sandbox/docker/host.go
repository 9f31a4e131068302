package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/inside"
)

// Host implements sandbox.Prober: what the Engine is, and in what it is weaker than
// the default driver.
func (d *Driver) Host(ctx context.Context) []client.Check {
	version, err := d.engine.version(ctx)
	if err != nil {
		return []client.Check{{
			Group: "docker", Name: "engine", Status: client.CheckFail, Detail: err.Error(),
			Hint: "sessions cannot be made; those whose containers live go on",
		}}
	}
	info, err := d.engine.info(ctx)
	if err != nil {
		return []client.Check{{Group: "docker", Name: "engine", Status: client.CheckFail, Detail: err.Error()}}
	}
	checks := []client.Check{
		d.programs.Check(),
		{
			Group: "docker", Name: "engine", Status: client.CheckOK,
			Detail: fmt.Sprintf("%s at %s; storage %s; runtimes %s", version, d.engine.host, info.Driver, strings.Join(runtimes(info), ", ")),
		},
		{Group: "worktree", Name: "mode overlay with docker", Status: client.CheckOK, Detail: "all of it, while a session lives and afterwards: the Engine is on this host"},
		cgroupCheck(info), usersCheck(info), seccompCheck(info), terminalCheck(), liveRestoreCheck(info), limitsCheck(info), d.imageCheck(ctx),
	}
	if t, err := d.tree(d.cfg.CgroupParent); err == nil {
		checks = append(checks, t.Checks()...)
	}
	return checks
}

func cgroupCheck(info *engineInfo) client.Check {
	return client.Check{
		Group: "docker", Name: "cgroups", Status: client.CheckOK,
		Detail: fmt.Sprintf("driver %s, version %s; each session's notes say whether its tools have a cgroup of their own", info.CgroupDriver, info.CgroupVersion),
	}
}

func usersCheck(info *engineInfo) client.Check {
	c := client.Check{Group: "docker", Name: "user namespaces", Status: client.CheckWarn}
	base, err := remapped(info)
	switch {
	case err != nil:
		c.Status, c.Detail = client.CheckFail, err.Error()
	case base == (ids{}):
		c.Detail = "not used: root in a sandbox is the host's root without its capabilities, and all sessions' tools are the host's uid 1000"
		c.Hint = "set userns-remap in the Engine's daemon.json; give that uid to nobody; or use driver = \"oci\", where each session has ids of its own"
	default:
		c.Detail = fmt.Sprintf("one mapping for all containers, from %d on: sessions have the same ids as one another", base.uid)
		c.Hint = "use driver = \"oci\", where each session has ids of its own"
	}
	return c
}

func seccompCheck(info *engineInfo) client.Check {
	c := client.Check{Group: "docker", Name: "security options", Status: client.CheckOK, Detail: strings.Join(info.SecurityOptions, ", ")}
	if !slices.ContainsFunc(info.SecurityOptions, func(o string) bool { return strings.HasPrefix(o, "name=seccomp") }) {
		c.Status, c.Hint = client.CheckFail, "this Engine filters no system calls: sessions cannot be made; use one with seccomp"
	}
	return c
}

// terminalCheck says what an Engine does not let us bound.
func terminalCheck() client.Check {
	return client.Check{
		Group: "docker", Name: "pseudo-terminals", Status: client.CheckWarn,
		Detail: "not bounded: an Engine sets no limit, and one session can take all that the host has",
		Hint:   fmt.Sprintf(`use driver = "oci", where a session has at most %d; or raise the sysctl kernel.pty.max`, inside.Terminals),
	}
}

func liveRestoreCheck(info *engineInfo) client.Check {
	if info.LiveRestoreEnabled {
		return client.Check{Group: "docker", Name: "live restore", Status: client.CheckOK, Detail: "sessions go on while the Engine is restarted"}
	}
	return client.Check{
		Group: "docker", Name: "live restore", Status: client.CheckWarn, Detail: "off: sessions are lost when the Engine is stopped",
		Hint: `set "live-restore": true in its daemon.json`,
	}
}

func limitsCheck(info *engineInfo) client.Check {
	var missing []string
	for name, there := range map[string]bool{"memory": info.MemoryLimit, "pids": info.PidsLimit, "cpus": info.CPUCfsQuota} {
		if !there {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	if len(missing) == 0 {
		return client.Check{Group: "docker", Name: "limits", Status: client.CheckOK, Detail: "memory, pids and cpus are enforced"}
	}
	return client.Check{
		Group: "docker", Name: "limits", Status: client.CheckWarn, Detail: "the Engine cannot enforce " + strings.Join(missing, ", "),
		Hint: "sessions with these limits are refused; boot with the cgroup controllers that they need",
	}
}

func (d *Driver) imageCheck(ctx context.Context) client.Check {
	c := client.Check{Group: "docker", Name: "image", Status: client.CheckOK, Detail: d.cfg.Image}
	if d.cfg.Image == "" {
		c.Detail = "none is configured: each session must name one"
		return c
	}
	img, err := d.engine.image(ctx, d.cfg.Image)
	if err != nil {
		c.Status, c.Detail = client.CheckWarn, d.cfg.Image+": "+err.Error()
		c.Hint = "it is pulled by the first session, or: docker pull, docker load"
		return c
	}
	c.Detail += " is " + img.ID
	if v := volumes(img); len(v) > 0 {
		c.Detail += "; its volumes are empty and read-only: " + strings.Join(v, ", ")
	}
	return c
}
