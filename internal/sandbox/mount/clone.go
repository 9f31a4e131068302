package mount

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// clone makes another mount of a directory, without mounts below it.
//
// Kernels before 6.15 refuse that for a mount that is attached nowhere (EINVAL). The disks of
// layers and caches are such mounts. Their file system is then mounted once more.
func clone(src *os.File) (*os.File, error) {
	f, err := openTree(src)
	if errors.Is(err, unix.EINVAL) && onDisk(src) && nowhere(src) {
		if f, again := anew(src); again == nil {
			return f, nil
		} else {
			err = errors.Join(err, fmt.Errorf("mount its file system again: %w", again))
		}
	}
	return f, err
}

// likeBefore615 makes openTree refuse what kernels before 6.15 do.
var likeBefore615 atomic.Bool

// LikeBefore615 makes this process refuse to clone mounts that are attached nowhere, as kernels
// before 6.15 do, so that tests see on any kernel what happens there. It gives back the function
// that ends it.
func LikeBefore615() (end func()) {
	likeBefore615.Store(true)
	return func() { likeBefore615.Store(false) }
}

func openTree(src *os.File) (*os.File, error) {
	if likeBefore615.Load() && nowhere(src) {
		return nil, fmt.Errorf("open_tree: %w", unix.EINVAL)
	}
	fd, err := unix.OpenTree(int(src.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("open_tree: %w", err)
	}
	return os.NewFile(uintptr(fd), src.Name()), nil
}

// loopMajor is the device number that all loop devices have.
const loopMajor = 7

// onDisk reports whether a directory is on an ext4 on a loop device, as all disks are.
func onDisk(dir *os.File) bool {
	var st unix.Stat_t
	var fs unix.Statfs_t
	return unix.Fstat(int(dir.Fd()), &st) == nil && unix.Major(st.Dev) == loopMajor &&
		unix.Fstatfs(int(dir.Fd()), &fs) == nil && fs.Type == unix.EXT4_SUPER_MAGIC
}

// nowhere reports whether the mount that f was opened by is not in this thread's mount namespace.
func nowhere(f *os.File) bool {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return false
	}
	all, err := os.ReadFile("/proc/thread-self/mountinfo")
	id := []byte(strconv.FormatUint(st.Mnt_id, 10) + " ")
	return err == nil && !bytes.HasPrefix(all, id) && !bytes.Contains(all, append([]byte{'\n'}, id...))
}

// anew makes a mount of a directory by mounting its disk again and attaching it, in a mount
// namespace that ends with the thread. The kernel has one superblock for all mounts of a
// device, so that all of them see the same files.
func anew(src *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return nil, err
	}
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return nil, err
	}
	// The path of a mount that is attached nowhere begins at its root.
	path, err := os.Readlink(fmt.Sprintf("/proc/thread-self/fd/%d", src.Fd()))
	if err != nil {
		return nil, err
	}
	whole, err := mountDevice(filepath.Base(device))
	if err != nil {
		return nil, err
	}
	defer whole.Close()
	return privately(func() (*os.File, error) {
		if err := unix.MoveMount(int(whole.Fd()), "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return nil, fmt.Errorf("move_mount: %w", err)
		}
		dir, err := beneath.OpenFile(whole, filepath.Join(".", strings.TrimPrefix(path, "/")), unix.O_PATH|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		if is, err := inodeOf(dir); err != nil || is != (Inode{Dev: st.Dev, Ino: st.Ino}) {
			return nil, errors.Join(err, errors.New("another file has been put into its place"))
		}
		return openTree(dir)
	})
}

// mountDevice mounts the ext4 of a loop device that has it mounted already: options are those
// of the first mount. A file system that has become read-only is mounted so.
func mountDevice(name string) (*os.File, error) {
	loop, err := OpenDevice(name)
	if err != nil {
		return nil, err
	}
	defer loop.Close()
	f, err := New("ext4", loop.Name(), nil, unix.MOUNT_ATTR_NODEV)
	if errors.Is(err, unix.EBUSY) {
		f, err = New("ext4", loop.Name(), map[string]string{"ro": ""}, unix.MOUNT_ATTR_NODEV)
	}
	return f, err
}
