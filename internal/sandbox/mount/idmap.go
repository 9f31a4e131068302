package mount

import (
	"errors"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"syscall"
)

// Owner is an id map that shows one owner as one user and group, and everyone
// else as nobody.
type Owner struct{ UID, GID, AsUID, AsGID uint32 }

// UserNamespace makes a user namespace that nobody is in. Its only process is
// traced from birth and stopped before the first instruction of its program, so
// that it runs nothing; it is killed as soon as the namespace is open.
func (o Owner) UserNamespace() (*os.File, error) {
	goruntime.LockOSThread() // ptrace belongs to the thread
	defer goruntime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.UID), HostID: int(o.AsUID), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.GID), HostID: int(o.AsGID), Size: 1}},
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
