package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// enough is how many bytes kernelMemory stops at: more than a session may have of the host's memory
// outside of its limit, and far from what would hurt a host.
const enough = 48 << 20

// fillers make the kernel keep something for this process. Each call takes one more object and
// gives the bytes that are in it; an error ends it.
var fillers = map[string]func() (int, error){
	"tcp":      fillTCP,
	"udp":      fillUDP,
	"netlink":  fillNetlink,
	"unix":     func() (int, error) { return fillPair(unix.SOCK_STREAM) },
	"datagram": func() (int, error) { return fillPair(unix.SOCK_DGRAM) },
	"pipe":     fillPipe,
	"memory":   fillSharedMemory,
	"queue":    fillQueue,
}

// kernelMemory fills the kernel with what the first argument says until it holds enough, or no more is to
// be had, and keeps it until it is killed, or with a second argument goes.
func kernelMemory(args []string) {
	held, n := 0, 0
	var err error
	most := 4000
	if args[0] == "netlink" {
		most = 300 // some kernels say of none what is in it
	}
	for n = 0; n < most && held < enough && err == nil; n++ {
		var more int
		more, err = fillers[args[0]]()
		held += more
		if args[0] == "netlink" {
			held = queued("/proc/self/net/netlink")
		}
	}
	say("end", err)
	fmt.Println("held", held)
	if len(args) == 1 {
		time.Sleep(time.Hour)
	}
}

// queued adds up what waits in netlink sockets to be read.
func queued(path string) (sum int) {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 {
			n, _ := strconv.Atoi(f[4])
			sum += n
		}
	}
	return sum
}

// stuff sends on a socket or pipe until it takes no more, or far more than any keeps.
func stuff(send func([]byte) (int, error)) (sum int) {
	block := make([]byte, 32<<10)
	for sum < enough {
		n, err := send(block)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			break
		}
		sum += n
	}
	return sum
}

// sender writes to a descriptor.
func sender(fd int) func([]byte) (int, error) {
	return func(b []byte) (int, error) { return unix.Write(fd, b) }
}

func fillTCP() (int, error) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(l)
	if err := errors.Join(unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(l, 1)); err != nil {
		return 0, err
	}
	at, err := unix.Getsockname(l)
	if err != nil {
		return 0, err
	}
	c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	for _, option := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		_ = unix.SetsockoptInt(c, unix.SOL_SOCKET, option, 8<<20)
	}
	if err := unix.Connect(c, at); err != nil {
		return 0, err
	}
	a, _, err := unix.Accept(l)
	if err != nil {
		return 0, err
	}
	_ = unix.SetNonblock(a, true)
	return stuff(sender(a)), nil
}

func fillUDP() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return 0, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	block := make([]byte, 32<<10)
	for range 300 { // what does not fit is lost without a word
		if err := unix.Sendto(fd, block, unix.MSG_DONTWAIT, at); err != nil {
			break
		}
	}
	// They are counted as they are read again, and sent anew.
	read := 0
	for read < 300 {
		n, _, err := unix.Recvfrom(fd, block, unix.MSG_DONTWAIT)
		if err != nil || n == 0 {
			break
		}
		read++
	}
	for range read {
		_ = unix.Sendto(fd, block, unix.MSG_DONTWAIT, at)
	}
	return read * len(block), nil
}

// fillNetlink has the kernel answer messages that it does not know, with the message.
func fillNetlink() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
	msg := make([]byte, 16<<10)
	binary.NativeEndian.PutUint32(msg, uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], 0xffff)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	for range 200 {
		if err := unix.Sendto(fd, msg, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			break
		}
	}
	return 0, nil
}

func fillPair(kind int) (int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	_ = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<20)
	return stuff(sender(pair[0])), nil
}

func fillPipe() (int, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return 0, err
	}
	_, _ = unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, 1<<20)
	return stuff(sender(p[1])), nil
}

func fillSharedMemory() (int, error) {
	const size = 4 << 20
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, size, unix.IPC_CREAT|0o600)
	if err != nil {
		return 0, err
	}
	b, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return 0, err
	}
	for i := 0; i < size; i += 4096 {
		b[i] = 1
	}
	return size, nil
}

func fillQueue() (int, error) {
	id, _, errno := unix.Syscall(unix.SYS_MSGGET, unix.IPC_PRIVATE, unix.IPC_CREAT|0o600, 0)
	if errno != 0 {
		return 0, errno
	}
	var msg struct {
		kind int
		text [4096]byte
	}
	msg.kind = 1
	return stuff(func([]byte) (int, error) {
		_, _, errno := unix.Syscall6(unix.SYS_MSGSND, id, uintptr(unsafe.Pointer(&msg)), uintptr(len(msg.text)), unix.IPC_NOWAIT, 0, 0)
		if errno != 0 {
			return 0, errno
		}
		return len(msg.text), nil
	}), nil
}
