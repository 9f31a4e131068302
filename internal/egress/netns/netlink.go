package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Netlink is a socket to the kernel, in the namespace that it was opened in. Its methods may
// be called from any goroutine.
type Netlink struct {
	fd int

	mu  sync.Mutex // held during one exchange
	seq uint32
}

// replyTime bounds an answer of the kernel's, which comes at once.
const replyTime = 2 * time.Second

// OpenNetlink opens one of a family such as unix.NETLINK_SOCK_DIAG.
func OpenNetlink(family int) (*Netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	limit := unix.NsecToTimeval(int64(replyTime))
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("netlink socket: %w", err), unix.Close(fd))
	}
	return &Netlink{fd: fd}, nil
}

// Close closes it; no method may be called then.
func (n *Netlink) Close() error { return unix.Close(n.fd) }

// exchange sends one message and gives the body of the one that answers; nil where that is
// an acknowledgement.
func (n *Netlink) exchange(kind, flags uint16, body []byte) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	msg := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, kind)
	msg = binary.NativeEndian.AppendUint16(msg, flags)
	msg = binary.NativeEndian.AppendUint32(msg, n.seq)
	msg = append(binary.NativeEndian.AppendUint32(msg, 0), body...)
	if err := unix.Sendto(n.fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("send to the kernel: %w", err)
	}
	buf := make([]byte, 8192)
	for {
		size, _, err := unix.Recvfrom(n.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("answer of the kernel: %w", err)
		}
		if answer, mine, err := n.parse(buf[:size]); mine {
			return answer, err
		}
	}
}

// parse reads the first message of a packet. An answer to an earlier exchange is not mine.
func (n *Netlink) parse(p []byte) (body []byte, mine bool, err error) {
	if len(p) < unix.SizeofNlMsghdr {
		return nil, true, errors.New("a short answer of the kernel")
	}
	size, kind, seq := binary.NativeEndian.Uint32(p), binary.NativeEndian.Uint16(p[4:]), binary.NativeEndian.Uint32(p[8:])
	if seq != n.seq {
		return nil, false, nil
	}
	if size < unix.SizeofNlMsghdr || int(size) > len(p) {
		return nil, true, errors.New("an answer of the kernel with a wrong length")
	}
	body = p[unix.SizeofNlMsghdr:size]
	if kind != unix.NLMSG_ERROR {
		return body, true, nil
	}
	if len(body) < 4 {
		return nil, true, errors.New("a short error of the kernel")
	}
	if code := int32(binary.NativeEndian.Uint32(body)); code != 0 {
		return nil, true, unix.Errno(-code)
	}
	return nil, true, nil
}

// Of struct inet_diag_req_v2 and inet_diag_msg in linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	diagMsgSize      = 72
	diagCgroupID     = 21 // INET_DIAG_CGROUP_ID
	anyCookie        = 0xffffffff
)

// ErrNoCgroup says that this kernel does not tell the cgroups of sockets.
var ErrNoCgroup = errors.New("the kernel did not say the socket's cgroup")

// Cgroup is the id of the v2 cgroup of the process that made the TCP socket with these two
// ends, both IPv4. The socket is in the namespace that n was opened in, by NETLINK_SOCK_DIAG.
func (n *Netlink) Cgroup(local, remote netip.AddrPort) (uint64, error) {
	req := []byte{unix.AF_INET, unix.IPPROTO_TCP, 0, 0}
	req = binary.NativeEndian.AppendUint32(req, ^uint32(0)) // all states
	req = binary.BigEndian.AppendUint16(req, local.Port())
	req = binary.BigEndian.AppendUint16(req, remote.Port())
	for _, a := range []netip.Addr{local.Addr(), remote.Addr()} {
		v4 := a.As4()
		req = append(append(req, v4[:]...), make([]byte, 12)...)
	}
	req = binary.NativeEndian.AppendUint32(req, 0) // interface
	req = binary.NativeEndian.AppendUint32(req, anyCookie)
	req = binary.NativeEndian.AppendUint32(req, anyCookie)
	body, err := n.exchange(sockDiagByFamily, unix.NLM_F_REQUEST, req)
	if err != nil {
		return 0, fmt.Errorf("ask for the socket %s to %s: %w", local, remote, err)
	}
	return cgroupOf(body)
}

// cgroupOf finds the attribute in an answer.
func cgroupOf(body []byte) (uint64, error) {
	if len(body) < diagMsgSize {
		return 0, errors.New("a short answer about a socket")
	}
	for rest := body[diagMsgSize:]; len(rest) >= unix.SizeofRtAttr; {
		size, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])
		if size < unix.SizeofRtAttr || size > len(rest) {
			break
		}
		if kind == diagCgroupID && size >= unix.SizeofRtAttr+8 {
			return binary.NativeEndian.Uint64(rest[unix.SizeofRtAttr:]), nil
		}
		rest = rest[min(len(rest), (size+3)&^3):]
	}
	return 0, ErrNoCgroup
}
