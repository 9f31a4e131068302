package exec

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gate makes the netlink sockets of programs: their filter asks it for each. What waits in such a
// socket is the host's memory and counted for nobody, and only the number of sockets and the size
// of each can bound that. A program cannot make one itself, so that there are never more, however
// many programs ask at once.
type gate struct {
	listener *os.File
	most     int           // sockets at once
	wait     time.Duration // how long a program waits for another to close one
	made     int           // no more than so many are open
	full     time.Time     // since when there were as many whenever it was looked; zero: there are fewer
}

// netlinkSockets is how many netlink sockets the programs of a session have at once. Programs that ask
// for addresses have one for less than a millisecond. Each keeps 450 KiB at most: netlinkBuffer,
// doubled, and the answer that goes beyond it.
const netlinkSockets = 32

// netlinkWait is how long a program waits where there are as many.
const netlinkWait = 200 * time.Millisecond

// netlinkBuffer (bytes; the kernel doubles it) is what may wait in a netlink socket. It is the
// kernel's own size, unless the host has another.
const netlinkBuffer = 104 << 10

// largeBuffer (bytes) is what a netlink socket may have at most if a program asks for more.
const largeBuffer = 2*208<<10 + 1

// retAsk is what a filter answers to have the gate decide.
const retAsk = unix.SECCOMP_RET_USER_NOTIF

// notification is the kernel's struct seccomp_notif.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

// answer is the kernel's struct seccomp_notif_resp.
type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// given is the kernel's struct seccomp_notif_addfd.
type given struct {
	id            uint64
	flags, from   uint32
	to, withFlags uint32
}

// newGate serves what the filter of a listener asks.
func newGate(listener int) *gate {
	_ = unix.SetNonblock(listener, true) // so that Go waits for it
	g := &gate{listener: os.NewFile(uintptr(listener), "seccomp"), most: netlinkSockets, wait: netlinkWait, made: netlinkSockets}
	go g.serve()
	return g
}

// close ends the gate: programs that ask get ENOSYS from then on.
func (g *gate) close() { _ = g.listener.Close() }

func (g *gate) serve() {
	conn, err := g.listener.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(func(fd uintptr) bool {
		// The kernel waits for the next question, whatever the descriptor's flags say.
		for asked(int(fd)) {
			g.next(int(fd))
		}
		return false // until it is closed
	})
}

// asked is whether a program waits for an answer.
func asked(fd int) bool {
	list := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(list, 0)
	return err == nil && n > 0 && list[0].Revents&unix.POLLIN != 0
}

// next answers one question. A program that has gone meanwhile needs no answer.
func (g *gate) next(fd int) {
	var q notification
	if tell(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&q)) != nil {
		return
	}
	err := g.give(fd, &q)
	if err == nil {
		return
	}
	a := answer{id: q.id, errno: -int32(unix.EIO)}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		a.errno = -int32(errno)
	}
	_ = tell(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a))
}

// give makes the socket that is asked for and gives it to the program.
func (g *gate) give(fd int, q *notification) error {
	if !g.room() {
		return unix.ENOBUFS
	}
	kind := int(uint32(q.args[1]))
	s, err := unix.Socket(unix.AF_NETLINK, kind|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	g.made++
	// Its answers then leave out what they answer, which may be as large as what waits.
	err = errors.Join(
		unix.SetsockoptInt(s, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUF, netlinkBuffer))
	if err != nil {
		return err
	}
	n := given{id: q.id, flags: unix.SECCOMP_ADDFD_FLAG_SEND, from: uint32(s)}
	if kind&unix.SOCK_CLOEXEC != 0 {
		n.withFlags = unix.O_CLOEXEC
	}
	return tell(fd, unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&n))
}

// room is whether there may be one more socket. The kernel is asked only when that is not
// certain: without the gate sockets only become fewer. How long there has been no room does not
// begin anew with each question, since a signal makes the kernel ask again.
func (g *gate) room() bool {
	for g.made >= g.most {
		n, err := netlinkInUse()
		switch {
		case err != nil:
			return false
		case n < g.most:
			g.made, g.full = n, time.Time{}
		case g.full.IsZero():
			g.full = time.Now()
		case time.Since(g.full) > g.wait:
			return false
		default:
			time.Sleep(time.Millisecond)
		}
	}
	return true
}

// netlinkInUse is how many netlink sockets programs have, the kernel's own not counted. The list of
// /proc/net/netlink lacks those that have no address yet.
func netlinkInUse() (int, error) {
	const name, sockets = 0, 2 // columns
	b, err := os.ReadFile("/proc/net/protocols")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) > sockets && string(f[name]) == "NETLINK" {
			return strconv.Atoi(string(f[sockets]))
		}
	}
	return 0, fmt.Errorf("/proc/net/protocols has no netlink")
}

// largeBuffers is whether programs could give a netlink socket more than largeBuffer. It depends on a
// setting of the host's that not every kernel shows here.
func largeBuffers() bool {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(s)
	if err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<30); err != nil {
		return true
	}
	most, err := unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUF)
	return err != nil || most > largeBuffer
}

func tell(fd int, request uint, p unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(p))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}
