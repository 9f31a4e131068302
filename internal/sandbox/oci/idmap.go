package oci

import (
	"errors"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"syscall"
)

// leastUIDBase is the lowest id that a range of a session may begin with: those
// below are people and services.
const leastUIDBase = 1 << 16

// singleID is an id map that shows one owner as one user and group, and everyone
// else as nobody.
type singleID struct{ uid, gid, asUID, asGID uint32 }

// newUserNamespace makes a user namespace that nobody is in. Its only process is
// traced from birth and stopped before the first instruction of its program, so
// that it runs nothing; it is killed as soon as the namespace is open.
func newUserNamespace(m singleID) (*os.File, error) {
	goruntime.LockOSThread() // ptrace belongs to the thread
	defer goruntime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(m.uid), HostID: int(m.asUID), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(m.gid), HostID: int(m.asGID), Size: 1}},
		Ptrace:      true,
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/user")
	killed := cmd.Process.Kill()
	// It was killed: how it ended says nothing.
	_ = cmd.Wait()
	if err := errors.Join(err, killed); err != nil {
		return nil, err
	}
	return f, nil
}
