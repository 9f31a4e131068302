package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// OpenDevice opens one of the kernel's devices. A service or a container may have a
// /dev of its own with none of them in it; then the device is found in a devtmpfs
// that is attached nowhere. Whether it may be opened is for the device cgroup to say,
// there as here.
func OpenDevice(name string) (*os.File, error) {
	f, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	all, mountErr := New("devtmpfs", "devtmpfs", nil, unix.MOUNT_ATTR_NOEXEC)
	if mountErr != nil {
		return nil, errors.Join(err, mountErr)
	}
	defer all.Close()
	fd, err := unix.Openat(int(all.Fd()), name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "devtmpfs/" + name, Err: err}
	}
	// Its only path, and one that can be mounted.
	return os.NewFile(uintptr(fd), fmt.Sprintf("/proc/self/fd/%d", fd)), nil
}
