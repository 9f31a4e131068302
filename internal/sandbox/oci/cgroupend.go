package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// makeRuntime makes the cgroup in which the runtime's commands for one session
// are born, and opens it for SysProcAttr.CgroupFD.
func (c *cgroups) makeRuntime(id string) (*os.File, error) {
	dir := c.runtimeDir(id)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// killAll kills every process of the session, the runtime's included, and waits
// until there is none.
func (c *cgroups) killAll(ctx context.Context, id string) error {
	var err error
	// The runtime first: it moves what it makes into the other.
	for _, dir := range []string{c.runtimeDir(id), c.kill(id)} {
		err = errors.Join(err, killCgroup(ctx, dir))
	}
	return err
}

func killCgroup(ctx context.Context, dir string) error {
	events, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer events.Close()
	for {
		if err := write(filepath.Join(dir, "cgroup.kill"), "1"); err != nil {
			return fmt.Errorf("kill cgroup: %w", err)
		}
		if populated, err := isPopulated(events); err != nil || !populated {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("processes of %s do not die: %w", dir, context.Cause(ctx))
		}
		// The kernel signals a change of cgroup.events by POLLPRI.
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, 100); err != nil && err != unix.EINTR {
			return err
		}
	}
}

func isPopulated(events *os.File) (bool, error) {
	buf := make([]byte, 256)
	n, err := events.ReadAt(buf, 0)
	if n == 0 && err != nil {
		if errors.Is(err, unix.ENODEV) { // removed meanwhile
			return false, nil
		}
		return false, err
	}
	return !strings.Contains(string(buf[:n]), "populated 0"), nil
}

// removeLimits removes the session's cgroups but for the one with the label. They
// must be empty.
func (c *cgroups) removeLimits(id string) error {
	var err error
	for _, mount := range c.v1all {
		err = errors.Join(err, removeCgroup(filepath.Join(mount, c.path(id))))
	}
	return errors.Join(err, removeCgroup(c.runtimeDir(id)))
}

// removeKill removes the session's v2 cgroup.
func (c *cgroups) removeKill(id string) error { return removeCgroup(c.kill(id)) }

func removeCgroup(dir string) error {
	children, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range children {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	// A process that is dead but not yet reaped keeps its cgroup busy for a
	// moment after cgroup.events has said that it is empty.
	for wait := time.Millisecond; ; wait *= 2 {
		err = unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || wait > time.Second {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		time.Sleep(wait)
	}
}

// attachThread puts one thread into the tools' cgroups of all v1 controllers.
// The writes come one after the other because the kernel waits for a grace
// period once per burst, not once per write.
func (c *cgroups) attachThread(id string, tid int) error {
	for name, mount := range c.v1limited() {
		if err := write(filepath.Join(mount, c.path(id), "tools", "tasks"), strconv.Itoa(tid)); err != nil {
			return fmt.Errorf("attach fork thread to %s: %w", name, err)
		}
	}
	return nil
}
