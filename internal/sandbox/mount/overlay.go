package mount

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The names that the layers of an overlay are mounted under for the moment that
// it takes. The kernel shows them in the mountinfo of the sandbox, so that they
// say nothing about the host.
const (
	layerDisk  = "disk"
	layerUpper = layerDisk + "/root"
	layerWork  = layerDisk + "/work"
)

// Overlay mounts an overlay of detached mounts, which is attached nowhere yet: lower
// are its read-only layers, the uppermost first, and upper has the directories that
// PrepareUpper makes, or is nil where nothing is to be written; then there are at least
// two others. staging is a directory that is not changed. The mounts may be closed after
// it.
//
// The overlay never waits for disks: whoever needs what was written to survive a power
// cut sees to that. So the kernel refuses a second overlay with the same work directory.
func Overlay(staging string, lower []*os.File, upper *os.File, renames Renames) (*os.File, error) {
	// The thread has a mount namespace of its own, which ends with it, and the
	// layers' mounts with that.
	return privately(func() (*os.File, error) { return overlayLocked(staging, lower, upper, renames) })
}

// Renames says what an overlay does when a directory of a lower layer is renamed.
type Renames string

const (
	// RenamesCopy: programs are told to copy it (EXDEV), and no layer can point out of itself.
	// For lower layers of strangers.
	RenamesCopy Renames = "nofollow"
	// RenamesRedirect: it is renamed, and the upper layer says where to. Only for layers that
	// overlays of this daemon wrote: no process without its rights could set such an attribute.
	RenamesRedirect Renames = "on"
	// RenamesLight is RenamesRedirect, and a change of a file's attributes alone copies
	// nothing of it: its content stays in the layer below. For upper layers that are of no use
	// without those below.
	RenamesLight Renames = "light"
)

// PrepareUpper makes the two directories that an overlay needs for writing in dir. The
// overlay's root directory belongs to uid and gid, and has this mode.
func PrepareUpper(dir *os.File, uid, gid int, mode uint32) error {
	fd := int(dir.Fd())
	_, work, _ := strings.Cut(layerWork, "/")
	_, root, _ := strings.Cut(layerUpper, "/")
	return errors.Join(
		unix.Mkdirat(fd, work, 0o700),
		unix.Mkdirat(fd, root, 0o755),
		unix.Fchownat(fd, root, uid, gid, unix.AT_SYMLINK_NOFOLLOW),
		unix.Fchmodat(fd, root, mode&0o7777, 0)) // whatever the umask
}

// ClearUpper removes what PrepareUpper made in dir, with what an overlay that nobody wrote to
// has left in the work directory, so that it can be prepared again: an overlay that the kernel
// still has of a sandbox that could not be made goes on with directories of its own. ENOTEMPTY:
// somebody has written to it.
func ClearUpper(dir *os.File) error {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was opened to find names
	_, upper, _ := strings.Cut(layerUpper, "/")
	if err := root.Remove(upper); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	_, work, _ := strings.Cut(layerWork, "/")
	return root.RemoveAll(work)
}

// overlayLocked works in a mount namespace of this thread alone. Kernels before
// 6.15 take only layers that are attached in the namespace of who mounts.
func overlayLocked(staging string, lower []*os.File, upper *os.File, renames Renames) (*os.File, error) {
	if err := unix.Mount("tmpfs", staging, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k,mode=700"); err != nil {
		return nil, fmt.Errorf("stage layers: %w", err)
	}
	if err := unix.Chdir(staging); err != nil {
		return nil, err
	}
	options := map[string]string{
		// Whatever the kernel's defaults are.
		"redirect_dir": string(renames), "metacopy": "off", "index": "off", "xino": "off",
	}
	if renames == RenamesLight {
		options["redirect_dir"], options["metacopy"] = "on", "on"
	}
	if upper != nil {
		if err := attachLayer(layerDisk, upper); err != nil {
			return nil, err
		}
		options["upperdir"], options["workdir"], options["volatile"] = layerUpper, layerWork, ""
	}
	var names []string
	for i, l := range lower {
		name := strconv.Itoa(i) // short: the kernel takes 255 bytes of them
		if err := attachLayer(name, l); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	options["lowerdir"] = strings.Join(names, ":")
	return New("overlay", "overlay", options, unix.MOUNT_ATTR_NODEV)
}

func attachLayer(name string, mount *os.File) error {
	if err := unix.Mkdir(name, 0o700); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	err := unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, name, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("%s: move_mount: %w", name, err)
	}
	return nil
}
