package docker

import (
	"fmt"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/mount"
)

// prepareMounts makes the detached mounts of what the session brings. They are
// attached when the container runs.
func (c *creation) prepareMounts() error {
	uid, gid := c.toolUser()
	set, err := mount.Session{
		Claim: &c.spec.Claim, ReadOnly: c.spec.Worktree.Mode == client.WorktreeRO,
		ToolUID: uid, ToolGID: gid, RootIsRoot: c.base == (ids{}), Staging: c.place.Path, OneToOne: c.checkOneToOne,
	}.Detach()
	if err != nil {
		return err
	}
	c.mounts, c.rec.IDMap = set.Mounts, set.IDMap
	c.rec.Notes = append(c.rec.Notes, set.Notes...)
	return nil
}

// toolUser is who the tool user is on the host.
func (c *creation) toolUser() (uid, gid uint32) {
	return c.base.uid + sandbox.ToolUID, c.base.gid + sandbox.ToolGID
}

// checkOneToOne is for file systems without id-mapped mounts. The Engine has one
// mapping of users for all containers, so that only the worktree fits of whom
// the tool user is on the host.
func (c *creation) checkOneToOne() error {
	w := &c.spec.Worktree
	if uid, gid := c.toolUser(); w.UID != uid || w.GID != gid {
		return fmt.Errorf("its file system has no id-mapped mounts, so that tools would have to run as %d:%d, and those of a Docker Engine's containers run as %d:%d: give it to them, or put it on another file system: %w",
			w.UID, w.GID, uid, gid, sandbox.ErrUnsupported)
	}
	return nil
}

func (c *creation) note(s string) { c.rec.Notes = append(c.rec.Notes, s) }
