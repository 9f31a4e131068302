package attack

import (
	"fmt"
	"net"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// listenLoopback opens a port on the host's loopback device.
func listenLoopback(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(testrig.Serve(ln, func(net.Conn) {}))
	return ln.Addr().(*net.TCPAddr).Port
}

func dialLoopback(port int) bool {
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	c.Close()
	return true
}
