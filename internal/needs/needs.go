// Package needs skips tests that need what this system refuses, which it finds out by
// trying: toold's own tests run in a session of toold too, where a filter refuses some
// system calls. If TOOLD_TEST_REQUIRE has "oci", containers can be made, so a skip is a
// failure.
package needs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
)

// OpenAt2 skips a test of code that finds its files by openat2.
func OpenAt2(t testing.TB) {
	t.Helper()
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err == nil {
		err = unix.Close(fd)
	}
	skip(t, "the system call openat2", err)
}

// Filter skips a test of code that loads a filter for system calls.
func Filter(t testing.TB) {
	t.Helper()
	// None is loaded: a kernel that would load one says that there is none at address 0.
	_, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, 0)
	if errors.Is(err, unix.EFAULT) {
		return
	}
	skip(t, "a seccomp filter of its own", err)
}

// SetIDBits skips a test that makes a file with a set-user-id bit.
func SetIDBits(t testing.TB) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	skip(t, "files with set-user-id bits", syscall.Chmod(file, syscall.S_ISUID|0o600))
}

// skip skips a test for want of something; err is what trying it gave, nil where it is
// there.
func skip(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		testrig.Skipf(t, "oci", "this system does not give %s: %v", what, err)
	}
}

// Landlock skips a test where the kernel's Landlock is older than this ABI: such kernels are in use.
func Landlock(t testing.TB, abi int) {
	t.Helper()
	got, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		skip(t, "Landlock", e)
	}
	if int(got) < abi {
		t.Skipf("the ABI of this kernel's Landlock is %d, and not %d", got, abi)
	}
}
