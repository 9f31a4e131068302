package inside

import (
	"net"
	"path/filepath"
	"sync"
	"time"
)

// Connections is where a Server gets its daemon from: a listener, or a Dialler
// where the sandbox cannot be given one.
type Connections interface {
	// AcceptUnix waits for the next connection. Whoever is on its other side is a
	// stranger until it has shown the nonce.
	AcceptUnix() (*net.UnixConn, error)
	// Close ends the wait, with an error.
	Close() error
}

// oneByOne is a Connections that gives the next connection only when the one
// before is over.
type oneByOne interface{ over() }

// Dialler is a Connections for sandboxes whose agent cannot inherit a listening
// socket: it dials the daemon's, and again whenever the connection is lost, also
// by a daemon's restart.
type Dialler struct {
	path   string
	closed chan struct{}
	close  sync.Once
	turn   chan struct{} // holds something while there is no connection

	// Those are AcceptUnix's alone.
	last time.Time     // when the last connection was made
	wait time.Duration // before the next one
}

const (
	// socketName is the daemon's socket in the control directory.
	socketName = "socket"
	// redialLeast and redialMost bound the pause between two attempts. It grows
	// while there is no daemon, and while one hangs up at once.
	redialLeast = 5 * time.Millisecond
	redialMost  = 250 * time.Millisecond
)

// NewDialler gives the Dialler for the control directory dir.
func NewDialler(dir string) *Dialler {
	d := &Dialler{path: filepath.Join(dir, socketName), closed: make(chan struct{}), turn: make(chan struct{}, 1)}
	d.over()
	return d
}

// AcceptUnix implements Connections.
func (d *Dialler) AcceptUnix() (*net.UnixConn, error) {
	select {
	case <-d.turn:
	case <-d.closed:
		return nil, net.ErrClosed
	}
	if time.Since(d.last) > time.Second {
		d.wait = 0
	}
	for {
		if d.wait > 0 {
			select {
			case <-time.After(d.wait):
			case <-d.closed:
				return nil, net.ErrClosed
			}
		}
		d.wait = min(max(2*d.wait, redialLeast), redialMost)
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: d.path, Net: "unix"})
		if err == nil {
			d.last = time.Now()
			return c, nil
		}
		select {
		case <-d.closed:
			return nil, net.ErrClosed
		default:
		}
	}
}

// over lets AcceptUnix dial again.
func (d *Dialler) over() { d.turn <- struct{}{} }

// Close implements Connections.
func (d *Dialler) Close() error {
	d.close.Do(func() { close(d.closed) })
	return nil
}
