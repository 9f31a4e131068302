package oci_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// janitorFor is the environment variable that makes the test binary a janitor.
const janitorFor = "TOOLD_TEST_JANITOR"

// mark is in the name of everything that this process makes on the host.
var mark = fmt.Sprintf("toold-test-%d-", os.Getpid())

// runWithJanitor runs the tests beside a process that cleans up after them when
// they cannot do so themselves: it waits for the end of a pipe, which comes
// however this process dies.
func runWithJanitor(m *testing.M) int {
	if os.Getuid() != 0 {
		return m.Run()
	}
	r, w, err := os.Pipe()
	if err != nil {
		fmt.Fprintln(os.Stderr, "janitor:", err)
		return 1
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), janitorFor+"="+mark)
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "janitor:", err)
		return 1
	}
	r.Close()
	code := m.Run()
	w.Close()
	if err := cmd.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, "janitor: something was left behind:", err)
		return 1
	}
	return code
}

// janitor exits with 1 when there was something to clean up.
func janitor(mark string) int {
	_, _ = io.Copy(io.Discard, os.Stdin) // until the tests have ended
	code := 0
	kill, _ := filepath.Glob("/sys/fs/cgroup/unified/" + mark + "*/cgroup.kill")
	v2, _ := filepath.Glob("/sys/fs/cgroup/" + mark + "*/cgroup.kill")
	for _, f := range append(kill, v2...) {
		_ = os.WriteFile(f, []byte("1"), 0)
		code = 1
	}
	for range 100 {
		if removeGroups(mark) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	dirs, _ := filepath.Glob("/tmp/" + mark + "*")
	for _, dir := range dirs {
		_ = os.RemoveAll(dir)
		code = 1
	}
	return code
}

// removeGroups removes what can be removed and says how much is left.
func removeGroups(mark string) int {
	left := 0
	tops, _ := filepath.Glob("/sys/fs/cgroup/*/" + mark + "*")
	v2, _ := filepath.Glob("/sys/fs/cgroup/" + mark + "*")
	for _, top := range append(tops, v2...) {
		var dirs []string
		_ = filepath.WalkDir(top, func(p string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() && strings.Contains(p, mark) {
				dirs = append(dirs, p)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			if os.Remove(dir) != nil {
				left++
			}
		}
	}
	return left
}
