package far

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Tunnel carries the connections to one agent. Its methods may be called from any
// goroutine. The zero value is ready.
type Tunnel struct {
	work sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	closed bool
	conns  map[net.Conn]net.Conn // ours → the one that carries it
}

// Carry gives a connection that is carried over far until either ends. receive copies what
// the agent sends, without the framing that far may have. Carry closes far when the
// connection ends, and after an error, which is net.ErrClosed after Close.
func (t *Tunnel) Carry(far net.Conn, receive func(to io.Writer) error) (*net.UnixConn, error) {
	ours, end, err := socketPair()
	if err != nil {
		return nil, errors.Join(err, far.Close())
	}
	defer end.Close()
	theirs, err := net.FileConn(end)
	if err != nil {
		return nil, errors.Join(err, far.Close(), ours.Close())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errors.Join(net.ErrClosed, far.Close(), ours.Close(), theirs.Close())
	}
	if t.conns == nil {
		t.conns = map[net.Conn]net.Conn{}
	}
	t.conns[theirs] = far
	t.work.Go(func() { t.carry(theirs, far, receive) })
	return ours, nil
}

func (t *Tunnel) carry(near, far net.Conn, receive func(io.Writer) error) {
	var both sync.WaitGroup
	end := func() {
		_ = near.Close()
		_ = far.Close()
	}
	both.Go(func() {
		defer end()
		_, _ = io.Copy(far, near)
	})
	both.Go(func() {
		defer end()
		_ = receive(near)
	})
	both.Wait()
	t.mu.Lock()
	delete(t.conns, near)
	t.mu.Unlock()
}

// Close closes all connections and waits for their goroutines.
func (t *Tunnel) Close() {
	t.mu.Lock()
	t.closed = true
	for near, far := range t.conns {
		_ = near.Close()
		_ = far.Close() // somebody may be stuck in writing to it
	}
	t.mu.Unlock()
	t.work.Wait()
}

// socketPair gives two sockets that are each other's ends, the second as a file.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	conn, err := net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn.(*net.UnixConn), theirs, nil
}
