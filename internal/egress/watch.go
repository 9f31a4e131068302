package egress

import (
	"errors"
	"maps"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/descriptor"
)

// watch closes connections that move nothing, and lets go of those whose program has hung up
// while it waited for a verdict. It runs while there are connections: a session without any
// costs nothing.
func (n *Network) watch() {
	t := time.NewTicker(min(n.cfg.Limits.Idle/4, time.Second))
	defer t.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		all := n.watched()
		if len(all) == 0 {
			return
		}
		for _, c := range all {
			n.look(c)
		}
	}
}

// watched are the connections of the moment. Without any watch is over.
func (n *Network) watched() []*client {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watching = len(n.clients) > 0
	return slices.Collect(maps.Keys(n.clients))
}

// open are the connections of the moment.
func (n *Network) open() []*client {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.clients))
}

func (n *Network) look(c *client) {
	n.rejudge(c)
	c.mu.Lock()
	far := c.far
	c.mu.Unlock()
	near, hungUp := progress(c.Conn)
	there, _ := progress(far)
	now := time.Now()
	switch {
	case c.waiting.Load() && hungUp:
		c.cancel()
	case c.waiting.Load() || near+there != c.seen:
		c.seen, c.since = near+there, now
	case now.Sub(c.since) > n.cfg.Limits.Idle:
		c.fail(errIdle)
		c.abort()
	}
}

// progress is how many bytes the kernel has taken from a connection and brought to its other
// end, whoever moved them. hungUp says that the other end has sent its last.
func progress(c net.Conn) (bytes int64, hungUp bool) {
	info, err := tcpInfo(c)
	if err != nil {
		return 0, false
	}
	return int64(info.Bytes_acked + info.Bytes_received), info.State == unix.BPF_TCP_CLOSE_WAIT || info.State == unix.BPF_TCP_CLOSE
}

var errGone = errors.New("it was reset before it was looked at")

// gone says that the program has reset a connection: there is nothing to read from it any more,
// and nobody to answer.
func gone(c net.Conn) bool {
	info, err := tcpInfo(c)
	return !errors.Is(err, errors.ErrUnsupported) && (err != nil || info.State == unix.BPF_TCP_CLOSE)
}

// tcpInfo is what the kernel knows of a connection; errors.ErrUnsupported for what is no TCP.
func tcpInfo(c net.Conn) (*unix.TCPInfo, error) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return descriptor.Use(t, func(fd int) (*unix.TCPInfo, error) {
		return unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	})
}
