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
	"github.com/toold/toold/internal/sandbox/mount"
)

// Host implements sandbox.Prober.
func (d *Driver) Host(ctx context.Context) []client.Check {
	checks := []client.Check{
		kernelCheck(),
		callCheck("openat2", "Linux 5.6 or newer is needed, and no filter around this service that refuses it", func() (int, error) {
			return unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{
				Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
			})
		}),
		callCheck("pidfd", "Linux 5.10 or newer is needed", func() (int, error) {
			return unix.PidfdOpen(os.Getpid(), unix.PIDFD_NONBLOCK)
		}),
		landlockCheck(), d.programs.Check(),
	}
	for _, look := range preflights(d.cfg.UIDBase) {
		checks = append(checks, look())
	}
	checks = append(checks, d.cg.Checks()...)
	checks = append(checks, d.idmapChecks()...)
	for i, name := range d.names {
		c := d.runtimeCheck(ctx, name, i == 0)
		if checks = append(checks, c); c.Status == client.CheckOK {
			checks = append(checks, d.overlayCheck(ctx, name))
		}
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

// callCheck asks for a system call that gives a descriptor.
func callCheck(name, hint string, call func() (int, error)) client.Check {
	c := client.Check{Group: "host", Name: name, Status: client.CheckOK, Detail: "available"}
	fd, err := call()
	if err != nil {
		c.Status, c.Detail, c.Hint = client.CheckFail, err.Error(), hint
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
		c.Hint = "a layer behind others is missing, and in sessions with mounts paths that are only known at run time are asked about: boot with lsm=landlock,… or a kernel that has it"
		return c
	}
	c.Detail = fmt.Sprintf("version %d", abi)
	if abi < 6 {
		c.Status = client.CheckWarn
		c.Hint = "scoping of signals and abstract sockets needs version 6 (Linux 6.12)"
	}
	if abi < 3 {
		c.Hint += "; in sessions with mounts paths that are only known at run time are asked about below version 3 (Linux 6.2)"
	}
	return c
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
	rt, err := d.runtime(ctx, name)
	if err == nil {
		c.Detail, err = rt.version(ctx)
	}
	if err == nil {
		c.Probed = true
		err = d.Try(ctx, name)
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

// overlayCheck says what sessions with a runtime that works have of the mode overlay.
func (d *Driver) overlayCheck(ctx context.Context, name string) client.Check {
	c := client.Check{Group: "worktree", Name: "mode overlay with " + name, Status: client.CheckOK, Detail: "all of it, while a session lives and afterwards"}
	if rt, err := d.runtime(ctx, name); err == nil && rt.gvisor {
		c.Status, c.Detail = client.CheckWarn, "checkpoint, restore, undo, fork and apply wait for the end of a session: gVisor takes no mount into a running sandbox"
		c.Hint = "end the session first: its changes are kept"
	}
	return c
}
