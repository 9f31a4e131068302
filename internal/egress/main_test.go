package egress_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/egress/netns"
)

// insideEnv is set in the process that runs the tests.
const insideEnv = "TOOLD_EGRESS_TEST_INSIDE"

// TestMain runs the tests in a network namespace of their own, where every address is local:
// whatever is dialled arrives at the tests' listeners, which count it.
func TestMain(m *testing.M) {
	fuzzed := slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzz") })
	if os.Geteuid() != 0 || fuzzed { // what needs root skips, and fuzzing needs none of this
		os.Exit(m.Run())
	}
	if os.Getenv(insideEnv) == "" {
		os.Exit(again())
	}
	if err := errors.Join(netns.Up(), netns.RouteAll(), ip("-6", "route", "add", "local", "::/0", "dev", "lo"), ip("addr", "add", own+"/32", "dev", "lo")); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the network namespace of the tests:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func again() int {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return max(1, exit.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "run the tests in a network namespace:", err)
	return 1
}

// own is a public address that the host of the tests has itself.
const own = "93.184.216.77"

// ip runs ip(8): netns has what is done here for IPv4 alone, and gives the host no address.
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %q: %w: %s", args, err, out)
	}
	return nil
}
