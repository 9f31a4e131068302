package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

var errIdle = errors.New("no byte passed for too long")

// Held are the session's listening sockets, for its agent to keep while no daemon runs: as long
// as it does, no program of the session can take their ports, and connections wait. The caller
// closes none of them; they are good until SetPorts or Close.
func (n *Network) Held() []*os.File {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.files)
}

// sortHeld names sockets that come back from an agent as keep does. It is hostile: what is not
// a listener in the session's own namespace is closed, and counts as if it had not come.
func sortHeld(files []*os.File, namespace *os.File) (map[string]*os.File, error) {
	held := make(map[string]*os.File)
	if len(files) == 0 {
		return held, nil
	}
	var want unix.Stat_t
	if err := unix.Fstat(int(namespace.Fd()), &want); err != nil {
		return nil, fmt.Errorf("look at the network namespace: %w", err)
	}
	for _, f := range files {
		name, err := nameOf(f, want.Ino)
		if err != nil || held[name] != nil {
			_ = f.Close()
			continue
		}
		held[name] = f
	}
	return held, nil
}

// nameOf is a listener's network and address. The flags are of the open file, which the agent
// has too.
func nameOf(f *os.File, namespace uint64) (string, error) {
	fd := int(f.Fd())
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return "", err
	}
	if err := inNamespace(fd, namespace); err != nil {
		return "", err
	}
	sa, err := unix.Getsockname(fd)
	in, ok := sa.(*unix.SockaddrInet4)
	if err != nil || !ok {
		return "", errors.Join(err, errors.New("not an IPv4 socket"))
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port)).String()
	if kind == unix.SOCK_DGRAM {
		return "udp " + addr, unix.SetNonblock(fd, true)
	}
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
		return "", errors.Join(err, errors.New("not a listening socket"))
	}
	return "tcp " + addr, unix.SetNonblock(fd, true)
}

func inNamespace(fd int, want uint64) error {
	ns, err := unix.IoctlRetInt(fd, unix.SIOCGSKNS)
	if err != nil {
		return fmt.Errorf("network namespace of a socket: %w", err)
	}
	defer unix.Close(ns)
	var st unix.Stat_t
	if err := unix.Fstat(ns, &st); err != nil {
		return err
	}
	if st.Ino != want {
		return errors.New("a socket of another network namespace")
	}
	return nil
}
