// Package mount makes mounts that are attached nowhere, of directories that are pinned
// as descriptors, and moves them into running sandboxes: on no step is a path
// resolved that anybody else could change.
package mount

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
	"github.com/toold/toold/internal/thread"
)

// Detached is a mount that is attached nowhere yet.
type Detached struct {
	File   *os.File
	Target string // absolute path inside the sandbox
	// Over is what the target must be, which may also be a regular file; zero for any
	// directory.
	Over Inode
	// Plain says that the mount is of a file, and the target one too.
	Plain bool
}

// Inode names a file or a directory, as long as somebody has it.
type Inode struct{ Dev, Ino uint64 }

// ErrNoIDMap: the file system of the source cannot be mounted with an id map.
var ErrNoIDMap = errors.New("file system has no id-mapped mounts")

// Detach clones the mount of a pinned directory, without mounts below it.
// attributes (MOUNT_ATTR_…) are set besides nosuid and nodev; userns, when not
// nil, gives the id map. The mount may itself be attached nowhere, if it is that of a
// disk in a file.
func Detach(src *os.File, attributes uint64, userns *os.File) (*os.File, error) {
	f, err := clone(src)
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	attr := unix.MountAttr{
		Attr_set:    attributes | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Propagation: unix.MS_PRIVATE,
	}
	if userns != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(userns.Fd())
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		f.Close()
		if userns != nil && errors.Is(err, unix.EINVAL) {
			return nil, ErrNoIDMap
		}
		return nil, fmt.Errorf("mount_setattr: %w", err)
	}
	return f, nil
}

// Attach moves detached mounts into the mount namespace of the process whose
// /proc directory is proc. Targets are resolved from the process's root without
// following any link, so that none lands elsewhere.
func Attach(proc *os.File, mounts []Detached) error {
	if len(mounts) == 0 {
		return nil
	}
	_, err := thread.Run(func() (struct{}, error) { return struct{}{}, attachLocked(proc, mounts) })
	return err
}

func attachLocked(proc *os.File, mounts []Detached) error {
	root, err := enter(proc)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, m := range mounts {
		if err := attachOne(root, m); err != nil {
			return err
		}
	}
	return nil
}

// enter takes this thread into the mount namespace of a process, and opens that one's
// root.
func enter(proc *os.File) (root *os.File, err error) {
	ns, err := process.OpenIn(proc, "ns/mnt", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if root, err = process.OpenIn(proc, "root", unix.O_PATH|unix.O_DIRECTORY); err != nil {
		return nil, err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("setns: %w", err)
	}
	return root, nil
}

func attachOne(root *os.File, m Detached) error {
	kind := uint64(unix.O_DIRECTORY)
	switch {
	case m.Over != (Inode{}):
		kind = unix.O_NOFOLLOW
	case m.Plain:
		kind = 0
	}
	at, err := openAt(root, m.Target, kind)
	if err != nil {
		return err
	}
	defer at.Close()
	if m.Over != (Inode{}) {
		if is, err := inodeOf(at); err != nil || is != m.Over {
			return fmt.Errorf("%s: %w: another file has been put into its place", m.Target, errors.Join(sandbox.ErrMountTarget, err))
		}
	}
	err = unix.MoveMount(int(m.File.Fd()), "", int(at.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("mount %s: %w", m.Target, err)
	}
	return nil
}

func inodeOf(f *os.File) (Inode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Inode{}, err
	}
	return Inode{Dev: st.Dev, Ino: st.Ino}, nil
}
