package egress_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/egress/netns"
	"github.com/toold/toold/internal/endpoint"
	"github.com/toold/toold/internal/thread"
)

// newNamespace makes a network namespace with its loopback up.
func newNamespace(tb testing.TB) *os.File {
	tb.Helper()
	f, err := thread.Run(func() (*os.File, error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return nil, err
		}
		if err := netns.Up(); err != nil {
			return nil, err
		}
		return os.Open("/proc/thread-self/ns/net")
	})
	if errors.Is(err, unix.EPERM) {
		tb.Skip("needs root")
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

// gate allows by two functions and remembers all records.
type gate struct {
	connect func(egress.Request) egress.Verdict
	http    func(egress.Request) egress.Verdict
	opens   func(netip.Addr) egress.Opening // nil: loopback is open, and what is public
	reads   func(egress.Request) egress.Reading
	rev     atomic.Uint64
	hold    chan struct{} // not nil: Connect waits for it, or for its context

	mu      sync.Mutex
	asked   []egress.Request
	records []egress.Record
}

func (g *gate) Connect(ctx context.Context, r egress.Request) egress.Verdict {
	g.mu.Lock()
	g.asked = append(g.asked, r)
	g.mu.Unlock()
	if g.hold != nil {
		select {
		case <-g.hold:
		case <-ctx.Done():
		}
	}
	if g.connect == nil {
		return allow
	}
	return g.connect(r)
}

func (g *gate) HTTP(_ context.Context, r egress.Request) egress.Verdict {
	g.mu.Lock()
	g.asked = append(g.asked, r)
	g.mu.Unlock()
	if g.http == nil {
		return allow
	}
	return g.http(r)
}

func (g *gate) Opens(r egress.Request) (egress.Verdict, egress.Opening) {
	if g.opens != nil {
		return denied, g.opens(r.Address)
	}
	if r.Address.IsLoopback() && (g.connect == nil || g.connect(r) == allow) {
		return allow, egress.Named
	}
	return allow, egress.Public
}

func (g *gate) Reads(r egress.Request) egress.Reading {
	if g.reads == nil {
		return egress.Reading{}
	}
	return g.reads(r)
}

func (g *gate) Revision() uint64 { return g.rev.Load() }

func (g *gate) Done(r egress.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.records = append(g.records, r)
}

func (g *gate) all() []egress.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.records)
}

// wait gives the first record that is the wanted one.
func (g *gate) wait(t *testing.T, want func(egress.Record) bool) egress.Record {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if i := slices.IndexFunc(g.all(), want); i >= 0 {
			return g.all()[i]
		}
	}
	t.Fatalf("no such record; there are %+v", g.all())
	return egress.Record{}
}

var (
	allow  = egress.Verdict{Allow: true, Rule: "test:1", Reason: "the loopback too"}
	denied = egress.Verdict{Rule: `test:2 (network "*")`, Reason: "not on the list"}
)

// only allows these hosts.
func only(hosts ...string) func(egress.Request) egress.Verdict {
	return func(r egress.Request) egress.Verdict {
		if slices.Contains(hosts, r.Host) {
			return allow
		}
		return denied
	}
}

var discard = slog.New(slog.DiscardHandler)

// rig is a session's network without a session.
type rig struct {
	*testing.T
	ns   *os.File
	net  *egress.Network
	gate *gate
	dns  *zone
}

func newRig(t *testing.T, g *gate, cfg egress.Config) *rig {
	t.Helper()
	r := &rig{T: t, ns: newNamespace(t), gate: g, dns: newZone(t)}
	cfg.Session, cfg.Namespace, cfg.Log = "ses_test", r.ns, slog.New(slog.DiscardHandler)
	if cfg.Gate == nil {
		cfg.Gate = g
	}
	cfg.Resolver = r.dns.resolver()
	n, err := egress.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.net = n
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// dial connects inside the namespace to a literal address.
func (r *rig) dial(addr string) (net.Conn, error) {
	r.Helper()
	c, err := netns.In(r.ns, func() (net.Conn, error) { return net.DialTimeout("tcp4", addr, 20*time.Second) })
	if err == nil {
		r.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	}
	return c, err
}

func (r *rig) mustDial(addr string) net.Conn {
	r.Helper()
	c, err := r.dial(addr)
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// lookUp asks the session's resolver.
func (r *rig) lookUp(name string) string {
	r.Helper()
	a := r.query(name, dnsmessage.TypeA)
	if len(a.Answers) != 1 {
		r.Fatalf("%s has %d addresses, code %v", name, len(a.Answers), a.RCode)
	}
	return netip.AddrFrom4(a.Answers[0].Body.(*dnsmessage.AResource).A).String()
}

func (r *rig) query(name string, typ dnsmessage.Type) dnsmessage.Message {
	r.Helper()
	q := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: typ, Class: dnsmessage.ClassINET}},
	}
	raw, err := q.Pack()
	if err != nil {
		r.Fatal(err)
	}
	c, err := netns.In(r.ns, func() (net.Conn, error) { return net.Dial("udp4", "127.0.0.53:53") })
	if err != nil {
		r.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	buf := make([]byte, 1500)
	var a dnsmessage.Message
	_, err = c.Write(raw)
	if err == nil {
		var n int
		n, err = c.Read(buf)
		if err == nil {
			err = a.Unpack(buf[:n])
		}
	}
	if err != nil {
		r.Fatalf("query for %s: %v", name, err)
	}
	return a
}

// exchange is exchange on a connection of its own, which may be refused.
func (r *rig) exchange(addr, text string) string {
	r.Helper()
	c, err := r.dial(addr)
	if err != nil {
		return ""
	}
	return exchange(c, text)
}

// exchange sends text and gives all that comes back until the end.
func exchange(c net.Conn, text string) string {
	_, _ = io.WriteString(c, text)
	got, _ := io.ReadAll(c)
	return string(got)
}

// respond sends one request on a connection that stays open.
func respond(t *testing.T, c net.Conn, br *bufio.Reader, text string) (*http.Response, string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatalf("no answer to %q: %v", text, err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// server is a listener of the test's own that counts what arrives.
type server struct {
	net.Listener
	conns, bytes   atomic.Int64
	opened, closed func() // told of each connection; nil for nobody
}

// listen serves each connection at addr with serve, nil for one that only reads.
func listen(t testing.TB, addr string, serve func(net.Conn)) *server {
	t.Helper()
	if os.Getenv(insideEnv) == "" {
		t.Skip("needs root: a network namespace of the tests' own, where every address is local")
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			if s.opened != nil {
				s.opened()
			}
			wg.Go(func() {
				if s.closed != nil {
					defer s.closed()
				}
				defer c.Close()
				stop := context.AfterFunc(t.Context(), func() { _ = c.Close() })
				defer stop()
				in := &countingConn{c, &s.bytes}
				if serve == nil {
					_, _ = io.Copy(io.Discard, in)
					return
				}
				serve(in)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return s
}

type countingConn struct {
	net.Conn
	n *atomic.Int64
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// web serves HTTP at addr.
func web(t testing.TB, addr string, h http.HandlerFunc) *server {
	t.Helper()
	conns := make(chan net.Conn)
	closed := make(chan struct{})
	s := listen(t, addr, func(c net.Conn) {
		w := &waitConn{Conn: c, done: make(chan struct{})}
		select {
		case conns <- w:
			<-w.done
		case <-closed:
		}
	})
	hs := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = hs.Serve(chanListener{conns, closed, s.Addr()}) }()
	t.Cleanup(func() { close(closed); _ = hs.Close() })
	return s
}

type waitConn struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func (c *waitConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

type chanListener struct {
	conns  chan net.Conn
	closed chan struct{}
	addr   net.Addr
}

func (l chanListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l chanListener) Close() error   { return nil }
func (l chanListener) Addr() net.Addr { return l.addr }

// zone is a name server of the test's own.
type zone struct {
	addr string

	mu    sync.Mutex
	hosts map[string][]string // answers; each query takes the first off where there are more, by ";"
	asked []string
}

func newZone(t *testing.T) *zone {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zone{addr: c.LocalAddr().String(), hosts: make(map[string][]string)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if a := z.answer(buf[:n]); a != nil {
				_, _ = c.WriteTo(a, from)
			}
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-done })
	return z
}

// set makes a name resolve to addresses: to the first of them for the first query for A, and so
// on; the last stays. A "+" joins several in one answer.
func (z *zone) set(name string, addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.hosts[name+"."] = addrs
}

func (z *zone) questions() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.asked)
}

func (z *zone) answer(raw []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(raw) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked = append(z.asked, q.Name.String()+" "+q.Type.String())
	m.Response, m.Additionals = true, nil
	addrs, ok := z.hosts[q.Name.String()]
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
	}
	if len(addrs) > 0 {
		for a := range strings.SplitSeq(addrs[0], "+") {
			h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 0}
			switch addr := netip.MustParseAddr(a); {
			case addr.Is4() && q.Type == dnsmessage.TypeA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: addr.As4()}})
			case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
			}
		}
		if len(addrs) > 1 && q.Type == dnsmessage.TypeA {
			z.hosts[q.Name.String()] = addrs[1:]
		}
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

func (z *zone) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", z.addr)
	}}
}

func portOf(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

func at(host string, port uint16) string {
	h, _ := endpoint.ParseHost(host)
	return endpoint.Endpoint{Host: h, Port: port}.String()
}
