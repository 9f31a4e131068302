package exec

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
)

// inGate is set in the environment of a test that has a network of its own.
const inGate = "TOOLD_TEST_GATE"

// Programs have so many netlink sockets at once and no more, whoever asks, and none can be filled
// beyond its size.
func TestGate(t *testing.T) {
	t.Parallel()
	if os.Getenv(inGate) == "" {
		needs.Filter(t)
		c := exec.Command(os.Args[0], "-test.run=^TestGate$", "-test.v")
		c.Env = append(os.Environ(), inGate+"=1")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		if os.Getuid() != 0 {
			c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		}
		out, err := c.CombinedOutput()
		if err != nil && len(out) == 0 {
			testrig.Skipf(t, "oci", "a network of its own: %v", err)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS: TestGate") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if os.Getenv(inGate) == "program" {
		testSockets(t)
		return
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with its filter
		result <- testFilters(t)
	}()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// testFilters runs this test as a program.
func testFilters(t *testing.T) error {
	own, err := newSecret()
	if err != nil {
		return err
	}
	g, note, err := loadFilters(own)
	if err != nil || g == nil || note != "" {
		return fmt.Errorf("no gate: %w, %q", err, note)
	}
	defer g.close()
	c := exec.Command(os.Args[0], "-test.run=^TestGate$", "-test.v")
	c.Env = append(os.Environ(), inGate+"=program")
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	return err
}

func testSockets(t *testing.T) {
	made := takeSockets(t)
	if len(made) == 0 {
		return
	}
	// The place of one that is closed is free, at once and also for one that stays open in an exec.
	_ = unix.Close(made[0])
	var err error
	if made[0], err = unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_ROUTE); err != nil {
		t.Fatalf("the place of a closed one: %v", err)
	}
	for i, want := range map[int]int{0: 0, 1: unix.FD_CLOEXEC} {
		if flags, err := unix.FcntlInt(uintptr(made[i]), unix.F_GETFD, 0); err != nil || flags != want {
			t.Errorf("flags of socket %d: %d, want %d, %v", i, flags, want, err)
		}
	}
	if flags, err := unix.FcntlInt(uintptr(made[1]), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("it blocks: %#x, %v", flags, err)
	}
	fillSocket(t, made[1])
	if _, err := unix.Socket(unix.AF_NETLINK, 7, unix.NETLINK_ROUTE); err != unix.ENOBUFS {
		t.Errorf("one too many of a strange kind: %v", err)
	}
	for _, fd := range made {
		_ = unix.Close(fd)
	}
	if _, err := unix.Socket(unix.AF_NETLINK, 7, unix.NETLINK_ROUTE); err != unix.ESOCKTNOSUPPORT {
		t.Errorf("a strange kind: %v", err)
	}
	if addresses, err := net.InterfaceAddrs(); err != nil || len(addresses) != 0 {
		t.Errorf("addresses of a host without any: %v, %v", addresses, err)
	}
}

// takeSockets makes netlink sockets until there are no more.
func takeSockets(t *testing.T) (made []int) {
	for {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err == nil && len(made) <= netlinkSockets {
			made = append(made, fd)
			continue
		}
		if err != unix.ENOBUFS || len(made) != netlinkSockets {
			t.Errorf("%d sockets, want %d; then %v", len(made), netlinkSockets, err)
		}
		return made
	}
}

// fillSocket has a netlink socket receive what it takes.
func fillSocket(t *testing.T, fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<20)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<20)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 0)
	msg := make([]byte, 100<<10)
	binary.NativeEndian.PutUint32(msg, uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], 0xffff) // which it does not know
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	for range 2000 {
		_ = unix.Sendto(fd, msg, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	b, err := os.ReadFile("/proc/net/netlink")
	if err != nil {
		t.Error(err)
	}
	const received = 4 // a column
	most := "0"
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > received && f[received] != "Rmem" && (len(f[received]) > len(most) || len(f[received]) == len(most) && f[received] > most) {
			most = f[received]
		}
	}
	if len(most) < len("100000") || len(most) > len("999999") || len(most) == len("100000") && most > "460000" {
		t.Errorf("%s bytes wait in a socket", most)
	}
}
