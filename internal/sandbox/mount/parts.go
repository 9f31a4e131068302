package mount

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Parts makes mounts of directories of a file system that is mounted nowhere, by their paths
// in it, on which nobody else may put a link. whole may be closed after it. staging is a directory that is not changed.
//
// Kernels before 6.15 clone nothing of a mount that is attached nowhere. So it is attached for
// that moment, in a mount namespace that ends with the thread.
func Parts(staging string, whole *os.File, names []string) ([]*os.File, error) {
	return privately(func() (parts []*os.File, err error) {
		if err := unix.MoveMount(int(whole.Fd()), "", unix.AT_FDCWD, staging, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return nil, fmt.Errorf("move_mount: %w", err)
		}
		for _, n := range names {
			part, err := partOf(whole, n)
			if err != nil {
				for _, p := range parts {
					err = errors.Join(err, p.Close())
				}
				return nil, fmt.Errorf("%s: %w", n, err)
			}
			parts = append(parts, part)
		}
		return parts, nil
	})
}

func partOf(whole *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(whole.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	return Detach(dir, 0, nil)
}
