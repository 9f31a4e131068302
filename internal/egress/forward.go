package egress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/egress/hello"
	"github.com/toold/toold/internal/egress/socks"
	"github.com/toold/toold/internal/endpoint"
)

// outcome is what a program that asked a proxy is told of its connection.
type outcome struct {
	v   Verdict
	err error // of an allowed one
}

// forward judges a connection and carries it to its end. early are bytes that the program has
// sent already. tell, nil for a program that asked no proxy, is called once before anything
// is sent back.
func (n *Network) forward(c *client, to endpoint.Endpoint, early []byte, tell func(outcome) error) {
	defer func() { _ = c.Close() }()
	v := c.judge(to)
	read, tls := n.reads(c.request(to))
	if tls && v.Allow && read.TLS != nil {
		v = c.deny(*read.TLS)
		c.report()
	}
	switch {
	case read.Only && (v.Allow || to.Port == 80 && tell == nil):
		// A denial is an answer to each request.
		if tell != nil && tell(outcome{v: v}) != nil {
			return
		}
		n.requests(c, to, v, read, early)
		return
	case !v.Allow && tell != nil:
		_ = tell(outcome{v: v})
		return
	case !v.Allow:
		c.abort()
		return
	}
	far, err := c.dial(c.ctx, to)
	if err != nil {
		v = c.failed(v, err)
		c.report()
	}
	if tell != nil {
		err = errors.Join(err, tell(outcome{v: v, err: err}))
	}
	if err == nil {
		err = n.carry(c, far, to, early)
	}
	if err != nil {
		c.failed(v, err)
		c.abort()
	}
}

// failed notes why an allowed connection did not go through, and gives the verdict on it: an address
// may have been denied.
func (c *client) failed(v Verdict, err error) Verdict {
	if denied, ok := errors.AsType[*deniedError](err); ok {
		return c.deny(denied.Verdict)
	}
	c.fail(err)
	return v
}

// requests serves a connection on which nothing but requests passes.
func (n *Network) requests(c *client, to endpoint.Endpoint, v Verdict, read Reading, early []byte) {
	err := c.SetReadDeadline(time.Now().Add(headerTime))
	early, k, readErr := readFirst(io.MultiReader(bytes.NewReader(early), c.Conn), func() {})
	if k != request {
		why := "only HTTP that can be read passes there"
		switch {
		case errors.Is(readErr, os.ErrDeadlineExceeded):
			why += fmt.Sprintf(", and no request came in %s: whoever waits for the other side to speak first waits in vain", headerTime)
		case readErr != nil:
			why += ", and it ended without a request"
		}
		if read.Rule == "" {
			c.fail(errors.New(why))
		} else {
			c.deny(Verdict{Rule: read.Rule, Reason: why})
		}
		c.abort()
		return
	}
	if errors.Join(err, c.SetReadDeadline(time.Time{})) == nil {
		n.serve(c, to, v, early, nil)
	}
}

// serve serves the requests of a connection to one place, of which first has come.
func (n *Network) serve(c *client, to endpoint.Endpoint, v Verdict, first []byte, far net.Conn) {
	if bytes.HasPrefix(first, []byte("PRI * HTTP/2")) {
		c.fail(errors.New("HTTP/2 without TLS cannot be read: use HTTP/1.1"))
		c.abort()
		return
	}
	n.web.take(c, to, v, first, far)
}

// reads says how a connection is read, and whether nothing but TLS passes there.
func (n *Network) reads(r Request) (read Reading, tls bool) {
	read = n.cfg.Gate.Reads(r)
	n.mu.Lock()
	tls = n.tls[r.Port] && !read.ByPort
	n.mu.Unlock()
	read.Only = !tls && (read.Only || r.Port == 80)
	return read, tls
}

// carry checks how the connection begins where that must be TLS, or where requests are to be read,
// and then moves bytes.
func (n *Network) carry(c *client, far net.Conn, to endpoint.Endpoint, early []byte) error {
	k, by := unread, n.revision()
	switch read, tls := n.reads(c.request(to)); {
	case tls:
		var err error
		if early, err = c.readHello(to, early); err != nil {
			return err
		}
		k = named
	case read.Requests || read.TLS != nil:
		return n.carryRead(c, far, to, early)
	}
	if !c.stand(k, nil, by) {
		return nil
	}
	if err := c.send(far, early); err != nil {
		return err
	}
	return c.splice(far)
}

// send sends what was read of the program already.
func (c *client) send(far net.Conn, early []byte) error {
	if len(early) == 0 {
		return nil
	}
	if _, err := far.Write(early); err != nil {
		return broken(err)
	}
	return c.count(&c.up, int64(len(early)))
}

// carryRead looks at what the program says first while it moves what the far side says, which may
// be before that. Requests go on as such, with the connection that there is. The rules may have
// changed when the program speaks.
func (n *Network) carryRead(c *client, far net.Conn, to endpoint.Endpoint, early []byte) error {
	if !c.stand(silent, nil, n.revision()) {
		return nil
	}
	var handing atomic.Bool
	down := make(chan error, 1)
	go func() {
		err := c.move(c.Conn, far, &c.down)
		if err != nil && !handing.Load() {
			reset(c.Conn)
			reset(far)
		}
		down <- err
	}()
	first, k, err := readFirst(io.MultiReader(bytes.NewReader(early), c.Conn), sync.OnceFunc(func() {
		_ = c.SetReadDeadline(time.Now().Add(headerTime)) // it fails where the next read does
	}))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		first, k, err = c.pieces(far, first)
	}
	by := n.revision()
	read, _ := n.reads(c.request(to))
	switch {
	case k == request && (read.Requests || read.Only):
		handing.Store(true)
		_ = far.SetReadDeadline(time.Unix(1, 0))
		err := <-down
		if !errors.Is(err, os.ErrDeadlineExceeded) || c.down.Load() > 0 || c.up.Load() > 0 {
			return fmt.Errorf("a request to %s came after its answer, or in pieces: it cannot be judged", to)
		}
		err = errors.Join(far.SetReadDeadline(time.Time{}), c.SetReadDeadline(time.Time{}))
		if err == nil && c.stand(none, nil, by) {
			n.serve(c, to, Verdict{Allow: true}, first, far)
		}
		return broken(err)
	case k == secret && read.TLS != nil:
		c.deny(*read.TLS)
		c.abort()
		<-down //nolint:errcheck // it is over, one way or another
		return nil
	case err != nil && !errors.Is(err, io.EOF):
		reset(far)
		<-down //nolint:errcheck // it is over, one way or another
		return broken(err)
	}
	if err = c.SetReadDeadline(time.Time{}); err == nil && c.stand(k, nil, by) {
		err = c.send(far, first)
	}
	if err == nil {
		err = c.move(far, c.Conn, &c.up)
	}
	if err != nil {
		reset(c.Conn)
		reset(far)
	}
	return errors.Join(broken(err), broken(<-down))
}

// pieces passes on what could yet become a request, as who said so little waits for an answer, until it is
// known what it is. rest is what has not gone on then. Nothing goes that would be one if it ended there.
func (c *client) pieces(far net.Conn, first []byte) (rest []byte, k kind, err error) {
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return nil, other, err
	}
	buf := make([]byte, maxFirst)
	for rest = first; ; {
		if kindOf(append(slices.Clip(first), '\n')) == request {
			return nil, other, fmt.Errorf("how it began may be a request of HTTP, and the rest did not come in %s", headerTime)
		}
		if err != nil {
			return rest, other, err
		}
		if err = c.send(far, rest); err != nil {
			return nil, other, err
		}
		var n int
		n, err = c.Conn.Read(buf)
		rest = buf[:n]
		first = append(first, rest...)
		if k = kindOf(first); k != none {
			return rest, k, nil
		}
	}
}

// readHello holds the bytes back until it is seen that they are for the host that was asked
// for.
func (c *client) readHello(to endpoint.Endpoint, early []byte) ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return nil, err
	}
	name, taken, err := hello.Read(io.MultiReader(bytes.NewReader(early), c.Conn))
	if err != nil {
		return nil, fmt.Errorf("on port %d only TLS passes: %w", to.Port, err)
	}
	if err := checkName(to, name); err != nil {
		return nil, err
	}
	return taken, c.SetReadDeadline(time.Time{})
}

// checkName compares the name of a ClientHello with where the connection goes. Clients name
// no server where that is an address.
func checkName(to endpoint.Endpoint, name string) error {
	if _, literal := to.Host.Addr(); literal && name == "" {
		return nil
	}
	host, err := endpoint.ParseHost(name)
	if err != nil || host.String() != to.Host.String() {
		return fmt.Errorf("the connection is to %s, and its TLS server name is %.100q", to, name)
	}
	return nil
}

// chunk is how many bytes move before they are counted.
const chunk = 1 << 20

// splice moves bytes both ways until both have ended, or one has failed. A side that breaks off
// is broken off on the other side too: neither may take what it got for the whole.
func (c *client) splice(far net.Conn) error {
	down := make(chan error, 1)
	move := func(to, from net.Conn, direction *atomic.Int64) error {
		err := c.move(to, from, direction)
		if err != nil {
			reset(c.Conn) // ends the other direction
			reset(far)
		}
		return broken(err)
	}
	go func() { down <- move(c.Conn, far, &c.down) }()
	err := move(far, c.Conn, &c.up)
	return errors.Join(err, <-down)
}

// broken is what is told of a connection that ended early: nothing where a side hung up, as
// many programs do when they have what they want, and never the addresses of the daemon's end.
func broken(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, net.ErrClosed), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return nil
	case errors.As(err, &op):
		return errors.New("the connection broke")
	}
	return err
}

// move moves bytes one way, inside the kernel where both are sockets, and passes on their end.
func (c *client) move(to, from net.Conn, direction *atomic.Int64) error {
	for {
		moved, err := io.Copy(to, &io.LimitedReader{R: from, N: chunk})
		if err = errors.Join(err, c.count(direction, moved)); err != nil {
			return err
		}
		if moved < chunk {
			return closeWrite(to)
		}
	}
}

// closeWrite passes on the end of what comes. A side that has hung up needs none.
func closeWrite(c net.Conn) error {
	w, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return c.Close()
	}
	if err := w.CloseWrite(); !errors.Is(err, unix.ENOTCONN) {
		return err
	}
	return nil
}

// socks serves a client of the SOCKS proxy.
func (n *Network) socks(c *client) {
	err := c.SetDeadline(time.Now().Add(helloTime))
	var to endpoint.Endpoint
	if err == nil {
		to, err = socks.Read(c.Conn)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = c.Close()
		return
	}
	n.forward(c, to, nil, func(o outcome) error {
		switch {
		case !o.v.Allow:
			return socks.Answer(c.Conn, socks.NotAllowed)
		case o.err != nil:
			return socks.Answer(c.Conn, socks.Unreachable)
		}
		return socks.Answer(c.Conn, socks.Granted)
	})
}

// relay serves what the agent passes on where the namespace cannot be entered.
func (n *Network) relay() {
	for {
		c, port, err := n.cfg.Relay.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(crowded)
		case port == ProxyPort:
			n.admit(c, n.proxied)
		case port == SocksPort:
			n.admit(c, n.socks)
		default:
			_ = c.Close()
		}
	}
}
