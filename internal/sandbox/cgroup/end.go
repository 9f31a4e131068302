package cgroup

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

// MakeRuntime makes the cgroup in which the runtime's commands for one session
// are born, and opens it for SysProcAttr.CgroupFD.
func (t *Tree) MakeRuntime(id string) (*os.File, error) {
	dir := t.RuntimeDir(id)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// KillAll kills every process of the session, the runtime's included, and waits
// until there is none.
func (t *Tree) KillAll(ctx context.Context, id string) error {
	var err error
	// The runtime first: it moves what it makes into the other.
	for _, dir := range []string{t.RuntimeDir(id), t.Dir(id)} {
		err = errors.Join(err, killCgroup(ctx, dir))
	}
	return err
}

func killCgroup(ctx context.Context, dir string) error {
	events, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) { // the latter: just now
		return nil
	} else if err != nil {
		return err
	}
	defer events.Close()
	for {
		err := write(filepath.Join(dir, "cgroup.kill"), "1")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil // somebody has removed it, which it had to be empty for
		} else if err != nil {
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

// busyTime is how long cgroups of the dead may stay busy. cgroup.events says that one
// is empty before all are reaped, and it says nothing of a thread of this process that
// has entered and is about to end, which on a machine with much to do takes its time.
const busyTime = 20 * time.Second

// RemoveLimits removes the session's cgroups but for the one with the label. They
// must be empty.
func (t *Tree) RemoveLimits(id string) error {
	end := time.Now().Add(busyTime)
	var err error
	for _, mount := range t.v1all {
		err = errors.Join(err, removeCgroup(filepath.Join(mount, t.Path(id)), end))
	}
	return errors.Join(err, removeCgroup(t.RuntimeDir(id), end))
}

// Remove removes the session's v2 cgroup, and with it the label.
func (t *Tree) Remove(id string) error { return removeCgroup(t.Dir(id), time.Now().Add(busyTime)) }

// removeCgroup removes a cgroup with those in it, and waits for them until end.
func removeCgroup(dir string, end time.Time) error {
	children, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range children {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name()), end); err != nil {
				return err
			}
		}
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err = unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		time.Sleep(wait)
	}
}

// AttachesThreads says whether AttachThread has anything to do here.
func (t *Tree) AttachesThreads() bool { return len(t.v1limited()) > 0 }

// AttachThread puts one thread into the tools' cgroups of all v1 controllers.
// The writes come one after the other because the kernel waits for a grace
// period once per burst, not once per write.
func (t *Tree) AttachThread(id string, tid int) error {
	for name, mount := range t.v1limited() {
		if err := write(filepath.Join(mount, t.Path(id), "tools", "tasks"), strconv.Itoa(tid)); err != nil {
			return fmt.Errorf("attach fork thread to %s: %w", name, err)
		}
	}
	return nil
}
