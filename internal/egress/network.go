package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/toold/toold/internal/egress/netns"
	"github.com/toold/toold/internal/egress/resolver"
)

// Defaults of Limits.
const (
	defaultConnections = 256
	defaultPerSecond   = 200
	defaultIdle        = 10 * time.Minute
	defaultNames       = 10000
)

// Network is the way out of one live session. Its methods may be called from any goroutine.
type Network struct {
	cfg     Config
	names   *resolver.Names
	diag    *netns.Netlink // in the session's namespace; nil without one
	share   *Share         // what this session uses, below Config.Share
	pace    *rate.Limiter  // see pacePerSecond
	asks    *rate.Limiter  // of requests that are judged: as many a second as connections
	web     *web
	ctx     context.Context //nolint:containedctx // the life of the network itself
	cancel  context.CancelFunc
	work    sync.WaitGroup
	refused atomic.Int64  // queries without an answer
	moved   atomic.Uint64 // how often tls has changed

	mu        sync.Mutex // guards the fields below
	closed    bool
	tls       map[uint16]bool
	listeners map[uint16]*listener
	files     []*os.File // of all listeners and of the resolver, for the agent to hold
	closers   []func() error
	clients   map[*client]struct{}
	watching  bool // watch runs, as it does while there are clients
}

// listener is one port in the namespace.
type listener struct {
	*net.TCPListener
	file *os.File
}

// Open makes the way out. When it returns nil, what the session connects to is answered; after
// an error nothing is left of it. Held and Relay of cfg are its own in both cases. A port that
// a program of the session has is left out, and logged.
func Open(ctx context.Context, cfg Config) (*Network, error) {
	l := &cfg.Limits
	l.Connections, l.PerSecond = cmp.Or(l.Connections, defaultConnections), cmp.Or(l.PerSecond, defaultPerSecond)
	l.Idle, l.Names = cmp.Or(l.Idle, defaultIdle), cmp.Or(l.Names, defaultNames)
	n := &Network{
		cfg: cfg, share: NewShare("the programs of this session", cfg.Share, func() Limits { return cfg.Limits }),
		asks:      rate.NewLimiter(rate.Limit(l.PerSecond), l.PerSecond),
		pace:      rate.NewLimiter(max(pacePerSecond, rate.Limit(l.PerSecond)), paceBurst),
		listeners: make(map[uint16]*listener), clients: make(map[*client]struct{}),
	}
	n.ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	n.web = newWeb(n)
	var err error
	if n.names, err = resolver.OpenNames(l.Names, cfg.Names); err == nil {
		err = n.start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the network of session %s: %w", cfg.Session, err), n.Close())
	}
	return n, nil
}

func (n *Network) start() error {
	n.work.Go(n.web.serve)
	if n.cfg.Relay != nil {
		n.work.Go(n.relay)
	}
	if n.cfg.Namespace == nil {
		n.setTLS(n.cfg.TLS)
		return nil
	}
	if err := n.enter(); err != nil {
		return err
	}
	if err := n.SetPorts(n.cfg.Ports, n.cfg.TLS); err != nil {
		n.cfg.Log.Warn("listen at the ports of the rules", "session", n.cfg.Session, "error", err)
	}
	return nil
}

// ResolverAddress is where sessions find their resolver, by /etc/resolv.conf.
var ResolverAddress = netip.MustParseAddrPort("127.0.0.53:53")

// Addresses of the proxies inside.
var (
	loopback     = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	proxyAddress = netip.AddrPortFrom(loopback, ProxyPort)
	socksAddress = netip.AddrPortFrom(loopback, SocksPort)
)

// enter makes the route, and what listens whatever the rules say.
func (n *Network) enter() error {
	held, err := sortHeld(n.cfg.Held, n.cfg.Namespace)
	n.cfg.Held = nil
	if err != nil {
		return err
	}
	_, err = netns.In(n.cfg.Namespace, func() (struct{}, error) {
		if err := netns.RouteAll(); err != nil {
			return struct{}{}, err
		}
		var err error
		if n.diag, err = netns.OpenNetlink(unix.NETLINK_SOCK_DIAG); err != nil {
			return struct{}{}, err
		}
		n.closers = append(n.closers, n.diag.Close)
		return struct{}{}, n.listenAlways(held)
	})
	return err
}

// listenAlways is called in the namespace.
func (n *Network) listenAlways(held map[string]*os.File) error {
	server := &resolver.Server{Names: n.names, Refused: func() { n.refused.Add(1) }}
	packets, err := n.keep(held, "udp", ResolverAddress, netns.Packets)
	if err != nil {
		return err
	}
	if packets != nil {
		c, err := net.FilePacketConn(packets)
		if err != nil {
			return err
		}
		n.closers = append(n.closers, c.Close)
		n.work.Go(func() { server.ServePackets(c) })
	}
	for addr, serve := range map[netip.AddrPort]func(*net.TCPListener){
		ResolverAddress: func(l *net.TCPListener) { server.ServeStreams(n.ctx, l) },
		proxyAddress:    func(l *net.TCPListener) { n.accept(l, n.proxied) },
		socksAddress:    func(l *net.TCPListener) { n.accept(l, n.socks) },
	} {
		f, err := n.keep(held, "tcp", addr, netns.Listen)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		l, err := netns.Listener(f)
		if err != nil {
			return err
		}
		n.closers = append(n.closers, l.Close)
		n.work.Go(func() { serve(l) })
	}
	for name, f := range held { // the ports of rules
		l, err := netns.Listener(f)
		if err != nil {
			return fmt.Errorf("take over %s: %w", name, err)
		}
		n.add(&listener{l, f})
	}
	return nil
}

// keep takes a socket over that was held, or makes it. It gives nil where a program of the
// session has the port: it only harms its own session.
func (n *Network) keep(held map[string]*os.File, network string, addr netip.AddrPort, make func(netip.AddrPort) (*os.File, error)) (*os.File, error) {
	name := network + " " + addr.String()
	f := held[name]
	delete(held, name)
	if f == nil {
		var err error
		f, err = make(addr)
		if errors.Is(err, unix.EADDRINUSE) {
			n.cfg.Log.Warn("a program of the session has a port of the daemon's", "session", n.cfg.Session, "port", name)
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.files = append(n.files, f)
	return f, nil
}

// add serves a port of the rules.
func (n *Network) add(l *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	n.listeners[port] = l
	n.files = append(n.files, l.file)
	n.work.Go(func() { n.accept(l.TCPListener, n.transparent) })
}

// SetPorts listens on these ports, besides 80, 443 and tls, and on no others: on the first of them
// where they are more than MaxPorts. tls are as Config.TLS. It is for rules that changed. Where a
// program of the session has a port already, or there are too many, the error says so; all others
// are done.
func (n *Network) SetPorts(ports, tls []uint16) error {
	n.setTLS(tls)
	if n.cfg.Namespace == nil {
		return nil
	}
	ports, over := firstPorts(slices.Concat([]uint16{80, 443}, tls, ports))
	n.mu.Lock()
	for port, l := range n.listeners {
		if !slices.Contains(ports, port) {
			_ = l.Close()
			_ = l.file.Close()
			n.files = slices.DeleteFunc(n.files, func(f *os.File) bool { return f == l.file })
			delete(n.listeners, port)
		}
	}
	ports = slices.DeleteFunc(ports, func(p uint16) bool { return n.listeners[p] != nil })
	n.mu.Unlock()
	if len(ports) == 0 {
		return over
	}
	_, err := netns.In(n.cfg.Namespace, func() (struct{}, error) {
		var errs error
		for _, p := range ports {
			errs = errors.Join(errs, n.listen(p))
		}
		return struct{}{}, errs
	})
	return errors.Join(over, err)
}

// firstPorts gives each port once, at most MaxPorts of them, and says where these are not all.
func firstPorts(all []uint16) (ports []uint16, over error) {
	for _, p := range all {
		if p != ProxyPort && p != SocksPort && p != 53 && !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	if n := len(ports); n > MaxPorts {
		return ports[:MaxPorts], fmt.Errorf("the rules name %d ports, and %d are listened at: name fewer", n, MaxPorts)
	}
	return ports, nil
}

func (n *Network) setTLS(ports []uint16) {
	tls := map[uint16]bool{443: true}
	for _, p := range ports {
		tls[p] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !maps.Equal(n.tls, tls) {
		n.tls = tls
		n.moved.Add(1)
	}
}

// listen is called in the namespace.
func (n *Network) listen(port uint16) error {
	f, err := netns.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), port))
	if err != nil {
		return err
	}
	l, err := netns.Listener(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	n.add(&listener{l, f})
	return nil
}

// Close closes the way out and all its connections, and returns when nothing of it runs.
func (n *Network) Close() error {
	n.cancel()
	n.mu.Lock()
	n.closed = true
	var err error
	for _, l := range n.listeners {
		err = errors.Join(err, l.Close())
	}
	for _, f := range n.files {
		err = errors.Join(err, f.Close())
	}
	for _, c := range n.closers {
		err = errors.Join(err, c())
	}
	n.listeners, n.files, n.closers = nil, nil, nil
	n.mu.Unlock()
	if n.cfg.Relay != nil {
		err = errors.Join(err, n.cfg.Relay.Close())
	}
	for _, f := range n.cfg.Held { // not sorted: it failed before
		err = errors.Join(err, f.Close())
	}
	_ = n.web.server.Close()
	for _, c := range n.open() {
		c.abort()
	}
	n.work.Wait()
	return err
}
