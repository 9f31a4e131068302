package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var families = []struct {
	name   string
	family int
}{
	{"unix", 1},
	{"inet", 2},
	{"inet6", 10},
	{"netlink", 16}, // those that a tool may have
	{"ax25", 3},
	{"ipx", 4},
	{"appletalk", 5},
	{"x25", 9},
	{"key", 15},
	{"packet", 17},
	{"rds", 21},
	{"llc", 26},
	{"can", 29},
	{"tipc", 30},
	{"bluetooth", 31},
	{"rxrpc", 33},
	{"alg", 38},
	{"vsock", 40},
	{"kcm", 41},
	{"qipcrtr", 42},
	{"smc", 43},
	{"xdp", 44},
	{"mctp", 45},
}

// sockets opens a socket of each family, then the same by the 32-bit entries in
// children of its own, since those may be killed for trying.
func sockets([]string) {
	for _, f := range families {
		best := error(unix.EINVAL)
		for _, typ := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_SEQPACKET} {
			fd, err := unix.Socket(f.family, typ, 0)
			if err == nil {
				unix.Close(fd)
				best = nil
				break
			}
			if err == unix.EPERM {
				best = err
			}
			if errors.Is(best, unix.EINVAL) {
				best = err
			}
		}
		say("socket-"+f.name, best)
	}
	for protocol := range 64 {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, protocol)
		if err == nil {
			unix.Close(fd)
		}
		say(fmt.Sprint("netlink-", protocol), err)
	}
	for _, entry := range []string{"int80", "x32"} {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		out, err := exec.CommandContext(ctx, "/proc/self/exe", entry).Output()
		stuck := ctx.Err() != nil
		cancel()
		if stuck {
			fmt.Println(entry, "stuck")
			continue
		}
		if ended, ok := errors.AsType[*exec.ExitError](err); ok {
			if ws, _ := ended.Sys().(syscall.WaitStatus); ws.Signaled() {
				fmt.Println(entry, unix.SignalName(ws.Signal()))
				continue
			}
		}
		if len(out) == 0 {
			fmt.Println(entry, outcome(err))
			continue
		}
		os.Stdout.Write(out)
	}
}

// int80 opens an AF_VSOCK socket by the i386 socketcall.
func int80([]string) {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_32BIT)
	if err != nil {
		say("int80-mmap", err)
		return
	}
	args := (*[3]uint32)(unsafe.Pointer(&mem[0]))
	args[0], args[1], args[2] = 40, unix.SOCK_STREAM, 0
	r := int32(syscall386(102, 1, uint32(uintptr(unsafe.Pointer(&mem[0])))))
	if r < 0 {
		say("int80", unix.Errno(-r))
		return
	}
	say("int80", nil)
}

// syscall386 makes an i386 system call by int 0x80.
func syscall386(nr, a, b uint32) uint32

// x32 opens an AF_VSOCK socket by the x32 entry.
func x32([]string) {
	say("x32", sys(0x40000000|unix.SYS_SOCKET, 40, unix.SOCK_STREAM, 0))
}

// network tries to reach anything but itself. Addresses are ones that must
// answer nothing here: with only a loopback device no packet leaves.
func network(hostPorts []string) {
	ifs, _ := os.ReadFile("/proc/self/net/dev")
	fmt.Println("devices", bytes.Count(ifs, []byte{'\n'})-2)
	for _, t := range []struct {
		name string
		typ  int
		addr unix.SockaddrInet4
	}{
		{"tcp", unix.SOCK_STREAM, unix.SockaddrInet4{Port: 80, Addr: [4]byte{192, 0, 2, 1}}},
		{"dns", unix.SOCK_DGRAM, unix.SockaddrInet4{Port: 53, Addr: [4]byte{192, 0, 2, 53}}},
		{"metadata", unix.SOCK_STREAM, unix.SockaddrInet4{Port: 80, Addr: [4]byte{169, 254, 169, 254}}},
	} {
		fd, err := unix.Socket(unix.AF_INET, t.typ, 0)
		if err == nil {
			err = unix.Connect(fd, &t.addr)
			unix.Close(fd)
		}
		say(t.name, err)
	}
	_, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	say("icmp-raw", err)
	for _, port := range hostPorts { // ports on which the host's loopback listens
		var p int
		fmt.Sscan(port, &p)
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: p, Addr: [4]byte{127, 0, 0, 1}})
			unix.Close(fd)
		}
		say("host-loopback", err)
	}
}
