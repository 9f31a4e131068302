package auth

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
)

// TestProcessOf: a process is at its terminal while it is in the foreground of it.
func TestProcessOf(t *testing.T) {
	t.Parallel()
	master, path, err := testrig.Terminal()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	slave, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	for name, tt := range map[string]struct {
		script string // prints the process
		attr   *syscall.SysProcAttr
		want   bool
	}{
		"in the foreground":  {"echo $$; exec sleep 1000", &syscall.SysProcAttr{Setsid: true, Setctty: true}, true},
		"in the background":  {"set -m; sleep 1000 & echo $!; wait", &syscall.SysProcAttr{Setsid: true, Setctty: true}, false},
		"without a terminal": {"echo $$; exec sleep 1000", &syscall.SysProcAttr{Setsid: true}, false},
	} {
		cmd := exec.Command("bash", "-c", tt.script)
		if cmd.SysProcAttr = tt.attr; tt.attr.Setctty {
			cmd.Stdin = slave
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int32
		_, err = fmt.Fscan(out, &pid)
		p, perr := ProcessOf(pid)
		again, _ := ProcessOf(pid)
		if err != nil || perr != nil || p.Terminal != tt.want || p.Start == 0 || p != again {
			t.Errorf("%s: %+v, then %+v, %v, %v", name, p, again, err, perr)
		}
		_ = unix.Kill(int(pid), unix.SIGKILL)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if _, err := ProcessOf(0); err == nil {
		t.Error("process 0 is one")
	}
}
