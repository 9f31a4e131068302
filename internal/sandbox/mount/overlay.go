package mount

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/thread"
)

// The names that the layers of an overlay are mounted under for the moment that
// it takes. The kernel shows them in the mountinfo of the sandbox, so that they
// say nothing about the host.
const (
	layerDisk  = "disk"
	layerUpper = layerDisk + "/root"
	layerWork  = layerDisk + "/work"
)

// Overlay mounts an overlay of detached mounts, which is attached nowhere yet:
// lower are its read-only layers, the uppermost first, and disk is the file
// system that takes the changes; its root directory belongs to uid and gid.
// staging is a directory that is not changed. The mounts may be closed after it.
func Overlay(staging string, lower []*os.File, disk *os.File, uid, gid int) (*os.File, error) {
	if err := prepareUpper(disk, uid, gid); err != nil {
		return nil, fmt.Errorf("writable layer: %w", err)
	}
	// The thread has a mount namespace of its own, which ends with it, and the
	// layers' mounts with that.
	return thread.Run(func() (*os.File, error) { return overlayLocked(staging, lower, disk) })
}

// prepareUpper makes the two directories that an overlay needs for writing.
func prepareUpper(disk *os.File, uid, gid int) error {
	fd := int(disk.Fd())
	_, work, _ := strings.Cut(layerWork, "/")
	_, root, _ := strings.Cut(layerUpper, "/")
	return errors.Join(
		unix.Mkdirat(fd, work, 0o700),
		unix.Mkdirat(fd, root, 0o755),
		unix.Fchmodat(fd, root, 0o755, 0), // whatever the umask
		unix.Fchownat(fd, root, uid, gid, unix.AT_SYMLINK_NOFOLLOW))
}

// overlayLocked works in a mount namespace of this thread alone. Kernels before
// 6.15 take only layers that are attached in the namespace of who mounts.
func overlayLocked(staging string, lower []*os.File, disk *os.File) (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", staging, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k,mode=700"); err != nil {
		return nil, fmt.Errorf("stage layers: %w", err)
	}
	if err := unix.Chdir(staging); err != nil {
		return nil, err
	}
	if err := attachLayer(layerDisk, disk); err != nil {
		return nil, err
	}
	var names []string
	for i, l := range lower {
		name := "layer" + strconv.Itoa(i)
		if err := attachLayer(name, l); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return New("overlay", "overlay", map[string]string{
		"lowerdir": strings.Join(names, ":"), "upperdir": layerUpper, "workdir": layerWork,
		// Whatever the kernel's defaults are: nothing of a layer may point out of
		// it, and a directory is renamed by copying it.
		"redirect_dir": "nofollow", "metacopy": "off", "index": "off", "xino": "off",
		// Nothing of the upper layer outlives the mount, so nobody waits for disks.
		"volatile": "",
	})
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
