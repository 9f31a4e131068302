package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/mount"
)

// Host implements sandbox.Prober.
func (d *Driver) Host(ctx context.Context) []client.Check {
	checks := []client.Check{kernelCheck(), openat2Check(), pidfdCheck(), landlockCheck(), inside.RipgrepCheck(d.ripgrep)}
	for _, look := range preflights(d.cfg.UIDBase) {
		checks = append(checks, look())
	}
	checks = append(checks, d.cg.Checks()...)
	checks = append(checks, d.idmapChecks()...)
	for i, name := range d.names {
		checks = append(checks, d.runtimeCheck(ctx, name, i == 0))
	}
	return checks
}

func kernelCheck() client.Check {
	var u unix.Utsname
	c := client.Check{Group: "host", Name: "kernel", Status: client.CheckOK}
	if err := unix.Uname(&u); err != nil {
		c.Status, c.Detail = client.CheckFail, err.Error()
		return c
	}
	c.Detail = unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	return c
}

func openat2Check() client.Check {
	c := client.Check{Group: "host", Name: "openat2", Status: client.CheckOK, Detail: "available"}
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		c.Status, c.Detail, c.Hint = client.CheckFail, err.Error(), "Linux 5.6 or newer is needed, and no filter around this service that refuses it"
		return c
	}
	unix.Close(fd)
	return c
}

func pidfdCheck() client.Check {
	c := client.Check{Group: "host", Name: "pidfd", Status: client.CheckOK, Detail: "available"}
	fd, err := unix.PidfdOpen(os.Getpid(), unix.PIDFD_NONBLOCK)
	if err != nil {
		c.Status, c.Detail, c.Hint = client.CheckFail, err.Error(), "Linux 5.10 or newer is needed"
		return c
	}
	unix.Close(fd)
	return c
}

// landlockCheck asks for the version of Landlock's interface.
func landlockCheck() client.Check {
	c := client.Check{Group: "host", Name: "landlock", Status: client.CheckOK}
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		c.Status, c.Detail = client.CheckWarn, errno.Error()
		c.Hint = "a layer behind others is missing: boot with lsm=landlock,… or a kernel that has it"
		return c
	}
	c.Detail = fmt.Sprintf("version %d", abi)
	if abi < 6 {
		c.Status = client.CheckWarn
		c.Hint = "scoping of signals and abstract sockets needs version 6 (Linux 6.12)"
	}
	return c
}

// capabilities of root that are of use here, and what is lost without them. In a
// session's user namespace, which root owns, it has all of them in any case: there
// it needs neither CAP_KILL nor CAP_NET_ADMIN.
var capabilities = map[int]string{
	unix.CAP_SYS_ADMIN:    "nothing works",
	unix.CAP_SETUID:       "nothing works",
	unix.CAP_SETGID:       "nothing works",
	unix.CAP_CHOWN:        "nothing works",
	unix.CAP_DAC_OVERRIDE: "nothing works",
	unix.CAP_SYS_RESOURCE: "open_files and file_size cannot be raised above the daemon's own, and its oom_score_adj not lowered",
	unix.CAP_SYS_CHROOT:   "the namespaces of a session cannot be entered",
	unix.CAP_SYS_PTRACE:   "the namespaces of a session cannot be entered",
}

func capabilityCheck() client.Check {
	c := client.Check{Group: "host", Name: "capabilities", Status: client.CheckOK, Detail: "all that are needed"}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		c.Status, c.Detail = client.CheckFail, err.Error()
		return c
	}
	var lost, costs []string
	for bit, without := range capabilities {
		if data[bit/32].Effective&(1<<(bit%32)) != 0 {
			continue
		}
		costs = append(costs, fmt.Sprintf("without %s %s", capabilityNames[bit], without))
		if bit != unix.CAP_SYS_RESOURCE {
			lost = append(lost, capabilityNames[bit])
		}
	}
	slices.Sort(lost)
	slices.Sort(costs)
	switch {
	case len(lost) > 0:
		c.Status, c.Detail = client.CheckFail, "toold lacks "+strings.Join(lost, ", ")+", and can make no sandbox without"
		c.Hint = inContainer + "; in a service CapabilityBoundingSet="
	case len(costs) > 0:
		c.Status, c.Detail = client.CheckWarn, strings.Join(costs, "; ")
		c.Hint = "run toold as root with all capabilities where that matters"
	}
	return c
}

var capabilityNames = map[int]string{
	unix.CAP_SYS_ADMIN: "CAP_SYS_ADMIN", unix.CAP_SETUID: "CAP_SETUID", unix.CAP_SETGID: "CAP_SETGID",
	unix.CAP_CHOWN: "CAP_CHOWN", unix.CAP_DAC_OVERRIDE: "CAP_DAC_OVERRIDE", unix.CAP_SYS_CHROOT: "CAP_SYS_CHROOT",
	unix.CAP_SYS_RESOURCE: "CAP_SYS_RESOURCE", unix.CAP_SYS_PTRACE: "CAP_SYS_PTRACE",
}

// idmapChecks tries an id-mapped mount on each file system where worktrees
// usually are.
func (d *Driver) idmapChecks() []client.Check {
	var checks []client.Check
	var seen []uint64
	for _, dir := range []string{d.cfg.StateDir, "/home", "/srv", "/root", "/tmp"} {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil || slices.Contains(seen, st.Dev) {
			continue
		}
		seen = append(seen, st.Dev)
		checks = append(checks, d.idmapCheck(dir))
	}
	return checks
}

func (d *Driver) idmapCheck(dir string) client.Check {
	c := client.Check{Group: "worktree", Name: "id-mapped mounts on the file system of " + dir, Status: client.CheckOK, Detail: "work"}
	err := d.tryIDMap(dir)
	switch {
	case errors.Is(err, mount.ErrNoIDMap):
		c.Status, c.Detail = client.CheckWarn, "not on this file system"
		c.Hint = "worktrees there are mapped 1:1: tools run with the uid of the worktree's owner, and root's are refused"
	case err != nil:
		c.Status, c.Detail = client.CheckFail, err.Error()
	}
	return c
}

func (d *Driver) tryIDMap(dir string) error {
	src, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	one := []mount.Range{{Host: probeUIDBase, Size: 1}}
	userns, err := mount.UserNamespace(one, one)
	if err != nil {
		return err
	}
	defer userns.Close()
	m, err := mount.Detach(src, unix.MOUNT_ATTR_RDONLY, userns)
	if err != nil {
		return err
	}
	return m.Close()
}

func (d *Driver) runtimeCheck(ctx context.Context, name string, isDefault bool) client.Check {
	c := client.Check{Group: "runtime", Name: name, Status: client.CheckOK}
	rt, err := d.runtime(name)
	if err == nil {
		c.Detail, err = rt.version(ctx)
	}
	if err == nil {
		c.Probed = true
		err = d.probe(ctx, name)
	}
	if err == nil {
		c.Detail += " runs sandboxes (" + rt.path + ")"
		return c
	}
	c.Status = client.CheckNA
	if isDefault {
		c.Status = client.CheckFail
		c.Hint = "sessions cannot be made; `make build` builds a runtime that works into bin/"
	}
	if errors.Is(err, fs.ErrNotExist) {
		c.Detail = "not installed at " + d.cfg.Runtimes[name]
	} else {
		c.Detail = strings.TrimSpace(c.Detail + " cannot run here: " + err.Error())
	}
	return c
}
