package testrig

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Socketpair gives both ends of a stream, which end with the test.
func Socketpair(t testing.TB) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var c [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		n, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		c[i] = n.(*net.UnixConn)
	}
	t.Cleanup(func() { c[0].Close(); c[1].Close() })
	return c[0], c[1]
}
