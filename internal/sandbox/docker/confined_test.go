package docker

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
)

// A process that lacks a part of the wall is none of a sandbox's.
func TestConfined(t *testing.T) {
	runtime.LockOSThread() // the processes end with the thread, and the driver's threads end
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	p, err := process.Open(cmd.Process.Pid, 0, nil)
	must(t, err)
	defer p.Close()
	if err := isOf(p, strings.Repeat("b", 64)); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("a process of nothing: %v", err)
	}
	if err := confined(p); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("a process of the host: %v", err)
	}
	if err := apart(p, "net"); err == nil || !strings.Contains(err.Error(), "host's net namespace") {
		t.Errorf("its network: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root makes namespaces")
	}
	own := exec.Command("sleep", "60")
	own.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET}
	must(t, own.Start())
	defer func() {
		_ = own.Process.Kill()
		_ = own.Wait()
	}()
	q, err := process.Open(own.Process.Pid, 0, nil)
	must(t, err)
	defer q.Close()
	must(t, apart(q, "net"))
}
