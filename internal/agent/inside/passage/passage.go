// Package passage carries connections of tools to the daemon, in sandboxes whose network
// namespace that cannot enter: what tools connect to at the proxies' ports goes on, through a
// socket in a directory that only the agent can pass. It looks at nothing that it carries.
package passage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// most bounds the connections at one time. The daemon has a bound of its own.
	most = 512
	// pause follows an error of the listener's.
	pause = 10 * time.Millisecond
	// lingerTime is how long a program may go on sending when the daemon sends no more.
	lingerTime = time.Minute
)

// Passage listens at ports of the sandbox's loopback.
type Passage struct {
	// Socket is where the daemon listens, Ports are those of its proxies inside.
	Socket string
	Ports  []uint16
}

// Serve runs until ctx ends. A port that cannot be had is left out, and said.
func (p *Passage) Serve(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, most)
	for _, port := range p.Ports {
		l, err := listen(ctx, port)
		if err != nil {
			fmt.Fprintln(os.Stderr, "toolagent:", err)
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = l.Close() })
		wg.Go(func() {
			defer stop()
			p.accept(ctx, l, port, places, &wg)
		})
	}
}

// listen listens at a port that no tool can have beside it: gVisor gives one also to a second
// listener where both have SO_REUSEADDR, which Go sets.
func listen(ctx context.Context, port uint16) (*net.TCPListener, error) {
	alone := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 0) })
		return errors.Join(err, set)
	}}
	l, err := alone.Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

func (p *Passage) accept(ctx context.Context, l *net.TCPListener, port uint16, places chan struct{}, wg *sync.WaitGroup) {
	for {
		c, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(pause)
			continue
		}
		select {
		case places <- struct{}{}:
			wg.Go(func() {
				defer func() { <-places }()
				p.carry(ctx, c, port)
			})
		default:
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
}

// carry moves bytes both ways until both have ended. Without a daemon it ends at once.
func (p *Passage) carry(ctx context.Context, c *net.TCPConn, port uint16) {
	defer func() { _ = c.Close() }()
	d, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.Socket, Net: "unix"})
	if err != nil {
		_ = c.SetLinger(0)
		return
	}
	defer func() { _ = d.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close(); _ = d.Close() })
	defer stop()
	if _, err := d.Write(binary.BigEndian.AppendUint16(nil, port)); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, err := io.Copy(c, d)
		ended(c, err)
		_ = c.SetReadDeadline(time.Now().Add(lingerTime))
	})
	_, err = io.Copy(d, c)
	if err != nil {
		_ = c.Close()
	}
	_ = d.CloseWrite()
	back.Wait()
}

// ended passes on the end of what came from the daemon; after an error as one.
func ended(c *net.TCPConn, err error) {
	if err == nil {
		err = c.CloseWrite()
	}
	if err != nil {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}
