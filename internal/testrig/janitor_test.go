package testrig

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestKilledTestLeavesNothing: a test program that is killed has its directory removed, with
// the program that runs there, and as root what is mounted there and its cgroup.
func TestKilledTestLeavesNothing(t *testing.T) {
	if os.Getenv("TOOLD_TEST_TO_BE_KILLED") != "" {
		beKilled(t)
	}
	t.Parallel()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestKilledTestLeavesNothing$")
	cmd.Env = append(os.Environ(), "TOOLD_TEST_TO_BE_KILLED=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	Must(t, err)
	defer stdin.Close()
	out, err := cmd.StdoutPipe()
	Must(t, err, cmd.Start())
	made := bufio.NewScanner(out)
	for made.Scan() && !strings.HasPrefix(made.Text(), "/tmp/") && !strings.HasPrefix(made.Text(), os.TempDir()) {
	}
	dir, pid, found := strings.Cut(made.Text(), " ")
	if !found {
		t.Fatalf("the program says %q, %v", made.Text(), cmd.Wait())
	}
	Must(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	Eventually(t, "nothing is left of "+dir, func() bool {
		_, err := os.Lstat(dir)
		state, alive := os.ReadFile("/proc/" + pid + "/status")
		return os.IsNotExist(err) && len(Cgroups(filepath.Base(dir))) == 0 &&
			(alive != nil || strings.Contains(string(state), "State:\tZ"))
	})
}

// beKilled makes what a rig makes, says so, and waits.
func beKilled(t *testing.T) {
	dir, err := MkdirTemp("toold-killed-")
	Must(t, err)
	program := filepath.Join(dir, "program")
	Must(t, os.Symlink("/bin/sleep", program))
	cmd := exec.Command(program, "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	Must(t, cmd.Start())
	if os.Getuid() == 0 {
		for _, base := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
			group := filepath.Join(base, filepath.Base(dir), "below")
			if _, err := os.Stat(base + "/cgroup.procs"); err == nil && os.MkdirAll(group, 0o755) == nil {
				_ = os.WriteFile(group+"/cgroup.procs", fmt.Append(nil, cmd.Process.Pid), 0)
				break
			}
		}
		at := filepath.Join(dir, "a b")
		Must(t, os.Mkdir(at, 0o755), syscall.Mount("test", at, "tmpfs", 0, "size=64k"))
	}
	fmt.Println(dir, cmd.Process.Pid)
	_, _ = io.Copy(io.Discard, os.Stdin) // not longer than the test
	os.Exit(1)
}
