package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Views makes read-only mounts of directories and files that are the host's own and
// no stranger's. views has the path on the host by the path inside; none may lie in
// another. The files are the caller's to close, also after an error.
func Views(views map[string]string) ([]Detached, error) {
	var list []Detached
	for _, target := range slices.Sorted(maps.Keys(views)) {
		m, err := view(views[target], target)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without that
		} else if err != nil {
			return list, fmt.Errorf("show %s: %w", target, err)
		}
		list = append(list, m)
	}
	return list, nil
}

func view(source, target string) (Detached, error) {
	f, err := os.OpenFile(source, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Detached{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return Detached{}, err
	}
	m, err := Detach(f, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOEXEC, nil)
	return Detached{File: m, Target: target, Plain: !fi.IsDir()}, err
}
