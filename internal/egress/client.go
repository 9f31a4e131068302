package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/egress/guard"
	"github.com/toold/toold/internal/egress/netns"
	"github.com/toold/toold/internal/egress/resolver"
	"github.com/toold/toold/internal/endpoint"
)

// Times of a connection's beginning.
const (
	helloTime = 5 * time.Second // for a ClientHello, or what a SOCKS client says
	dialTime  = 20 * time.Second
	// crowded is the pause after a connection that was refused for a limit.
	crowded = time.Millisecond
)

// After a quiet second a session may open Limits.PerSecond connections at once. They are taken up
// at this pace, behind the first few, so that a neighbour's need not wait behind all of them.
const (
	pacePerSecond = 1000
	paceBurst     = 32
)

// client is a connection of a program in the session. Close ends it and its record.
type client struct {
	net.Conn
	n     *Network
	calls []string
	exact bool

	up, down atomic.Int64 // bytes
	waiting  atomic.Bool  // for a verdict: it is not idle then
	seen     int64        // watch's: how far it had come
	since    time.Time    // watch's: when that changed
	over     sync.Once
	ctx      context.Context //nolint:containedctx // of the connection
	cancel   context.CancelFunc

	mu      sync.Mutex     // guards the fields below
	rec     *Record        // of the connection; nil before it was judged, and once it is reported
	far     net.Conn       // nil before it was dialled
	address netip.AddrPort // of far
	dialed  time.Duration  // until it was connected
	open    *standing      // another one whenever it changes; never nil
}

// standing is what is open on a connection, which is judged again when the rules change.
type standing struct {
	tunnel kind     // what passes unread; none for requests
	under  *Request // the request that is under way
	by     uint64   // the revision of the rules by which all of it was judged last
}

// accept gives the connections of one listener to serve, a goroutine each. It takes one more than
// the session may have, so that a flood fills the kernel's backlog of its own listener, and its
// programs wait.
func (n *Network) accept(l *net.TCPListener, serve func(*client)) {
	for {
		c, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors or memory
			time.Sleep(crowded)
		default:
			n.admit(c, serve)
		}
	}
}

// admit serves a connection when it is its turn, or refuses it for a limit.
func (n *Network) admit(c net.Conn, serve func(*client)) {
	if n.turn() != nil {
		reset(c)
		return
	}
	began := time.Now()
	cl := &client{Conn: c, n: n, since: began, open: &standing{}}
	if gone(c) { // the cheapest flood is to be the cheapest to answer: nobody is asked, nothing is dialled
		_ = c.Close()
		n.cfg.Gate.Done(Record{Request: cl.request(endpoint.Endpoint{}), Error: errGone.Error(), Began: began})
		return
	}
	cl.ctx, cl.cancel = context.WithCancel(n.ctx)
	cl.calls, cl.exact = n.attribute(c)
	if err := n.enroll(cl); err != nil {
		reset(c)
		cl.cancel()
		n.cfg.Gate.Done(Record{Request: cl.request(endpoint.Endpoint{}), Error: err.Error(), Began: began})
		time.Sleep(crowded)
		return
	}
	n.work.Go(func() { serve(cl) })
}

// attribute says which calls may have opened a connection.
func (n *Network) attribute(c net.Conn) (calls []string, exact bool) {
	if n.cfg.Calls == nil {
		return nil, false
	}
	calls = n.cfg.Calls()
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !ok2 || n.diag == nil || n.cfg.Call == nil {
		return calls, false
	}
	id, err := n.diag.Cgroup(remote.AddrPort(), local.AddrPort()) // as its program sees it
	if err != nil {
		return calls, false
	}
	if call, ok := n.cfg.Call(id); ok && slices.Contains(calls, call) {
		return []string{call}, true
	}
	return calls, false
}

func (c *client) request(to endpoint.Endpoint) Request {
	r := Request{Calls: c.calls, Exact: c.exact, Port: to.Port}
	if to.Port != 0 {
		r.Host = to.Host.String()
	}
	return r
}

// Close ends the connection, and tells the gate of it once.
func (c *client) Close() error {
	err := c.Conn.Close()
	c.over.Do(func() {
		c.cancel()
		c.n.left(c)
		c.mu.Lock()
		if c.far != nil {
			_ = c.far.Close()
		}
		c.mu.Unlock()
		c.report()
	})
	return err
}

// report tells the gate once what became of the connection, if it was judged.
func (c *client) report() {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec := c.rec
	if c.rec = nil; rec == nil {
		return
	}
	rec.Took, rec.Up, rec.Down, rec.Address = time.Since(rec.Began), c.up.Load(), c.down.Load(), c.address
	rec.Dialed = c.dialed
	c.n.cfg.Gate.Done(*rec)
}

// abort ends the connection so that its program sees an error and no end of data. The gate
// knows why before the program does, which may end its call at once.
func (c *client) abort() {
	c.report()
	linger(c.Conn)
	_ = c.Close()
}

func linger(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
}

func reset(c net.Conn) {
	linger(c)
	_ = c.Close()
}

// judge asks the gate about the connection, or about a further one that a client of the proxy
// needs. The gate knows of a denial before the program does.
func (c *client) judge(to endpoint.Endpoint) Verdict {
	c.report()
	by := c.n.revision()
	rec := &Record{Request: c.request(to), Began: time.Now()}
	rec.Verdict = c.ask(rec.Request, c.n.cfg.Gate.Connect)
	c.mu.Lock()
	c.rec, c.address, c.dialed, c.open = rec, netip.AddrPort{}, 0, &standing{by: by}
	c.mu.Unlock()
	c.up.Store(0)
	c.down.Store(0)
	v := rec.Verdict
	if !v.Allow {
		c.report()
	}
	return v
}

// ask waits for a verdict. A client that hangs up meanwhile gets none that allows.
func (c *client) ask(r Request, gate func(context.Context, Request) Verdict) Verdict {
	c.waiting.Store(true)
	defer c.waiting.Store(false)
	v := gate(c.ctx, r)
	if c.ctx.Err() != nil {
		v.Allow = false
	}
	return v
}

// fail notes why an allowed connection did not go through.
func (c *client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rec != nil && c.rec.Error == "" {
		c.rec.Error = err.Error()
	}
}

// deny makes a denial of a connection that was allowed.
func (c *client) deny(v Verdict) Verdict {
	v.Allow = false
	c.mu.Lock()
	if c.rec != nil {
		c.rec.Verdict = v
	}
	c.mu.Unlock()
	return v
}

// deniedError is an address that may not be dialled.
type deniedError struct{ Verdict }

// Error implements error. The address is not said: a name's is none of the session's business.
func (e *deniedError) Error() string {
	text := "it leads to an address that was denied by " + e.Inside()
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// errAsked is for an address that somebody has to be asked about first.
var errAsked = errors.New("somebody is asked about the address")

// dial connects to the far side of an allowed connection. Each address is judged when it is dialled.
// Where none can be reached without asking, somebody is asked about the first such one, and that
// is dialled.
func (c *client) dial(ctx context.Context, to endpoint.Endpoint) (net.Conn, error) {
	began, by := time.Now(), c.n.revision()
	ep := to.String()
	if _, literal := to.Host.Addr(); !literal {
		ep = fmt.Sprintf("%s.:%d", to.Host, to.Port) // as it is: no search list of the host's
	}
	far, ask, err := c.dialOnce(ctx, to, ep, netip.Addr{})
	if err != nil && ask.IsValid() {
		r := c.request(to)
		r.Address = ask
		if v := c.ask(r, c.n.cfg.Gate.Connect); !v.Allow {
			return nil, dialError(to, &deniedError{v})
		}
		far, _, err = c.dialOnce(ctx, to, netip.AddrPortFrom(ask, to.Port).String(), ask)
	}
	if err != nil {
		return nil, dialError(to, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, errors.Join(context.Cause(c.ctx), far.Close())
	}
	c.far, c.dialed = far, time.Since(began)
	c.open = &standing{c.open.tunnel, c.open.under, min(by, c.open.by)} // the address was judged by these rules
	if a, ok := far.RemoteAddr().(*net.TCPAddr); ok {
		c.address = netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), uint16(a.Port))
	}
	return far, nil
}

// dialOnce dials ep, and gives the first address that somebody has to be asked about. answered is
// one that somebody has allowed, with all that it may lead to.
func (c *client) dialOnce(ctx context.Context, to endpoint.Endpoint, ep string, answered netip.Addr) (far net.Conn, ask netip.Addr, err error) {
	var mu sync.Mutex // of ask: addresses of both families are dialled at once
	d := net.Dialer{Timeout: dialTime, Resolver: c.n.cfg.Resolver, Control: guard.Control(func(a netip.Addr) (bool, error) {
		r := c.request(to)
		r.Address = a
		switch v, how := c.n.cfg.Gate.Opens(r); {
		case how == Named, how == Asked && answered.IsValid() && slices.Contains(endpoint.Readings(answered), a):
			return true, nil
		case how == Public:
			return false, nil
		case how == Asked:
			mu.Lock()
			defer mu.Unlock()
			if !ask.IsValid() {
				ask = a
			}
			return false, errAsked
		default:
			return false, &deniedError{v}
		}
	})}
	far, err = d.DialContext(ctx, "tcp", ep)
	mu.Lock()
	defer mu.Unlock()
	return far, ask, err
}

// dialError is what a session is told of why a host cannot be reached: not how the host
// looks names up, and not where they lead.
func dialError(to endpoint.Endpoint, err error) error {
	var refused *guard.RefusedError
	var denied *deniedError
	var dns *net.DNSError
	switch {
	case errors.As(err, &denied):
		return fmt.Errorf("%s: %w", to, denied)
	case errors.As(err, &refused):
		return fmt.Errorf("%s: %w", to, refused)
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Errorf("%s: there is no such host", to)
	case errors.As(err, &dns):
		return fmt.Errorf("%s: the name could not be looked up", to)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%s: connection refused", to)
	default:
		return fmt.Errorf("%s: it cannot be reached", to)
	}
}

// transparent serves a connection that a program made to the address itself.
func (n *Network) transparent(c *client) {
	to, err := n.wanted(c)
	if err != nil {
		c.abort()
		return
	}
	n.forward(c, to, nil, nil)
}

// wanted is where the program wanted to go.
func (n *Network) wanted(c *client) (endpoint.Endpoint, error) {
	addr, err := netns.Original(c.Conn.(*net.TCPConn))
	switch {
	case err != nil:
		return endpoint.Endpoint{}, err
	case addr.Addr().IsLoopback():
		return endpoint.Endpoint{}, errors.New("a port of its own loopback")
	case resolver.Space.Contains(addr.Addr()):
		name, ok := n.names.Name(addr.Addr())
		if !ok {
			return endpoint.Endpoint{}, errors.New("an address that stands for no name")
		}
		host, err := endpoint.ParseHost(name)
		return endpoint.Endpoint{Host: host, Port: addr.Port()}, err
	}
	return endpoint.Endpoint{Host: endpoint.HostOf(addr.Addr()), Port: addr.Port()}, nil
}
