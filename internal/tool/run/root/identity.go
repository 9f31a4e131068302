package root

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// identity is the effective user and group that a thread works with.
type identity struct{ uid, gid int }

// keep is the argument of setresuid that leaves an id as it is.
const keep = ^uintptr(0)

// assume gives the calling thread, and no other, the identity. The caller must
// have locked its goroutine to the thread and must not unlock it before giveBack
// has said that its own identity is back. The real and
// saved ids stay, so that processes of the tool user can neither signal nor
// trace the thread; the effective capabilities are gone.
//
// The system calls are raw because Go's own change every thread of the process. Package
// thread reads ids back by setfsuid, which gVisor does not have.
func (id identity) assume() error {
	if id.uid < 0 {
		return nil
	}
	if n, _, e := unix.RawSyscall(unix.SYS_GETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("getgroups: %w", e)
	} else if n > 0 {
		if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
			return fmt.Errorf("setgroups: %w", e)
		}
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(id.gid), keep); e != 0 {
		return fmt.Errorf("setresgid %d: %w", id.gid, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(id.uid), keep); e != 0 {
		return fmt.Errorf("setresuid %d: %w", id.uid, e)
	}
	return id.verifyAll()
}

// giveBack ends what assume began: the calling thread gets its real ids back as
// the effective ones, and with them its capabilities. Supplementary groups were
// given up for good; the agent has none.
func (id identity) giveBack() error {
	if id.uid < 0 {
		return nil
	}
	uid, _, _ := unix.RawSyscall(unix.SYS_GETUID, 0, 0, 0)
	gid, _, _ := unix.RawSyscall(unix.SYS_GETGID, 0, 0, 0)
	// The user first: the group needs the rights that come with it.
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uid, keep); e != 0 {
		return fmt.Errorf("setresuid %d: %w", uid, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, keep, gid, keep); e != 0 {
		return fmt.Errorf("setresgid %d: %w", gid, e)
	}
	return identity{uid: int(uid), gid: int(gid)}.verify()
}

// verify reads the effective ids of the calling thread back. It costs two of
// the cheapest system calls, so every piece of work begins with it.
func (id identity) verify() error {
	if id.uid < 0 {
		return nil
	}
	euid, _, _ := unix.RawSyscall(unix.SYS_GETEUID, 0, 0, 0)
	egid, _, _ := unix.RawSyscall(unix.SYS_GETEGID, 0, 0, 0)
	if int(euid) != id.uid || int(egid) != id.gid {
		return fmt.Errorf("a file thread has effective ids %d:%d instead of %d:%d", euid, egid, id.uid, id.gid)
	}
	return nil
}

// verifyAll also proves that no supplementary group and no effective capability
// is left.
func (id identity) verifyAll() error {
	if err := id.verify(); err != nil {
		return err
	}
	if n, _, e := unix.RawSyscall(unix.SYS_GETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("getgroups: %w", e)
	} else if n != 0 {
		return fmt.Errorf("a file thread has %d supplementary groups", n)
	}
	var data [2]unix.CapUserData
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	_, _, e := unix.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0)
	if e != 0 {
		return fmt.Errorf("capget: %w", e)
	}
	if id.uid != 0 && data[0].Effective|data[1].Effective != 0 {
		return fmt.Errorf("a file thread has effective capabilities %08x%08x", data[1].Effective, data[0].Effective)
	}
	return nil
}
