// Package netns works in the network namespaces of sessions from outside: routes, listeners,
// and who is at the other end of a connection. Nothing stays in a namespace but what it made
// there, and no thread that has been in one is used again.
package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/descriptor"
	"github.com/toold/toold/internal/thread"
)

// In runs f on a thread in the network namespace ns. Sockets that f makes belong to ns for good.
func In[T any](ns *os.File, f func() (T, error)) (T, error) {
	return thread.Run(func() (T, error) {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			var none T
			return none, fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// backlog is how many connections wait in the kernel to be accepted, of one listener. It is
// what a client can have open while no daemon runs.
const backlog = 256

// Listen listens on the port of an IPv4 address. It must be called in In.
func Listen(addr netip.AddrPort) (*os.File, error) {
	return bound(addr, unix.SOCK_STREAM, func(fd int) error { return unix.Listen(fd, backlog) })
}

// Packets is Listen for UDP.
func Packets(addr netip.AddrPort) (*os.File, error) {
	return bound(addr, unix.SOCK_DGRAM, func(int) error { return nil })
}

// bound makes a socket of a type with this address, and makes it ready.
func bound(addr netip.AddrPort, typ int, ready func(fd int) error) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if typ == unix.SOCK_STREAM { // over what an earlier one left in TIME_WAIT
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()})
	}
	if err == nil {
		err = ready(fd)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", addr, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), addr.String()), nil
}

// RouteAll makes every IPv4 address local to the namespace that the caller is in, by its
// loopback, as "ip route add local 0.0.0.0/0 dev lo" does. It is no error when it was so.
func RouteAll() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback: %w", err)
	}
	nl, err := OpenNetlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { _ = nl.Close() }()
	// struct rtmsg: family, lengths of destination and source, tos, table, protocol, scope, type, flags
	msg := []byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	msg = binary.NativeEndian.AppendUint16(msg, unix.SizeofRtAttr+4)
	msg = binary.NativeEndian.AppendUint16(msg, unix.RTA_OIF)
	msg = binary.NativeEndian.AppendUint32(msg, uint32(lo.Index))
	_, err = nl.exchange(unix.RTM_NEWROUTE, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE, msg)
	if err != nil {
		return fmt.Errorf("make all addresses local: %w", err)
	}
	return nil
}

// Original is where the client of an accepted connection connected to.
func Original(c syscall.Conn) (netip.AddrPort, error) {
	sa, err := descriptor.Use(c, unix.Getsockname)
	in, ok := sa.(*unix.SockaddrInet4)
	if err != nil || !ok {
		return netip.AddrPort{}, fmt.Errorf("the connection has no IPv4 address: %w", errors.Join(err, errors.ErrUnsupported))
	}
	return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port)), nil
}

// Listener makes a net.Listener of a file that Listen gave, which stays open.
func Listener(f *os.File) (*net.TCPListener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	t, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(errors.New("not a TCP listener"), l.Close())
	}
	return t, nil
}

// Up brings up the loopback of the namespace that the caller is in.
func Up() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
