package thread

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User is whose rights on files a thread may have.
type User struct {
	UID, GID uint32
	Groups   []uint32 `json:",omitempty"` // supplementary
}

// In says whether the user is in a group.
func (u User) In(gid uint32) bool { return u.GID == gid || slices.Contains(u.Groups, gid) }

// Do runs f on a thread of its own, which has assumed the user.
func (u User) Do(f func() error) error {
	_, err := Run(func() (struct{}, error) {
		err := u.Assume()
		if err == nil {
			err = f()
		}
		return struct{}{}, err
	})
	return err
}

// Assume gives the calling thread, and no other, the user's effective and file
// system ids and groups. Unless the user is root, the thread has no effective
// capability from then on, so that the kernel judges by the ids alone. All of it is
// read back. The goroutine must be Run's: after an error the thread may be half of
// another user's, and it cannot be given back in either case.
//
// Without root only the user that the process has is possible, as it is.
func (u User) Assume() error {
	if euid := os.Geteuid(); euid != 0 {
		if int(u.UID) == euid {
			return nil
		}
		return fmt.Errorf("work as user %d: only root can", u.UID)
	}
	// Go's own calls change all threads.
	const keep = ^uintptr(0)
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(unsafe.Pointer(unsafe.SliceData(u.Groups))), 0); e != 0 {
		return fmt.Errorf("setgroups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(u.GID), keep); e != 0 {
		return fmt.Errorf("setresgid %d: %w", u.GID, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(u.UID), keep); e != 0 {
		return fmt.Errorf("setresuid %d: %w", u.UID, e)
	}
	return u.check()
}

// check reads back what the kernel goes by when the thread opens a file.
func (u User) check() error {
	// An id that there is not changes nothing, and both calls say what there is.
	const none = ^uintptr(0)
	uid, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, none, 0, 0)
	gid, _, _ := unix.RawSyscall(unix.SYS_SETFSGID, none, 0, 0)
	if uint32(uid) != u.UID || uint32(gid) != u.GID {
		return fmt.Errorf("the thread works with files as %d:%d instead of %d:%d", uint32(uid), uint32(gid), u.UID, u.GID)
	}
	if err := u.checkGroups(); err != nil || u.UID == 0 {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if caps[0].Effective != 0 || caps[1].Effective != 0 {
		return fmt.Errorf("the thread of user %d still has capabilities (%x, %x)", u.UID, caps[0].Effective, caps[1].Effective)
	}
	return nil
}

func (u User) checkGroups() error {
	groups := make([]uint32, len(u.Groups)+1) // with no room at all the kernel would only count
	n, _, e := unix.RawSyscall(unix.SYS_GETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
	if e != 0 {
		return fmt.Errorf("getgroups: %w", e)
	}
	got, want := slices.Sorted(slices.Values(groups[:n])), slices.Sorted(slices.Values(u.Groups))
	if !slices.Equal(got, want) {
		return fmt.Errorf("the thread is in the groups %v instead of %v", got, want)
	}
	return nil
}
