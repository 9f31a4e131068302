package mount

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// New makes a mount of a new file system that is attached nowhere. An option
// with an empty value is a flag. attributes (MOUNT_ATTR_…) are set besides nosuid and
// noatime.
func New(kind, source string, options map[string]string, attributes int) (*os.File, error) {
	fsfd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen %s: %w", kind, err)
	}
	defer unix.Close(fsfd)
	if err := unix.FsconfigSetString(fsfd, "source", source); err != nil {
		return nil, fmt.Errorf("%s: source: %w", kind, err)
	}
	for key, value := range options {
		if value == "" {
			err = unix.FsconfigSetFlag(fsfd, key)
		} else {
			err = unix.FsconfigSetString(fsfd, key, value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: option %s=%s: %w", kind, key, value, err)
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return nil, fmt.Errorf("%s: %w%s", kind, err, messages(fsfd))
	}
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOATIME|attributes)
	if err != nil {
		return nil, fmt.Errorf("fsmount %s: %w", kind, err)
	}
	return os.NewFile(uintptr(fd), kind), nil
}

// messages is what the kernel says about a failed mount beside the error.
func messages(fsfd int) string {
	var all strings.Builder
	buf := make([]byte, 4096)
	for range 8 {
		n, err := unix.Read(fsfd, buf)
		if err != nil || n <= 0 {
			break
		}
		all.WriteString(": " + strings.TrimSpace(string(buf[:n])))
	}
	return all.String()
}
