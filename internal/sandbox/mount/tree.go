package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox"
)

// overlay adds the mounts of a worktree of mode overlay: itself, and what it is compared
// with in a directory that only the sandbox's root can enter.
func (d *detaching) overlay() error {
	w, o := &d.Worktree, d.Worktree.Overlay
	from := source{w.Source, w.UID, w.GID}
	tree, err := d.layered(from, o.Lower, o.Upper, RenamesRedirect)
	if err != nil {
		return err
	}
	d.add(tree, d.Worktree.Target)
	d.set.IDMap = IDMapped
	private, err := d.private()
	if err != nil {
		return fmt.Errorf("%s: %w", sandbox.TreeDir, err)
	}
	d.add(private, sandbox.TreeDir)
	base, err := d.layered(from, o.Base, nil, RenamesRedirect)
	if err != nil {
		return fmt.Errorf("what it is compared with: %w", err)
	}
	d.add(base, filepath.Join(sandbox.TreeDir, sandbox.TreeBase))
	return nil
}

// Relay puts a worktree of mode overlay into the place of the one in the mount namespace
// of the process whose /proc directory is proc; see sandbox.Relaying.
func (s Session) Relay(proc *os.File) error {
	d := s.detaching()
	defer d.close()
	if err := d.overlay(); err != nil {
		d.closeMounts()
		return err
	}
	defer d.closeMounts()
	at := func(target string) Detached {
		return d.set.Mounts[slices.IndexFunc(d.set.Mounts, func(m Detached) bool { return m.Target == target })]
	}
	return Replace(proc, at(d.Worktree.Target), at(filepath.Join(sandbox.TreeDir, sandbox.TreeBase)))
}

// source is a directory below layers, and whose ids are shown as the tool user's.
type source struct {
	dir      *os.File
	uid, gid uint32
}

// layered is a mount of the source below layers. Without an upper one it is read-only.
func (d *detaching) layered(from source, layers []*os.File, upper *os.File, renames Renames) (*os.File, error) {
	source, err := d.asTool(from.dir, from.uid, from.gid, unix.MOUNT_ATTR_RDONLY)
	if errors.Is(err, ErrNoIDMap) {
		return nil, fmt.Errorf("its file system has no id-mapped mounts, which the mode overlay needs: take the mode bind, or put it on ext4, xfs or btrfs: %w", sandbox.ErrUnsupported)
	}
	if err != nil || upper == nil && len(layers) == 0 {
		return source, err
	}
	mounts := []*os.File{source}
	defer func() {
		for _, m := range mounts {
			_ = m.Close()
		}
	}()
	for _, l := range slices.Backward(layers) {
		m, err := d.frozen(l)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.Name(), err)
		}
		mounts = append(mounts, m)
	}
	lower := slices.Clone(mounts)
	slices.Reverse(lower)
	if upper == nil {
		return Overlay(d.Staging, lower, nil, renames)
	}
	top, err := Detach(upper, 0, nil)
	if err == nil {
		mounts = append(mounts, top)
		var st unix.Stat_t // of the directory that the overlay's root lies over
		if err = unix.Fstat(int(lower[0].Fd()), &st); err == nil {
			err = PrepareUpper(top, int(d.ToolUID), int(d.ToolGID), st.Mode)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("upper layer: %w", err)
	}
	f, err := Overlay(d.Staging, lower, top, renames)
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("the file system of %s cannot take the changes of an overlay (%w): put the state directory on ext4, xfs, btrfs or tmpfs: %w", upper.Name(), err, sandbox.ErrUnsupported)
	}
	return f, err
}

// frozen shows a layer read-only. One that was written by another tool user is shown as
// this one's; root's, the marks of what was removed, stay root's.
func (d *detaching) frozen(layer *os.File) (*os.File, error) {
	dir, err := openLayer(layer)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Uid == d.ToolUID && st.Gid == d.ToolGID {
		return Detach(dir, unix.MOUNT_ATTR_RDONLY, nil)
	}
	return d.asTool(dir, st.Uid, st.Gid, unix.MOUNT_ATTR_RDONLY)
}

// openLayer opens the directory of a layer's that has what was written.
func openLayer(dir *os.File) (*os.File, error) {
	fd, err := beneath.Open(int(dir.Fd()), filepath.Base(layerUpper), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir.Name()), nil
}

// private makes the file system that has the places for mounts of the agent's own.
func (d *detaching) private() (*os.File, error) {
	f, err := New("tmpfs", "tmpfs", map[string]string{
		"size": "4k", "nr_inodes": "4", "mode": "0700",
		"uid": strconv.Itoa(int(d.ownUIDs.Host)), "gid": strconv.Itoa(int(d.ownGIDs.Host)),
	}, unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.Mkdirat(int(f.Fd()), sandbox.TreeBase, 0o755),
		unix.Fchmodat(int(f.Fd()), sandbox.TreeBase, 0o755, 0), // whatever the umask
		unix.MountSetattr(int(f.Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC}))
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
