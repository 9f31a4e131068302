package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// UnmountBelow detaches all that is mounted in this namespace at dir or below it,
// the last first. A directory that there is not has nothing mounted.
func UnmountBelow(dir string) error {
	// The kernel lists places without the links that lead there, such as /var/run.
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(points) {
		err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return nil
}

// mountsBelow lists mount points at dir or below it in the order in which they
// were made.
func mountsBelow(dir string) ([]string, error) {
	table, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if p := unescapeMount(fields[4]); within(p, dir) {
			points = append(points, p)
		}
	}
	return points, nil
}

// unescapeMount undoes what mountinfo does to blanks, line ends and backslashes.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// within says whether p is dir or below it. Both are clean and absolute.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
