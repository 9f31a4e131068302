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
	"backlog":  fillBacklog,
	"locks":    func() (int, error) { return fillLocks(unix.F_SETLK) },
	"ofd":      func() (int, error) { return fillLocks(unix.F_OFD_SETLK) },
	"posix":    fillPosixQueue,
	"udp":      fillUDP,
	"errors":   fillErrors,
	"sent":     fillSent,
	"netlink":  fillNetlink,
	"unix":     func() (int, error) { return fillPair(unix.SOCK_STREAM) },
	"datagram": func() (int, error) { return fillPair(unix.SOCK_DGRAM) },
	"pipe":     fillPipe,
	"memory":   fillSharedMemory,
	"queue":    fillQueue,
	"set":      fillSet,
	"event":    fillEvents,
	"epoll":    fillEpoll,
}

// kernelMemory fills the kernel with what the first argument says until it holds enough, or no more is to
// be had, and keeps it until it is killed, or with a second argument goes.
func kernelMemory(args []string) {
	held, n := 0, 0
	var err error
	most := 4000
	switch args[0] {
	case "errors", "netlink", "sent":
		most = 300 // some kernels do not say what is in it
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
	pair, err := connected()
	if err != nil {
		return 0, err
	}
	_ = unix.SetNonblock(pair[1], true)
	return stuff(sender(pair[1])), nil
}

// connected is both ends of a TCP connection with large buffers.
func connected() (pair [2]int, err error) {
	l, at, err := listener(1)
	if err != nil {
		return pair, err
	}
	defer unix.Close(l)
	if pair[0], err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
		return pair, err
	}
	for _, option := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		_ = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, option, 8<<20)
	}
	if err := unix.Connect(pair[0], at); err != nil {
		return pair, err
	}
	pair[1], _, err = unix.Accept(l)
	return pair, err
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

// fillErrors has a socket keep the errors about what it sends to a port where nobody listens, each with
// the packet.
func fillErrors() (int, error) {
	closed, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(closed, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	to, err := unix.Getsockname(closed)
	if err != nil {
		return 0, err
	}
	_ = unix.Close(closed)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return 0, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1); err != nil {
		return 0, err
	}
	block := make([]byte, 1400)
	for range 4000 {
		_ = unix.Sendto(fd, block, unix.MSG_DONTWAIT, to) // each second one says what is in the way of the one before
	}
	return received(fd), nil
}

// received is what the kernel says that a socket keeps to be read, errors too; 0 where it does not say.
func received(fd int) int {
	var of [9]uint32
	size := uint32(unsafe.Sizeof(of))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&of)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return int(of[0])
}

// fillSent has a connection keep a copy of each packet that it has sent, for the time at which that was.
func fillSent() (int, error) {
	pair, err := connected()
	if err != nil {
		return 0, err
	}
	_ = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
	const scheduled, software = 1 << 8, 1 << 1
	_ = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_TIMESTAMPING, scheduled|software|1<<4)
	option := make([]byte, unix.CmsgSpace(4))
	binary.NativeEndian.PutUint64(option, uint64(unix.CmsgLen(4)))
	binary.NativeEndian.PutUint32(option[8:], unix.SOL_SOCKET)
	binary.NativeEndian.PutUint32(option[12:], unix.SO_TIMESTAMPING)
	binary.NativeEndian.PutUint32(option[16:], scheduled|software)
	block, in := make([]byte, 16<<10), make([]byte, 64<<10)
	for range 32 {
		n, err := unix.SendmsgN(pair[0], block, option, nil, unix.MSG_DONTWAIT)
		if err != nil {
			n, err = unix.Write(pair[0], block)
		}
		if err != nil {
			return 0, err
		}
		for n > 0 {
			more, err := unix.Read(pair[1], in)
			if err != nil {
				return 0, err
			}
			n -= more
		}
	}
	return received(pair[0]), nil
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

// fillSet makes semaphores, of which the kernel keeps 64 bytes each.
func fillSet() (int, error) {
	const number = 250
	_, _, errno := unix.Syscall(unix.SYS_SEMGET, unix.IPC_PRIVATE, number, unix.IPC_CREAT|0o600)
	if errno != 0 {
		return 0, errno
	}
	return number * 64, nil
}

// fillEvents has inotify keep what happens to files with long names.
func fillEvents() (int, error) {
	fd, err := unix.InotifyInit1(0)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return 0, err
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_ALL_EVENTS); err != nil {
		return 0, err
	}
	name := dir + "/" + strings.Repeat("x", 250)
	for i := range 2000 { // each is another event than the one before, with which the kernel would merge it
		if err := os.WriteFile(name+strconv.Itoa(i%2), nil, 0o600); err != nil {
			return 0, err
		}
		_ = os.Remove(name + strconv.Itoa(i%2))
	}
	return unix.IoctlGetInt(fd, unix.TIOCINQ)
}

// fillEpoll has an epoll wait for many files. Each that it waits for is 128 bytes of the kernel's.
func fillEpoll() (int, error) {
	fd, err := unix.EpollCreate1(0)
	if err != nil {
		return 0, err
	}
	if len(waited) == 0 {
		for range 1000 {
			e, err := unix.Eventfd(0, 0)
			if err != nil {
				return 0, err
			}
			waited = append(waited, e)
		}
	}
	for _, e := range waited {
		if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, e, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
			return 0, err
		}
	}
	return len(waited) * 128, nil
}

// waited are what each epoll of fillEpoll waits for.
var waited []int

// listener is a socket that listens, with a large buffer for what its connections receive, and where.
func listener(backlog int) (int, unix.Sockaddr, error) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, nil, err
	}
	_ = unix.SetsockoptInt(l, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20)
	if err := errors.Join(unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(l, backlog)); err != nil {
		return -1, nil, err
	}
	at, err := unix.Getsockname(l)
	return l, at, err
}

// pending has connections that nobody accepts.
var pending unix.Sockaddr

// fillBacklog sends to a connection that nobody accepts, and closes the end that has sent.
func fillBacklog() (int, error) {
	if pending == nil {
		var err error
		if _, pending, err = listener(4096); err != nil {
			return 0, err
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, pending); err != nil {
		return 0, err
	}
	_ = unix.SetNonblock(fd, true)
	return stuff(sender(fd)), nil
}

// fillLocks locks bytes of a file that do not touch, each of which is 192 bytes of the kernel's.
func fillLocks(how int) (int, error) {
	f, err := os.CreateTemp("", "")
	if err != nil {
		return 0, err
	}
	kept = append(kept, f)
	const number = 200 // the kernel looks at all of the file for each
	for i := range number {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * i), Len: 1}
		if err := unix.FcntlFlock(f.Fd(), how, &l); err != nil {
			return 0, err
		}
	}
	return number * 192, nil
}

// kept are the files of fillLocks: closed, they have no locks.
var kept []*os.File

// fillPosixQueue fills a queue of messages.
func fillPosixQueue() (int, error) {
	queues++
	name, err := unix.BytePtrFromString(fmt.Sprint("q", queues))
	if err != nil {
		return 0, err
	}
	attributes := [8]int64{unix.O_NONBLOCK, 10, 8192}
	q, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_WRONLY|unix.O_NONBLOCK, 0o600, uintptr(unsafe.Pointer(&attributes)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	message := make([]byte, 8192)
	return stuff(func([]byte) (int, error) {
		_, _, errno := unix.Syscall6(unix.SYS_MQ_TIMEDSEND, q, uintptr(unsafe.Pointer(&message[0])), uintptr(len(message)), 0, 0, 0)
		if errno != 0 {
			return 0, errno
		}
		return len(message), nil
	}), nil
}

var queues int
