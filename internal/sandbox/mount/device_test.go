package mount

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDevicesWithoutDev: a device is the same one, found in /dev or without it.
func TestDevicesWithoutDev(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	var want, got unix.Stat_t
	if err := unix.Stat("/dev/null", &want); err != nil {
		t.Fatal(err)
	}
	all, err := New("devtmpfs", "devtmpfs", nil, unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	if err := unix.Fstatat(int(all.Fd()), "null", &got, 0); err != nil || got.Rdev != want.Rdev {
		t.Errorf("null is device %#x, %v, want %#x", got.Rdev, err, want.Rdev)
	}
	if f, err := OpenDevice("no-such-device"); err == nil {
		f.Close()
		t.Error("a device that there is none of was opened")
	}
}
