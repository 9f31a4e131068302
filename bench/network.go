package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/egress/netns"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/thread"
)

// benchNetwork times the way out of a session beside a plain relay in the same namespace, which
// accepts, dials the same server and splices; and sessions with a network beside those without.
func benchNetwork(ctx context.Context, l *lab) []row {
	rows := l.networkCreate(ctx)
	w := newWay(ctx)
	defer w.close()
	for _, part := range []func(*lab) []row{w.firstByte, w.large, w.many, w.flooded} {
		rows = append(rows, part(l)...)
	}
	return rows
}

// openGate allows all.
type openGate struct{ private []netip.Prefix }

func (g openGate) Connect(context.Context, egress.Request) egress.Verdict {
	return egress.Verdict{Allow: true}
}

func (g openGate) HTTP(context.Context, egress.Request) egress.Verdict {
	return egress.Verdict{Allow: true}
}

func (g openGate) Opens(r egress.Request) (egress.Verdict, egress.Opening) {
	if slices.ContainsFunc(g.private, func(p netip.Prefix) bool { return p.Contains(r.Address) }) {
		return egress.Verdict{Allow: true}, egress.Named
	}
	return egress.Verdict{Allow: true}, egress.Public
}
func (openGate) Reads(egress.Request) egress.Reading { return egress.Reading{} }
func (openGate) Revision() uint64                    { return 0 }
func (openGate) Done(egress.Record)                  {}

// way is a namespace with a way out and a relay in it, and a server outside.
type way struct {
	ns, other    *os.File // other is a neighbour's
	net, nextNet *egress.Network
	far          net.Listener
	host         netip.Addr
	direct, way  string   // what to dial inside: the relay, the way out
	stop         []func() // the servers
}

func newWay(ctx context.Context) *way {
	w := &way{host: get(ownAddress())}
	w.far = get(net.Listen("tcp4", w.host.String()+":0"))
	w.stop = append(w.stop, testrig.Serve(w.far, serveFar))
	port := uint16(w.far.Addr().(*net.TCPAddr).Port)
	for _, side := range []struct {
		ns     **os.File
		net    **egress.Network
		limits egress.Limits
	}{{&w.ns, &w.net, egress.Limits{Connections: 2000, PerSecond: 20_000}}, {ns: &w.other, net: &w.nextNet}} { // and the defaults
		*side.ns = get(newNetns())
		*side.net = get(egress.Open(ctx, egress.Config{
			Session: "bench", Namespace: *side.ns, Ports: []uint16{port}, Log: slog.New(slog.DiscardHandler),
			Gate: openGate{[]netip.Prefix{netip.PrefixFrom(w.host, 32)}}, Limits: side.limits,
		}))
	}
	w.stop = append(w.stop, testrig.Serve(listenIn(w.ns, port+1), w.pass))
	w.way, w.direct = netip.AddrPortFrom(w.host, port).String(), netip.AddrPortFrom(w.host, port+1).String()
	return w
}

// listenIn listens in a network namespace.
func listenIn(ns *os.File, port uint16) net.Listener {
	f := get(netns.In(ns, func() (*os.File, error) {
		return netns.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), port))
	}))
	defer f.Close()
	return get(netns.Listener(f))
}

func (w *way) close() {
	_ = errors.Join(w.net.Close(), w.nextNet.Close(), w.ns.Close(), w.other.Close())
	for _, stop := range w.stop {
		stop()
	}
}

// ownAddress is one of this host's that is no loopback: those of a session are its own.
func ownAddress() (netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, errors.Join(err, errors.New("network: this host has no IPv4 address but its loopback's"))
}

func newNetns() (*os.File, error) {
	return thread.Run(func() (*os.File, error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return nil, err
		}
		if err := netns.Up(); err != nil {
			return nil, err
		}
		return os.Open("/proc/thread-self/ns/net")
	})
}

// farBlock is what the far side writes: one for all connections, since one for each would have the
// collector work beside a flood, on processors that are being measured.
var farBlock [1 << 20]byte

// serveFar reads a line with a number and sends so many bytes.
func serveFar(c net.Conn) {
	var line [32]byte
	n, err := c.Read(line[:])
	if err != nil {
		return
	}
	size, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	for err == nil && size > 0 {
		n, err = c.Write(farBlock[:min(len(farBlock), size)])
		size -= n
	}
	_, _ = io.Copy(io.Discard, c)
}

// pass is the plain relay.
func (w *way) pass(c net.Conn) {
	far, err := net.Dial("tcp4", w.way)
	if err != nil {
		return
	}
	defer far.Close()
	go func() { _, _ = io.Copy(far, c); _ = far.(*net.TCPConn).CloseWrite() }()
	_, _ = io.Copy(c, far)
}

// ask dials, and reads size bytes.
func ask(addr string, size int) error {
	c, err := net.Dial("tcp4", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, size); err != nil {
		return err
	}
	_, err = io.CopyN(io.Discard, c, int64(size))
	return err
}

func (w *way) firstByte(l *lab) []row {
	took := get(netns.In(w.ns, func() (map[string]stats, error) {
		return inTurns(manner{n: l.n(2000), run: runLength}, []subject{
			{name: "relay", op: timed(func() error { return ask(w.direct, 1) })},
			{name: "way", op: timed(func() error { return ask(w.way, 1) })},
		})
	}))
	return []row{row{Group: "network", Name: "first byte of a connection", Manner: "runs", Unit: "µs", stats: took["way"], Target: "≤ 1.5 ×"}.
		against("plain relay", took["relay"])}
}

// large moves a GiB, and counts the processor time of everything: client, server and relay.
func (w *way) large(l *lab) []row {
	size := 1 << 30
	if l.smoke {
		size = 1 << 22
	}
	cpu := map[string][]float64{}
	op := func(name, addr string) subject {
		return subject{name: name, op: func() (time.Duration, error) {
			before := processorTime()
			d, err := timed(func() error { return ask(addr, size) })()
			cpu[name] = append(cpu[name], float64((processorTime() - before).Microseconds()))
			return d, err
		}}
	}
	took := get(netns.In(w.ns, func() (map[string]stats, error) {
		return inTurns(manner{n: 5, run: 1}, []subject{op("relay", w.direct), op("way", w.way)})
	}))
	return []row{
		row{Group: "network", Name: "1 GiB down", Unit: "µs", stats: took["way"], Target: "≤ 1.25 ×"}.against("plain splice relay", took["relay"]),
		row{Group: "network", Name: "its processor time, client and server too", Unit: "µs", stats: summarise(cpu["way"])}.against("plain splice relay", summarise(cpu["relay"])),
	}
}

func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// many opens a thousand connections and holds them until all have answered.
func (w *way) many(l *lab) []row {
	count := l.n(1000)
	op := func(addr string) func() (time.Duration, error) {
		return timed(func() error {
			conns := make([]net.Conn, 0, count)
			defer func() {
				for _, c := range conns {
					_ = c.Close()
				}
			}()
			for range count {
				c, err := net.Dial("tcp4", addr)
				if err != nil {
					return err
				}
				conns = append(conns, c)
				if _, err := fmt.Fprintln(c, 1); err != nil {
					return err
				}
			}
			for _, c := range conns {
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	took := get(netns.In(w.ns, func() (map[string]stats, error) {
		return inTurns(manner{n: 3, run: 1}, []subject{{name: "relay", op: op(w.direct)}, {name: "way", op: op(w.way)}})
	}))
	return []row{row{Group: "network", Name: strconv.Itoa(count) + " connections at once", Unit: "µs", stats: took["way"]}.against("plain relay", took["relay"])}
}

// networkCreate times sessions with rules beside those without.
func (l *lab) networkCreate(ctx context.Context) []row {
	l = newLab(labConfig{smoke: l.smoke, sandbox: fmt.Sprintf("runtime = %q\n[network]\nmode = \"rules\"\n", l.runc)})
	defer l.close()
	op := func(mode string) subject {
		like := l.bound()
		like.Network.Mode = mode
		return l.making(ctx, mode, like)
	}
	took := get(inTurns(manner{n: l.n(50), run: 1}, []subject{op(client.NetworkNone), op(client.NetworkRules)}))
	created := row{Group: "network", Name: "session with rules", Unit: "µs", stats: took[client.NetworkRules], Target: "≤ 1.1 ×"}.
		against("without", took[client.NetworkNone])
	return append([]row{created}, l.networkMemory(ctx)...)
}

// networkMemory is what sessions with rules cost beside those without: what their cgroups are
// charged with, what the daemon grows by, and what the host has less of. Nothing is asked of
// the network: an idle session has its listeners all the same.
func (l *lab) networkMemory(ctx context.Context) []row {
	n := l.n(50)
	charged, daemon, less := map[string]stats{}, map[string]stats{}, map[string]stats{}
	for _, mode := range []string{client.NetworkNone, client.NetworkRules, client.NetworkNone, client.NetworkRules} { // the first two warm up
		free, rss := available(), l.rss()
		like := l.bound()
		like.Network.Mode = mode
		ids := l.crowd(ctx, n, like)
		grown := (l.rss() - rss) / float64(n)
		fewer := (free - available()) / float64(n)
		charged[mode] = summarise(l.charged(ids))
		daemon[mode], less[mode] = stats{grown, grown, grown, n}, stats{fewer, fewer, fewer, n}
		must(l.end(ctx, ids...))
	}
	var rows []row
	for _, r := range []struct {
		name string
		of   map[string]stats
	}{{"session with rules, charged to its cgroup", charged}, {"daemon, for each with rules", daemon}, {"MemAvailable, for each with rules", less}} {
		rows = append(rows, row{Group: "network", Name: r.name, Unit: "MiB", stats: r.of[client.NetworkRules]}.against("without", r.of[client.NetworkNone]))
	}
	return rows
}
