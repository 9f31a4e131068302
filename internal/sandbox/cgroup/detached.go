package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox/mount"
)

// mountV2 opens the root of the v2 hierarchy as a mount that is attached nowhere:
// nobody else on the host sees a difference.
func mountV2() (*os.File, error) {
	return mount.New("cgroup2", "cgroup2", nil, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
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
		path := t.toolsDir(id)
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("open_tree %s: %w", path, err)
		}
		return os.NewFile(uintptr(fd), path), nil
	}
	root, err := mountV2()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	parts, err := mount.Parts(viewRoot, root, []string{strings.TrimPrefix(filepath.Join(t.Path(id), "tools"), "/")})
	if err != nil {
		return nil, err
	}
	return parts[0], nil
}
