package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/descriptor"
)

// peer is who stands at the other end of a connection, as the kernel recorded it
// when the connection was made.
type peer struct {
	known    bool // false for anything but a Unix socket: such peers get nothing
	uid, gid uint32
	pid      int32
	groups   []uint32 // supplementary; nil where the kernel does not tell
}

// peerOf asks the kernel for c's peer.
func peerOf(c *net.UnixConn) peer {
	p, _ := descriptor.Use(c, func(fd int) (peer, error) { // an error is a peer that is not known
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return peer{}, err
		}
		groups, _ := peerGroups(fd)
		return peer{known: true, uid: cred.Uid, gid: cred.Gid, pid: cred.Pid, groups: groups}, nil
	})
	return p
}

// peerGroups reads SO_PEERGROUPS, for which there is no wrapper. The kernel says
// how much room it needs when the first guess is too small.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 32)
	for range 2 {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(unsafe.SliceData(groups))), uintptr(unsafe.Pointer(&size)), 0)
		if errno == 0 {
			return groups[:size/4], nil
		}
		if !errors.Is(errno, unix.ERANGE) {
			return nil, fmt.Errorf("SO_PEERGROUPS: %w", errno)
		}
		groups = make([]uint32, size/4)
	}
	return nil, fmt.Errorf("SO_PEERGROUPS: %w", unix.ERANGE)
}

// peerConn is a connection whose peer is known.
type peerConn struct {
	*net.UnixConn
	peer peer
	key  int64 // quotaKey(peer) when it was made

	once    sync.Once
	release func()
}

func (c *peerConn) owner() int64 { return c.key }

// Close closes the connection and gives its place back.
func (c *peerConn) Close() error {
	err := c.UnixConn.Close()
	c.once.Do(c.release)
	return err
}

// peerListener accepts connections and learns their peers, at most a number of
// them at once from one uid: one user's idle connections cannot use up the
// daemon's file descriptors.
type peerListener struct {
	net.Listener
	server *Server
}

// Accept waits for a connection of a peer that is below its cap. Others are told
// so and closed here, before a goroutine or a buffer is spent on them.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if noDescriptor(err) && l.server.idle.evict(reserve) {
			continue // at once: who waits here may be the one that asks what is wrong
		}
		if err != nil {
			return nil, err
		}
		uc, ok := c.(*net.UnixConn)
		if !ok {
			return c, nil // its peer stays unknown, and gets 403
		}
		p := peerOf(uc)
		key, conns := l.server.quotaKey(p), l.server.conns
		if !conns.take(key, 1) {
			refuse(uc, errTooMany)
			continue
		}
		// Only for who may have one: others close no connection of anybody's.
		mine, most := bounds(p.uid)
		if err := l.server.idle.room(key, mine, most); err != nil {
			conns.give(key, 1)
			refuse(uc, err)
			continue
		}
		return &peerConn{UnixConn: uc, peer: p, key: key, release: func() { conns.give(key, 1) }}, nil
	}
}

// noDescriptor reports whether err is that this process, or the host, has too many files open.
func noDescriptor(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// quotaKey is whose connections and requests p's are counted with.
func (s *Server) quotaKey(p peer) int64 {
	if _, err := s.identity.Load().resolve(p); err != nil {
		return strangers
	}
	return int64(p.uid)
}

func refuse(c *net.UnixConn, why *client.Error) {
	defer func() { _ = c.Close() }()
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	body, err := encode(problemFor(why))
	if err != nil {
		return
	}
	text := fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	// A fresh socket buffer takes this at once. One that does not is not waited
	// for, since nobody else is accepted meanwhile.
	_ = raw.Write(func(fd uintptr) bool {
		_ = unix.Send(int(fd), text, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	})
}

// quota counts what is in use per uid, up to max each.
type quota struct {
	max int

	mu    sync.Mutex // guards the fields below
	used  map[int64]int
	given chan struct{} // closed when something is given back; nil while nobody waits
}

func newQuota(limit int) *quota { return &quota{max: limit, used: make(map[int64]int)} }

// take counts n more for key, or nothing when that is too many.
func (q *quota) take(key int64, n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[key]+n > q.max {
		return false
	}
	q.used[key] += n
	return true
}

// await is take that waits until it may, or ctx ends.
func (q *quota) await(ctx context.Context, key int64, n int) bool {
	for {
		q.mu.Lock()
		if q.used[key]+n <= q.max {
			q.used[key] += n
			q.mu.Unlock()
			return true
		}
		if q.given == nil {
			q.given = make(chan struct{})
		}
		given := q.given
		q.mu.Unlock()
		select {
		case <-given:
		case <-ctx.Done():
			return false
		}
	}
}

// give takes n back. Keys that use nothing are forgotten.
func (q *quota) give(key int64, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[key] -= n; q.used[key] <= 0 {
		delete(q.used, key)
	}
	if q.given != nil {
		close(q.given)
		q.given = nil
	}
}
