// Package control is the daemon's end of control sockets that agents dial: for
// sandboxes that cannot be given a listening socket by inheritance.
//
// The directory of such a socket is a host directory that the sandbox sees,
// mounted read-only, so that nothing in it is the sandbox's to change: the daemon
// resolves no path there that a sandbox could have written. It belongs to the uid
// that the agent has on the host and has mode 0700; tools have another uid and
// cannot pass it. It holds
//
//	socket   where the daemon listens; another daemon puts its own in its place
//	nonce    0400: what the daemon shows the agent, which believes nobody else
//	network  where the agent passes on connections of tools; only with a network
package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/descriptor"
)

const (
	socketName = "socket"
	nonceName  = "nonce"
	newSuffix  = ".new"
	// pause follows each connection: an agent that dials without end may not take a
	// processor of the daemon's.
	pause = 5 * time.Millisecond
)

// Prepare makes the directory dir for a sandbox whose agent is uid and gid on the
// host. dir may exist already as an empty directory; its parent must be one that
// only the daemon can write.
func Prepare(dir string, uid, gid int, nonce []byte) error {
	if err := prepare(dir, uid, gid, nonce); err != nil {
		return fmt.Errorf("prepare control directory %s: %w", dir, err)
	}
	return nil
}

func prepare(dir string, uid, gid int, nonce []byte) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	path := name(d, nonceName)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	_, err = f.Write(nonce)
	// The directory last: from then on it is the agent's.
	return errors.Join(err, f.Chown(uid, gid), f.Close(), os.Chmod(name(d, "."), 0o700), os.Chown(name(d, "."), uid, gid))
}

// open pins the directory itself, never what a link leads to.
func open(dir string) (*os.File, error) {
	return os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// name is a file of an open directory by way of its descriptor: paths of sockets
// are limited to 107 bytes.
func name(dir *os.File, file string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), file)
}

// Listener gives the connections of one agent. Its methods may be called from any
// goroutine.
type Listener struct {
	l    *net.UnixListener
	peer func(*unix.Ucred) error
	done chan struct{} // closed when no connection comes any more
	stop func() error  // closes l, once

	mu     sync.Mutex // guards the fields below
	newest *net.UnixConn
	came   chan struct{} // closed and renewed when newest changes
}

// Listen listens in a directory that Prepare has made, in the place of a daemon
// that listened there before. peer says whether a process may be the agent; nil
// lets everybody in whom the directory does. It is asked once for each
// connection, from one goroutine.
func Listen(dir string, peer func(*unix.Ucred) error) (*Listener, error) {
	l, err := listen(dir, socketName)
	if err != nil {
		return nil, fmt.Errorf("listen in control directory %s: %w", dir, err)
	}
	s := &Listener{l: l, peer: peer, done: make(chan struct{}), stop: sync.OnceValue(l.Close), came: make(chan struct{})}
	go s.serve()
	return s, nil
}

// listen makes the socket beside the old one and then renames it, so that at no
// time there is none: an agent that finds no socket only tries again later.
func listen(dir, socket string) (*net.UnixListener, error) {
	d, err := open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return nil, err
	}
	path := name(d, socket+newSuffix)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // another daemon may have put its own there
	err = errors.Join(os.Chmod(path, 0o600), os.Lchown(path, int(st.Uid), int(st.Gid)))
	if err == nil {
		err = os.Rename(path, name(d, socket))
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(path))
	}
	return l, nil
}

// serve accepts connections and keeps the newest: an agent has one at a time, and
// dials again only when that is lost.
func (l *Listener) serve() {
	defer close(l.done)
	for {
		c, err := l.l.AcceptUnix()
		switch {
		case err == nil && l.allowed(c):
			l.put(c)
		case err == nil:
			_ = c.Close()
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// Out of descriptors or memory; the agent tries again too.
		}
		time.Sleep(pause)
	}
}

func (l *Listener) allowed(c *net.UnixConn) bool { return l.peer == nil || isPeer(c, l.peer) }

// isPeer asks who is at the other end.
func isPeer(c *net.UnixConn, peer func(*unix.Ucred) error) bool {
	cred, err := descriptor.Use(c, func(fd int) (*unix.Ucred, error) {
		return unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return err == nil && peer(cred) == nil
}

func (l *Listener) put(c *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest != nil {
		_ = l.newest.Close()
	}
	l.newest = c
	close(l.came)
	l.came = make(chan struct{})
}

func (l *Listener) take() (*net.UnixConn, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.newest
	l.newest = nil
	return c, l.came
}

// Dial gives the agent's newest connection that nobody has got yet, and waits for
// one as long as ctx lasts. The error is net.ErrClosed after Close, and when gone is closed:
// an agent that has died never dials.
func (l *Listener) Dial(ctx context.Context, gone <-chan struct{}) (*net.UnixConn, error) {
	for {
		c, came := l.take()
		switch {
		case c != nil && silent(c):
			return c, nil
		case c != nil:
			_ = c.Close()
			continue
		}
		select {
		case <-came:
		case <-ctx.Done():
			return nil, fmt.Errorf("the agent has not dialled: %w", context.Cause(ctx))
		case <-l.done:
			return nil, net.ErrClosed
		case <-gone:
			return nil, net.ErrClosed
		}
	}
}

// silent says whether a connection is alive and has not said anything, as an agent
// does not before it is spoken to.
func silent(c *net.UnixConn) bool {
	_, err := descriptor.Use(c, func(fd int) (unix.Sockaddr, error) {
		_, from, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return from, err
	})
	return errors.Is(err, unix.EAGAIN)
}

// Close stops listening; a second time is no error. Connections that Dial has
// given stay.
func (l *Listener) Close() error {
	err := l.stop()
	<-l.done
	if c, _ := l.take(); c != nil {
		_ = c.Close()
	}
	return err
}
