package cgroup

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/thread"
)

// mountV2 opens the root of the v2 hierarchy as a mount that is attached nowhere:
// nobody else on the host sees a difference.
func mountV2() (*os.File, error) {
	fsfd, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen cgroup2: %w", err)
	}
	defer unix.Close(fsfd)
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return nil, fmt.Errorf("fsconfig cgroup2: %w", err)
	}
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsmount cgroup2: %w", err)
	}
	return os.NewFile(uintptr(fd), "cgroup2"), nil
}

// Detach makes t use a v2 hierarchy of its own, as Open does on a host that has none
// mounted.
func (t *Tree) Detach() error {
	f, err := mountV2()
	if err != nil {
		return err
	}
	t.detached, t.v2 = f, fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	return nil
}

// OpenTools opens the tools' directory of a session as a mount of its own.
func (t *Tree) OpenTools(id string) (*os.File, error) {
	if t.detached == nil {
		return openTree(filepath.Join(t.Dir(id), "tools"))
	}
	// Kernels before 6.15 clone only what is attached to the caller's own mount
	// namespace. So a thread gets one for itself, and ends with it.
	return thread.Run(func() (*os.File, error) { return openTreePrivate(filepath.Join(t.Path(id), "tools")) })
}

func openTree(path string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openTreePrivate mounts the v2 hierarchy in a mount namespace of the calling
// thread alone, which must be locked and about to end.
func openTreePrivate(path string) (*os.File, error) {
	const place = "/sys/fs/cgroup"
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	root, err := mountV2()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := unix.MoveMount(int(root.Fd()), "", unix.AT_FDCWD, place, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, fmt.Errorf("mount cgroup2: %w", err)
	}
	return openTree(filepath.Join(place, path))
}
