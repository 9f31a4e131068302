package oci

import (
	"fmt"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/mount"
)

// prepareMounts makes the detached mounts before the container exists, since
// whether a file system takes an id map decides about the container's own map.
func (c *creation) prepareMounts() error {
	base := c.spec.UIDBase
	session := mount.Session{
		Claim: &c.spec.Claim, ReadOnly: c.spec.Worktree.Mode == client.WorktreeRO,
		ToolUID: base + sandbox.ToolUID, ToolGID: base + sandbox.ToolGID, Staging: c.d.rootsDir(), OneToOne: c.checkOneToOne,
	}
	if c.runtime.gvisor {
		if c.spec.Worktree.GuardGit {
			// Its kernel renames files by descriptors of another mount namespace,
			// where nothing is mounted over them.
			return fmt.Errorf("worktrees.guard_git: gVisor does not hold it, a file that is mounted over can be replaced there; turn it off, or take runc: %w", sandbox.ErrUnsupported)
		}
		// Root of the sandbox is shown as itself: should gVisor die between making
		// a file and giving it away, the file belongs to nobody on this host.
		session.Beside = []mount.Range{{FS: base, Host: base, Size: 1}}
	}
	set, err := session.Detach()
	if err != nil {
		return err
	}
	for _, m := range set.Mounts {
		c.keep(m.File)
	}
	c.mounts, c.rec.IDMap = set.Mounts, set.IDMap
	if c.oneToOne = set.IDMap == mount.MappedOneToOne; c.oneToOne {
		w := &c.spec.Worktree
		c.note(fmt.Sprintf("the worktree's file system has no id-mapped mounts: tools run as the host's uid %d and gid %d", w.UID, w.GID))
	}
	c.rec.Notes = append(c.rec.Notes, set.Notes...)
	return nil
}

// preparePlaces settles who owns the places that lie on the session's disk. gVisor takes no
// mounts while it runs, so that it gets them at once.
func (c *creation) preparePlaces() error {
	if c.disk.Size == 0 {
		return nil
	}
	base, w := int(c.spec.UIDBase), &c.spec.Worktree
	o := loopdisk.Owners{RootUID: base, RootGID: base, ToolUID: base + sandbox.ToolUID, ToolGID: base + sandbox.ToolGID}
	if c.oneToOne {
		o.ToolUID, o.ToolGID = int(w.UID), int(w.GID)
	}
	if !c.runtime.gvisor {
		c.rec.Own, c.rec.Owners = c.disk, o
		return nil
	}
	mounts, err := loopdisk.Places(c.d.disksDir(), c.spec.SessionID, c.disk, o)
	for _, m := range mounts {
		c.keep(m.File)
	}
	c.mounts = append(mounts, c.mounts...)
	return err
}

// checkOneToOne says whether the ids of the worktree may be mapped 1:1. Never root's,
// neither as user nor as group, who would then be in the sandbox; and no id of a
// session, be it another: its processes could then be reached.
func (c *creation) checkOneToOne() error {
	w := &c.spec.Worktree
	for _, tool := range []struct {
		kind string
		id   uint32
	}{{"user", w.UID}, {"group", w.GID}} {
		switch {
		case tool.id == 0:
			return fmt.Errorf("its file system has no id-mapped mounts, and tools would be the host's %s root there: give it to another one: %w", tool.kind, sandbox.ErrUnsupported)
		case tool.id >= c.d.cfg.UIDBase:
			return fmt.Errorf("its file system has no id-mapped mounts, and tools would be the host's %s %d there: ids from %d on are those of sessions; give it to another one: %w",
				tool.kind, tool.id, c.d.cfg.UIDBase, sandbox.ErrUnsupported)
		}
	}
	return nil
}

func (c *creation) note(s string) { c.rec.Notes = append(c.rec.Notes, s) }
