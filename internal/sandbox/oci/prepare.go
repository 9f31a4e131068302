package oci

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

// prepareMounts makes the detached mounts before the container exists, since
// whether a file system takes an id map decides about the container's own map.
func (c *creation) prepareMounts() error {
	if err := c.prepareWorktree(); err != nil {
		return fmt.Errorf("worktree: %w", err)
	}
	if c.spec.OutputDir != "" {
		if err := c.prepareOutput(); err != nil {
			return fmt.Errorf("output directory: %w", err)
		}
	}
	// What lies in another comes after it, the worktree before all: a target may
	// be a directory of what was mounted before.
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
	f, err := c.mapped(w.Source, w.OwnerUID, w.OwnerGID, w.Mode == client.WorktreeRO)
	c.rec.IDMap = "idmapped"
	if errors.Is(err, mount.ErrNoIDMap) {
		f, err = c.fallback()
	}
	if err != nil {
		return err
	}
	if w.Mode == client.WorktreeBind {
		c.note("the worktree is a directory of the host: its size has no bound")
		if w.OwnerUID == 0 {
			c.note("the worktree belongs to root: what a session leaves there is root's, on the host a program with all rights; give it to another user")
		}
	}
	c.mounts = append(c.mounts, mount.Detached{File: c.keep(f), Target: w.Target})
	return nil
}

// fallback maps the worktree's owner 1:1. Never root, neither as user nor as
// group, who would then be in the sandbox; and no id of a session, be it another:
// its processes could then be reached.
func (c *creation) fallback() (*os.File, error) {
	w := &c.spec.Worktree
	for _, owner := range []struct {
		kind string
		id   uint32
	}{{"user", w.OwnerUID}, {"group", w.OwnerGID}} {
		switch {
		case owner.id == 0:
			return nil, fmt.Errorf("it belongs to the %s root, and its file system has no id-mapped mounts: give it to another one: %w", owner.kind, sandbox.ErrUnsupported)
		case owner.id >= c.d.cfg.UIDBase:
			return nil, fmt.Errorf("it belongs to the %s %d, and its file system has no id-mapped mounts: ids from %d on are those of sessions; give it to another one: %w",
				owner.kind, owner.id, c.d.cfg.UIDBase, sandbox.ErrUnsupported)
		}
	}
	c.oneToOne = true
	c.rec.IDMap = "mapped 1:1"
	c.note(fmt.Sprintf("the worktree's file system has no id-mapped mounts: tools run as the host's uid %d and gid %d", w.OwnerUID, w.OwnerGID))
	return mount.Detach(w.Source, attributes(w.Mode == client.WorktreeRO), nil)
}

// prepareOutput shows the outputs as what they are: files of the host's root that
// everyone may read. With an id map the tool user would own them, and an owner
// may take leases (fcntl), which hold up whoever opens the file for writing: the
// daemon.
func (c *creation) prepareOutput() error {
	dir, err := os.OpenFile(c.spec.OutputDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := mount.Detach(dir, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOEXEC, nil)
	if err != nil {
		return err
	}
	c.mounts = append(c.mounts, mount.Detached{File: c.keep(f), Target: sandbox.OutputDir})
	return nil
}

func (c *creation) prepareMount(m sandbox.Mount) error {
	f, err := c.mappedOwner(m.Source)
	if err != nil {
		return err
	}
	c.mounts = append(c.mounts, mount.Detached{File: c.keep(f), Target: m.Target})
	return nil
}

// mappedOwner detaches a directory read-only with its owner shown as the tool
// user, or where that cannot be, as it is.
func (c *creation) mappedOwner(dir *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, err
	}
	f, err := c.mapped(dir, st.Uid, st.Gid, true)
	if errors.Is(err, mount.ErrNoIDMap) {
		c.note(fmt.Sprintf("%s: its file system has no id-mapped mounts: only what everyone may read is readable", dir.Name()))
		return mount.Detach(dir, unix.MOUNT_ATTR_RDONLY, nil)
	}
	return f, err
}

// mapped detaches a directory with one owner shown as the tool user.
func (c *creation) mapped(dir *os.File, uid, gid uint32, readOnly bool) (*os.File, error) {
	// The map is between the file system's ids and the host's; that the tool
	// user has this id on the host is the container's own map. In the 1:1 case it
	// is the owner of the worktree.
	tool, toolGroup := c.spec.UIDBase+sandbox.ToolUID, c.spec.UIDBase+sandbox.ToolGID
	if c.oneToOne {
		tool, toolGroup = c.spec.Worktree.OwnerUID, c.spec.Worktree.OwnerGID
	}
	userns, err := c.userNamespace(mount.Owner{UID: uid, GID: gid, AsUID: tool, AsGID: toolGroup})
	if err != nil {
		return nil, err
	}
	return mount.Detach(dir, attributes(readOnly), userns)
}

// userNamespace keeps the maps of one creation, whose directories mostly have
// one owner. No other creation has the same range of ids, so that there is
// nothing to keep beyond it.
func (c *creation) userNamespace(o mount.Owner) (*os.File, error) {
	if f := c.userns[o]; f != nil {
		return f, nil
	}
	f, err := c.newUserNamespace(o)
	if err != nil {
		return nil, fmt.Errorf("user namespace for id map: %w", err)
	}
	if c.userns == nil {
		c.userns = map[mount.Owner]*os.File{}
	}
	c.userns[o] = c.keep(f)
	return f, nil
}

// attributes of a worktree's or an extra directory's mount.
func attributes(readOnly bool) uint64 {
	if readOnly {
		return unix.MOUNT_ATTR_RDONLY
	}
	return 0
}

func (c *creation) note(s string) { c.rec.Notes = append(c.rec.Notes, s) }
