package docker

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/mount"
)

// prepareMounts makes the detached mounts of what the session brings. They are
// attached when the container runs.
func (c *creation) prepareMounts() error {
	if err := c.prepareWorktree(); err != nil {
		return fmt.Errorf("worktree: %w", err)
	}
	if c.spec.OutputDir != "" {
		if err := c.prepareOutput(); err != nil {
			return fmt.Errorf("output directory: %w", err)
		}
	}
	// What lies in another comes after it, the worktree before all.
	mounts := slices.Clone(c.spec.Mounts)
	slices.SortFunc(mounts, func(a, b sandbox.Mount) int { return strings.Compare(a.Target, b.Target) })
	for _, m := range mounts {
		if err := c.prepareMount(m); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	return nil
}

func (c *creation) prepareWorktree() error {
	w := &c.spec.Worktree
	if w.Mode == client.WorktreeEmpty {
		return nil
	}
	readOnly := w.Mode == client.WorktreeRO
	f, err := c.mapped(w.Source, w.OwnerUID, w.OwnerGID, readOnly)
	c.rec.IDMap = "idmapped"
	if errors.Is(err, mount.ErrNoIDMap) {
		f, err = c.unmapped(w, readOnly)
		c.rec.IDMap = "mapped 1:1"
	}
	if err != nil {
		return err
	}
	if !readOnly {
		c.note("the worktree is a directory of the host: its size has no bound")
		if w.OwnerUID == 0 {
			c.note("the worktree belongs to root: what a session leaves there is root's, on the host a program with all rights; give it to another user")
		}
	}
	c.mounts = append(c.mounts, mount.Detached{File: f, Target: w.Target})
	return nil
}

// unmapped is for file systems without id-mapped mounts. The Engine has one mapping
// of users for all containers, so that only a worktree fits that belongs to whom the
// tool user is on the host.
func (c *creation) unmapped(w *sandbox.Worktree, readOnly bool) (*os.File, error) {
	uid, gid := c.base.uid+sandbox.ToolUID, c.base.gid+sandbox.ToolGID
	if w.OwnerUID != uid || w.OwnerGID != gid {
		return nil, fmt.Errorf("it belongs to %d:%d, its file system has no id-mapped mounts, and tools of a Docker Engine's containers run as %d:%d: give it to them, or put it on another file system: %w",
			w.OwnerUID, w.OwnerGID, uid, gid, sandbox.ErrUnsupported)
	}
	return mount.Detach(w.Source, attributes(readOnly), nil)
}

// prepareOutput shows the outputs as files of root's that everyone may read: their
// owner could take leases on them.
func (c *creation) prepareOutput() error {
	dir, err := os.OpenFile(c.spec.OutputDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := c.detachOutput(dir)
	if err != nil {
		return err
	}
	c.mounts = append(c.mounts, mount.Detached{File: f, Target: sandbox.OutputDir})
	return nil
}

// detachOutput shows root's files as nobody's. Where the Engine maps users, they are
// that already.
func (c *creation) detachOutput(dir *os.File) (*os.File, error) {
	const attributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC
	if c.base != (ids{}) {
		return mount.Detach(dir, attributes, nil)
	}
	userns, err := mount.Owner{AsUID: nobody, AsGID: nobody}.UserNamespace()
	if err != nil {
		return nil, fmt.Errorf("user namespace for id map: %w", err)
	}
	defer userns.Close()
	f, err := mount.Detach(dir, attributes, userns)
	if errors.Is(err, mount.ErrNoIDMap) {
		return mount.Detach(dir, attributes, nil)
	}
	return f, err
}

// nobody is the kernel's id for who has none.
const nobody = 65534

func (c *creation) prepareMount(m sandbox.Mount) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(m.Source.Fd()), &st); err != nil {
		return err
	}
	f, err := c.mapped(m.Source, st.Uid, st.Gid, true)
	if errors.Is(err, mount.ErrNoIDMap) {
		c.note(fmt.Sprintf("%s: its file system has no id-mapped mounts: only what everyone may read is readable", m.Source.Name()))
		f, err = mount.Detach(m.Source, unix.MOUNT_ATTR_RDONLY, nil)
	}
	if err != nil {
		return err
	}
	c.mounts = append(c.mounts, mount.Detached{File: f, Target: m.Target})
	return nil
}

// mapped detaches a directory with one owner shown as the tool user.
func (c *creation) mapped(dir *os.File, uid, gid uint32, readOnly bool) (*os.File, error) {
	userns, err := mount.Owner{
		UID: uid, GID: gid, AsUID: c.base.uid + sandbox.ToolUID, AsGID: c.base.gid + sandbox.ToolGID,
	}.UserNamespace()
	if err != nil {
		return nil, fmt.Errorf("user namespace for id map: %w", err)
	}
	defer userns.Close()
	return mount.Detach(dir, attributes(readOnly), userns)
}

func attributes(readOnly bool) uint64 {
	if readOnly {
		return unix.MOUNT_ATTR_RDONLY
	}
	return 0
}

func (c *creation) note(s string) { c.rec.Notes = append(c.rec.Notes, s) }
