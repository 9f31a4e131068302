package attack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// again starts this program once more, as the command given with the program and
// its arguments after it, and gives the status it ended with. It does not outlive
// this process.
func again(attr *syscall.SysProcAttr, env string, wrap ...string) (status int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	argv := append(append(wrap, self), os.Args[1:]...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env+"=1")
	runtime.LockOSThread() // whose death is that of the parent
	defer runtime.UnlockOSThread()
	attr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = attr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return 0, err
	}
	if status := cmd.ProcessState.ExitCode(); status >= 0 {
		return status, nil
	}
	return 1, fmt.Errorf("the tests: %s", cmd.ProcessState)
}

const (
	ownMounts = "TOOLD_ATTACK_OWN_MOUNTS"
	ownEngine = "TOOLD_ATTACK_OWN_ENGINE"
)

// surroundings gives the run a mount namespace of its own, in which no other
// program of the machine changes anything, and what the tier needs beside it. done
// says that the tests have been run there, with the status they ended with.
func surroundings() (status int, done bool, err error) {
	if os.Getenv(ownMounts) == "" {
		status, err = again(&syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}, ownMounts)
		return status, err == nil, err
	}
	if current.engine && os.Getenv(ownEngine) == "" {
		script, err := filepath.Abs("../../scripts/engine")
		if err != nil {
			return 0, false, err
		}
		status, err = again(&syscall.SysProcAttr{}, ownEngine, script, "run")
		return status, err == nil, err
	}
	return 0, false, nil
}
