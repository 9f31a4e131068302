package mount

import (
	"errors"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"syscall"
)

// Range shows the ids of a file system from FS on as those of the host from Host
// on, Size of them.
type Range struct{ FS, Host, Size uint32 }

// UserNamespace makes a user namespace that nobody is in, for an id map of users
// and groups; what is in no range is nobody's. Its only process is traced from
// birth and stopped before the first instruction of its program, so that it runs
// nothing; it is killed as soon as the namespace is open.
func UserNamespace(users, groups []Range) (*os.File, error) {
	goruntime.LockOSThread() // ptrace belongs to the thread
	defer goruntime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: idMaps(users),
		GidMappings: idMaps(groups),
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

func idMaps(ranges []Range) []syscall.SysProcIDMap {
	maps := make([]syscall.SysProcIDMap, len(ranges))
	for i, r := range ranges {
		maps[i] = syscall.SysProcIDMap{ContainerID: int(r.FS), HostID: int(r.Host), Size: int(r.Size)}
	}
	return maps
}
