package egress_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
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
	"github.com/toold/toold/internal/testrig"
)

var public = egress.Verdict{Allow: true, Rule: "test:1"} // and no private space

// refusedAddresses are of each kind that no rule opens by a name.
var refusedAddresses = []string{
	"127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "169.254.0.1",
	"100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.170", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
	"224.0.0.1", "240.0.0.1", "255.255.255.255",
	"::1", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "2002:7f00:1::1", "2001::1", "2001:db8::1",
	own, "::ffff:" + own, "2606:2800:220:1:0:5efe:" + own, "::ffff:0:10.0.0.1", "64:ff9b:1:a00:0:100::", "2001:0:a00:1::1", "2001:0:4136:e378:8000:63bf:f5ff:fffe", "2606:2800:220:1:0:5efe:10.0.0.1", "2606:2800:220:1:200:5efe:127.0.0.1",
	"fc00::1", "fd00:ec2::254", "fe80::1", "ff02::1", "100::1",
}

// No byte goes to an address that is not public, by whatever way it was asked for; and the same
// way leads there once a rule names it.
func TestRefusedAddresses(t *testing.T) {
	count := func(allowed []netip.Prefix, addrs []string) (conns int64, errs []string) {
		far := listen(t, "[::]:0", func(c net.Conn) { _, _ = c.Read(make([]byte, 100)) })
		g := &gate{connect: func(egress.Request) egress.Verdict { return public }, opens: func(a netip.Addr) egress.Opening {
			if slices.ContainsFunc(allowed, func(p netip.Prefix) bool { return p.Contains(a) }) {
				return egress.Named
			}
			return egress.Public
		}}
		r := newRig(t, g, egress.Config{Ports: []uint16{portOf(far)}})
		for i, a := range addrs {
			name := fmt.Sprintf("h%d.example.com", i)
			r.dns.set(name, a)
			r.exchange(at(r.lookUp(name), portOf(far)), "transparent by name")
			r.exchange("127.0.0.1:3128", fmt.Sprintf("CONNECT %s HTTP/1.1\r\n\r\nx", at(a, portOf(far))))
			r.exchange("127.0.0.1:3128", fmt.Sprintf("GET http://%s/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", at(a, portOf(far))))
			r.exchange("127.0.0.1:1080", "\x05\x01\x00\x05\x01\x00\x03"+string([]byte{byte(len(name))})+name+string([]byte{byte(portOf(far) >> 8), byte(portOf(far))})+"x")
			if ip := netip.MustParseAddr(a); ip.Is4() && !ip.IsLoopback() {
				r.exchange(at(a, portOf(far)), "transparent by address")
			}
		}
		for _, rec := range g.all() {
			if rec.Error != "" {
				errs = append(errs, rec.Error)
			}
		}
		return far.conns.Load(), errs
	}
	conns, errs := count(nil, refusedAddresses)
	if conns != 0 { // and so no byte
		t.Errorf("%d connections arrived at addresses that no rule names", conns)
	}
	if named := slices.IndexFunc(errs, func(e string) bool {
		return strings.Contains(e, "169.254.169.254") && strings.Contains(e, "not a public address")
	}); named < 0 {
		t.Errorf("no record says why: %q", errs)
	}
	// The controls: a rule that names the address, and an address that is public.
	if conns, _ := count([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("169.254.169.254/32")}, []string{"10.0.0.1", "169.254.169.254"}); conns != 10 {
		t.Errorf("%d connections arrived where rules name the addresses, want 10", conns)
	}
	// A gateway may translate an address to one that is not public.
	gateway := []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48")}
	if conns, _ := count(gateway, []string{"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::a83f:8110", "64:ff9b::" + own, "64:ff9b:1::" + own}); conns != 0 {
		t.Errorf("%d connections arrived behind a gateway at addresses that no rule names", conns)
	}
	if conns, _ := count(gateway, []string{"64:ff9b::5db8:d822"}); conns != 4 {
		t.Errorf("%d connections arrived at a public address behind a gateway, want 4", conns)
	}
	if conns, _ := count(append(gateway, netip.MustParsePrefix("10.0.0.0/8")), []string{"64:ff9b::a00:1"}); conns != 4 {
		t.Errorf("%d connections arrived behind a gateway where rules name the addresses, want 4", conns)
	}
	if conns, _ := count(nil, []string{"93.184.216.34"}); conns != 5 {
		t.Errorf("%d connections arrived at a public address, want 5", conns)
	}
}

// A name that resolves to something else the second time, or to both at once.
func TestRebinding(t *testing.T) {
	far := listen(t, "0.0.0.0:0", func(c net.Conn) { _, _ = io.WriteString(c, c.LocalAddr().(*net.TCPAddr).IP.String()) })
	g := &gate{connect: func(egress.Request) egress.Verdict { return public }}
	r := newRig(t, g, egress.Config{Ports: []uint16{portOf(far)}})
	r.dns.set("rebind.example.com", "93.184.216.34", "127.0.0.1")
	r.dns.set("both.example.com", "127.0.0.1+93.184.216.35+10.0.0.1")
	for name, want := range map[string]string{"rebind.example.com": "93.184.216.34", "both.example.com": "93.184.216.35"} {
		if got := r.exchange(at(r.lookUp(name), portOf(far)), ""); got != want {
			t.Errorf("%s led to %q, want %q", name, got, want)
		}
	}
	if got := r.exchange(at(r.lookUp("rebind.example.com"), portOf(far)), ""); got != "" {
		t.Errorf("after it changed, it led to %q", got)
	}
	asked := slices.DeleteFunc(r.dns.questions(), func(q string) bool { return !strings.HasPrefix(q, "rebind") || !strings.HasSuffix(q, "TypeA") })
	if len(asked) != 2 {
		t.Errorf("two connections were resolved %d times", len(asked))
	}
}

func certificate(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// On port 443 only TLS passes, to the name that was asked for.
func TestServerName(t *testing.T) {
	cfg := &tls.Config{Certificates: []tls.Certificate{certificate(t, "good.example.com")}}
	far := listen(t, "93.184.216.34:443", func(c net.Conn) {
		s := tls.Server(c, cfg)
		if s.Handshake() == nil {
			_, _ = io.WriteString(s, "hello")
			_ = s.Close()
		}
	})
	g := &gate{connect: func(egress.Request) egress.Verdict { return public }}
	r := newRig(t, g, egress.Config{})
	r.dns.set("good.example.com", "93.184.216.34")
	ways := map[string]func() net.Conn{
		"transparent": func() net.Conn { return r.mustDial(r.lookUp("good.example.com") + ":443") },
		"CONNECT": func() net.Conn {
			c := r.mustDial("127.0.0.1:3128")
			_, _ = io.WriteString(c, "CONNECT good.example.com:443 HTTP/1.1\r\n\r\n")
			if res, err := http.ReadResponse(bufio.NewReaderSize(io.LimitReader(c, 39), 16), &http.Request{Method: "CONNECT"}); err != nil || res.StatusCode != 200 {
				t.Fatalf("CONNECT: %v, %v", res, err)
			}
			return c
		},
		"SOCKS": func() net.Conn {
			c := r.mustDial("127.0.0.1:1080")
			_, _ = io.WriteString(c, "\x05\x01\x00\x05\x01\x00\x03\x10good.example.com\x01\xbb")
			if _, err := io.ReadFull(c, make([]byte, 12)); err != nil {
				t.Fatal(err)
			}
			return c
		},
	}
	for way, dial := range ways {
		client := func(name string) error {
			c := tls.Client(dial(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
			got, err := io.ReadAll(c)
			if err == nil && string(got) != "hello" {
				err = fmt.Errorf("came %q", got)
			}
			return err
		}
		if err := client("good.example.com"); err != nil {
			t.Errorf("%s: the name that was asked for: %v", way, err)
		}
		if err := client("GOOD.example.com."); err != nil {
			t.Errorf("%s: the same name in another spelling: %v", way, err)
		}
		before := far.bytes.Load()
		for _, name := range []string{"evil.example.com", "good.example.com.evil.example", "xgood.example.com", "", "93.184.216.34"} {
			if client(name) == nil {
				t.Errorf("%s: a ClientHello for %q passed", way, name)
			}
		}
		for _, text := range []string{"GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n", "SSH-2.0-OpenSSH_9\r\n", "\x16\x03\x01\x00\x00"} {
			if got := exchange(dial(), text); got != "" {
				t.Errorf("%s: %q was answered %q", way, text, got)
			}
		}
		if n := far.bytes.Load() - before; n != 0 {
			t.Errorf("%s: %d bytes arrived of what must not pass", way, n)
		}
	}
	g.wait(t, func(r egress.Record) bool { return strings.Contains(r.Error, `"evil.example.com"`) })
}

// Every request is judged by what is sent, and cannot be two.
func TestSmuggling(t *testing.T) {
	var mu sync.Mutex
	var got []string
	far := web(t, "93.184.216.34:80", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, fmt.Sprintf("%s %s%s %q", r.Method, r.Host, r.RequestURI, body))
		mu.Unlock()
		w.Header().Set("X-Far", "yes")
	})
	_ = far
	g := &gate{
		connect: only2("good.example.com"),
		http: func(r egress.Request) egress.Verdict {
			if strings.Contains(r.URL, "secret") {
				return denied
			}
			return public
		},
	}
	r := newRig(t, g, egress.Config{})
	r.dns.set("good.example.com", "93.184.216.34")
	r.dns.set("evil.example.com", "93.184.216.34")
	addr := r.lookUp("good.example.com") + ":80"
	const host = "Host: good.example.com\r\n"
	for _, tt := range []struct {
		what, addr, text string
		passes           bool
	}{
		{"the control", addr, "GET /a HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", true},
		{"another host", addr, "GET /a HTTP/1.1\r\nHost: evil.example.com\r\n\r\n", false},
		{"another port", addr, "GET /a HTTP/1.1\r\nHost: good.example.com:8080\r\n\r\n", false},
		{"absolute to another host", addr, "GET http://evil.example.com/a HTTP/1.1\r\n" + host + "\r\n", false},
		{"absolute https", addr, "GET https://good.example.com/a HTTP/1.1\r\n" + host + "\r\n", false},
		{"user in the host", addr, "GET /a HTTP/1.1\r\nHost: good.example.com@evil.example.com\r\n\r\n", false},
		{"two hosts", addr, "GET /a HTTP/1.1\r\n" + host + "Host: evil.example.com\r\n\r\n", false},
		{"no host", addr, "GET /a HTTP/1.1\r\n\r\n", false},
		{"a blank before the colon", addr, "GET /a HTTP/1.1\r\nHost : good.example.com\r\n\r\n", false},
		{"a bare LF in a name", addr, "GET /a HTTP/1.1\r\n" + host + "X\n: y\r\n\r\n", false},
		{"NUL in a value", addr, "GET /a HTTP/1.1\r\n" + host + "X: a\x00b\r\n\r\n", false},
		{"two lengths", addr, "POST /a HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", false},
		{"a signed length", addr, "POST /a HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\na", false},
		{"an unknown coding", addr, "POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", false},
		{"two codings", addr, "POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", false},
		{"a length and a coding", addr, "POST /a HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\n" + host + "\r\n", false},
		{"HTTP/2 outright", addr, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false},
		{"OPTIONS *", addr, "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", false},
		{"CONNECT to a server", addr, "CONNECT evil.example.com:80 HTTP/1.1\r\n" + host + "\r\n", false},
		{"a path that leaves", addr, "GET /a/../secret HTTP/1.1\r\n" + host + "\r\n", false},
		{"an escaped one", addr, "GET /a/%2e%2e/secret HTTP/1.1\r\n" + host + "\r\n", false},
		{"an escaped secret", addr, "GET /%73ecret HTTP/1.1\r\n" + host + "\r\n", false},
		{"proxy: another host by the line", "127.0.0.1:3128", "GET http://evil.example.com/a HTTP/1.1\r\n" + host + "\r\n", false},
		{"proxy: user", "127.0.0.1:3128", "GET http://good.example.com@evil.example.com/a HTTP/1.1\r\n" + host + "\r\n", false},
		{"proxy: no host in the line", "127.0.0.1:3128", "GET /a HTTP/1.1\r\n" + host + "\r\n", false},
		{"proxy: another scheme", "127.0.0.1:3128", "GET file:///etc/passwd HTTP/1.1\r\n" + host + "\r\n", false},
		{"proxy: in a tunnel to port 80", "127.0.0.1:3128", "CONNECT good.example.com:80 HTTP/1.1\r\n" + host + "\r\nGET /secret HTTP/1.1\r\n" + host + "\r\n", false},
	} {
		mu.Lock()
		got = nil
		mu.Unlock()
		c := r.mustDial(tt.addr)
		_, _ = io.WriteString(c, tt.text)
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer, err := io.ReadAll(c)
		if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: no answer, and no end", tt.what)
		}
		mu.Lock()
		seen := slices.Clone(got)
		mu.Unlock()
		if tt.passes != (len(seen) > 0) {
			// A length beside a coding is one request, whose body is what was sent on.
			if tt.what == "a length and a coding" && len(seen) == 1 && seen[0] == `POST good.example.com/a ""` {
				continue
			}
			t.Errorf("%s: arrived %q, answered %q", tt.what, seen, answer)
		}
	}
}

// only2 is only, in public space.
func only2(hosts ...string) func(egress.Request) egress.Verdict {
	return func(r egress.Request) egress.Verdict {
		if slices.Contains(hosts, r.Host) {
			return public
		}
		return denied
	}
}

// A WebSocket is judged and then passes; another protocol is not begun.
func TestUpgrade(t *testing.T) {
	web(t, "93.184.216.34:80", func(w http.ResponseWriter, r *http.Request) {
		up := r.Header.Get("Upgrade")
		if up == "" {
			_, _ = io.WriteString(w, "no upgrade")
			return
		}
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+up+"\r\n\r\n")
		line, _ := buf.ReadString('\n')
		_, _ = io.WriteString(c, "echo "+line)
	})
	g := &gate{connect: only2("good.example.com"), http: func(r egress.Request) egress.Verdict {
		if strings.HasSuffix(r.URL, "/no") {
			return denied
		}
		return public
	}}
	r := newRig(t, g, egress.Config{})
	r.dns.set("good.example.com", "93.184.216.34")
	ask := func(path, protocol string) string {
		c := r.mustDial(r.lookUp("good.example.com") + ":80")
		br := bufio.NewReader(c)
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: good.example.com\r\nConnection: close, Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusSwitchingProtocols {
			return res.Status
		}
		_, _ = io.WriteString(c, "hi\n")
		line, _ := br.ReadString('\n')
		return res.Status + " " + line
	}
	if got := ask("/", "websocket"); got != "101 Switching Protocols echo hi\n" {
		t.Errorf("websocket: %q", got)
	}
	if got := ask("/no", "websocket"); got != "403 Forbidden" {
		t.Errorf("denied websocket: %q", got)
	}
	if got := ask("/", "h2c"); got != "200 OK" {
		t.Errorf("h2c: %q", got)
	}
}

// A connection waits for its verdict; one whose program goes away is let go.
func TestHeld(t *testing.T) {
	far := listen(t, "93.184.216.34:0", echo)
	g := &gate{connect: only2("good.example.com"), hold: make(chan struct{})}
	r := newRig(t, g, egress.Config{Ports: []uint16{portOf(far)}})
	r.dns.set("good.example.com", "93.184.216.34")
	addr := at(r.lookUp("good.example.com"), portOf(far))
	gone := r.mustDial(addr)
	_ = gone.Close()
	g.wait(t, func(r egress.Record) bool { return !r.Allow })
	if far.conns.Load() != 0 {
		t.Error("a connection was dialled without a verdict")
	}
	c := r.mustDial(addr)
	_, _ = io.WriteString(c, "x")
	close(g.hold)
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("after the yes: %v", err)
	}
}

func TestLimits(t *testing.T) {
	far := listen(t, "93.184.216.34:0", echo)
	g := &gate{connect: func(egress.Request) egress.Verdict { return public }}
	three := func(l egress.Limits) (r *rig, addr string) {
		l.Connections = 3
		r = newRig(t, g, egress.Config{Ports: []uint16{portOf(far)}, Limits: l})
		r.dns.set("good.example.com", "93.184.216.34")
		addr = at(r.lookUp("good.example.com"), portOf(far))
		for range l.Connections {
			_, _ = io.WriteString(r.mustDial(addr), "x")
		}
		return r, addr
	}
	r, addr := three(egress.Limits{})
	if got := r.exchange(addr, "x"); got != "" {
		t.Errorf("one over the limit: %q", got)
	}
	g.wait(t, func(r egress.Record) bool { return strings.Contains(r.Error, "3 connections") })
	r, addr = three(egress.Limits{Bytes: 100, Idle: 200 * time.Millisecond})
	// They move nothing, and go.
	testrig.Eventually(t, "all three are closed", func() bool {
		idle := 0
		for _, r := range g.all() {
			if strings.Contains(r.Error, "no byte passed") {
				idle++
			}
		}
		return idle == 3
	})
	moved := func(r egress.Record) bool { return strings.Contains(r.Error, "limit of 100 bytes") }
	for end := time.Now().Add(30 * time.Second); !slices.ContainsFunc(g.all(), moved) && time.Now().Before(end); {
		r.exchangeHalf(addr, strings.Repeat("x", 150))
	}
	g.wait(t, moved)
	if got := r.exchange(addr, "x"); got != "" {
		t.Errorf("over the limit of bytes: %q", got)
	}
}

// TestWatchOnlyConnections: connections that move nothing go, also those after a time without
// any, in which nothing watches.
func TestWatchOnlyConnections(t *testing.T) {
	far := listen(t, "93.184.216.34:0", echo)
	g := &gate{connect: func(egress.Request) egress.Verdict { return public }}
	r := newRig(t, g, egress.Config{Ports: []uint16{portOf(far)}, Limits: egress.Limits{Idle: 100 * time.Millisecond}})
	r.dns.set("good.example.com", "93.184.216.34")
	addr := at(r.lookUp("good.example.com"), portOf(far))
	watching := func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "egress.(*Network).watch(")
	}
	for i := range 3 {
		testrig.Eventually(t, "nothing watches over no connections", func() bool { return !watching() })
		c := r.mustDial(addr)
		_, _ = io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if !watching() {
			t.Error("nothing watches over a connection")
		}
		testrig.Eventually(t, "it is closed", func() bool {
			n := 0
			for _, r := range g.all() {
				if strings.Contains(r.Error, "no byte passed") {
					n++
				}
			}
			return n == i+1
		})
	}
}

// exchangeHalf is exchange with an end of what is sent.
func (r *rig) exchangeHalf(addr, text string) string {
	c, err := r.dial(addr)
	if err != nil {
		return ""
	}
	_, _ = io.WriteString(c, text)
	_ = c.(*net.TCPConn).CloseWrite()
	got, _ := io.ReadAll(c)
	return string(got)
}

// A half is passed on as a half, both ways.
func TestHalfClose(t *testing.T) {
	far := listen(t, "93.184.216.34:0", func(c net.Conn) {
		got, _ := io.ReadAll(c)
		_, _ = io.WriteString(c, "all of "+string(got))
	})
	r := newRig(t, &gate{connect: func(egress.Request) egress.Verdict { return public }}, egress.Config{Ports: []uint16{portOf(far)}})
	r.dns.set("good.example.com", "93.184.216.34")
	if got := r.exchangeHalf(at(r.lookUp("good.example.com"), portOf(far)), "it"); got != "all of it" {
		t.Errorf("%q", got)
	}
}

// A side that breaks off is broken off on the other, and that is no failure to tell a call of; a
// side that has hung up needs no end.
func TestBreakOff(t *testing.T) {
	ends := make(chan error, 2)
	far := listen(t, "93.184.216.34:0", func(c net.Conn) {
		line, _ := bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "half")
		if line == "break\n" {
			_ = c.(*countingConn).Conn.(*net.TCPConn).SetLinger(0)
			return
		}
		_, err := io.Copy(io.Discard, c)
		ends <- err
	})
	g := &gate{connect: func(egress.Request) egress.Verdict { return public }}
	r := newRig(t, g, egress.Config{Ports: []uint16{portOf(far)}})
	r.dns.set("good.example.com", "93.184.216.34")
	ask := func(text string) (net.Conn, error) {
		c := r.mustDial(at(r.lookUp("good.example.com"), portOf(far)))
		_, _ = io.WriteString(c, text)
		_, err := io.ReadFull(c, make([]byte, 4))
		return c, err
	}
	c, err := ask("break\n")
	if err == nil {
		_, err = io.ReadAll(c)
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the far side broke off, and the program sees %v", err)
	}
	c, _ = ask("stay\n")
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	if err := <-ends; !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the program broke off, and the far side sees %v", err)
	}
	c, _ = ask("stay\n")
	_ = c.Close()
	if err := <-ends; err != nil {
		t.Errorf("the program hung up, and the far side sees %v", err)
	}
	g.wait(t, func(egress.Record) bool { return len(g.all()) == 3 })
	for _, rec := range g.all() {
		if rec.Error != "" || rec.Down != 4 {
			t.Errorf("%+v", rec)
		}
	}
}

// While no daemon runs the agent has the listeners: nobody takes a port, and who connects waits
// for the next daemon.
func TestTakenOver(t *testing.T) {
	far := listen(t, "93.184.216.34:0", echo)
	g := &gate{connect: only2("good.example.com")}
	ns, dns := newNamespace(t), newZone(t)
	dns.set("good.example.com", "93.184.216.34")
	names, err := os.OpenFile(t.TempDir()+"/names", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer names.Close()
	open := func(held []*os.File) *egress.Network {
		t.Helper()
		n, err := egress.Open(t.Context(), egress.Config{
			Session: "ses_test", Namespace: ns, Gate: g, Names: names, Held: held, Ports: []uint16{portOf(far), 8080},
			Resolver: dns.resolver(), Log: discard,
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := open(nil)
	r := &rig{T: t, ns: ns, net: n, gate: g, dns: dns}
	addr := at(r.lookUp("good.example.com"), portOf(far))
	ports := []int{80, 443, 8080, 3128, 1080, int(portOf(far))}
	var kept []*os.File
	for _, f := range n.Held() {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, os.NewFile(uintptr(fd), "kept"))
	}
	if len(kept) != len(ports)+2 { // and the resolver's
		t.Errorf("%d sockets are held", len(kept))
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range ports {
		f, err := netns.In(ns, func() (*os.File, error) {
			return netns.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(p)))
		})
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("port %d was taken in the gap: %v", p, err)
			_ = f.Close()
		}
	}
	c := r.mustDial(addr)
	_, _ = io.WriteString(c, "x")
	// A hostile agent adds others: a listener of another namespace, a connection, a file.
	other, err := netns.In(newNamespace(t), func() (*os.File, error) {
		return netns.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 9999))
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	n = open(append(kept, other, file, conn))
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("who connected in the gap: %v", err)
	}
	if again := at(r.lookUp("good.example.com"), portOf(far)); again != addr {
		t.Errorf("the name has %s, and had %s", again, addr)
	}
	if len(n.Held()) != len(ports)+2 {
		t.Errorf("%d sockets are held now", len(n.Held()))
	}
	// The control: without the agent's, the port is free.
	if err := n.SetPorts(nil, nil); err != nil {
		t.Fatal(err)
	}
	f, err := netns.In(ns, func() (*os.File, error) {
		return netns.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 8080))
	})
	if err != nil {
		t.Errorf("a port that no rule names any more: %v", err)
	} else {
		_ = f.Close()
	}
}

// A flood of names and connections in one session leaves a neighbour its answers.
func TestFlood(t *testing.T) {
	far := listen(t, "93.184.216.34:0", echo)
	open := func() *rig {
		r := newRig(t, &gate{connect: func(egress.Request) egress.Verdict { return public }}, egress.Config{Ports: []uint16{portOf(far)}, Limits: egress.Limits{Connections: 64}})
		r.dns.set("good.example.com", "93.184.216.34")
		return r
	}
	bad, good := open(), open()
	addr, goodAddr := at(bad.lookUp("good.example.com"), portOf(far)), at(good.lookUp("good.example.com"), portOf(far))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, _ = netns.In(bad.ns, func() (struct{}, error) {
				for ctx.Err() == nil {
					if c, err := net.DialTimeout("tcp4", addr, time.Second); err == nil {
						defer c.Close() // half-open for as long as it may
					}
				}
				return struct{}{}, nil
			})
		})
	}
	wg.Go(func() {
		c, err := netns.In(bad.ns, func() (net.Conn, error) { return net.Dial("udp4", "127.0.0.53:53") })
		if err != nil {
			return
		}
		defer c.Close()
		for i := 0; ctx.Err() == nil; i++ {
			q := dnsmessage.Message{Header: dnsmessage.Header{ID: 1}, Questions: []dnsmessage.Question{{
				Name: dnsmessage.MustNewName(fmt.Sprintf("n%d.example.com.", i)), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
			}}}
			raw, _ := q.Pack()
			_, _ = c.Write(raw)
		}
	})
	for range 50 {
		c := good.mustDial(goodAddr)
		_, _ = io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("the neighbour: %v", err)
		}
		_ = c.Close()
		good.query("good.example.com", dnsmessage.TypeA)
	}
	stop()
	wg.Wait()
}

// A connection that was reset while it waited is counted, and costs nothing more: nobody is asked
// about it, and nothing is dialled.
func TestResetWhileWaiting(t *testing.T) {
	far := listen(t, "93.184.216.34:0", echo)
	g := &gate{connect: func(egress.Request) egress.Verdict { return public }}
	r := newRig(t, g, egress.Config{Ports: []uint16{portOf(far)}, Limits: egress.Limits{PerSecond: 1}})
	r.dns.set("good.example.com", "93.184.216.34")
	addr := at(r.lookUp("good.example.com"), portOf(far))
	served := 0
	reset := func(r egress.Record) bool { return strings.Contains(r.Error, "reset before") }
	for end := time.Now().Add(60 * time.Second); !slices.ContainsFunc(g.all(), reset); {
		if time.Now().After(end) {
			t.Fatal("no connection was reset while it waited")
		}
		c := r.mustDial(addr) // takes the turn of this second
		_, _ = io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		served++
		next := r.mustDial(addr)
		_ = next.(*net.TCPConn).SetLinger(0)
		_ = next.Close()
		n := len(g.all())
		_ = c.Close()
		for len(g.all()) < n+2 && time.Now().Before(end) { // both are over
			time.Sleep(5 * time.Millisecond)
		}
	}
	last := slices.IndexFunc(g.all(), reset)
	if rec := g.all()[last]; rec.Allow || rec.Address.IsValid() || rec.Port != 0 {
		t.Errorf("its record: %+v", rec)
	}
	g.mu.Lock()
	asked := len(g.asked)
	g.mu.Unlock()
	gone := 0
	for _, rec := range g.all() {
		if reset(rec) {
			gone++
		}
	}
	if want := 2*served - gone; asked != want || int(far.conns.Load()) > want {
		t.Errorf("%d of %d connections were reset while they waited; the gate was asked about %d, and %d were dialled", gone, 2*served, asked, far.conns.Load())
	}
}

// What sessions share is counted over all of them, and given back.
func TestShare(t *testing.T) {
	far := listen(t, "93.184.216.34:0", echo)
	var limits atomic.Pointer[egress.Limits]
	limits.Store(&egress.Limits{Connections: 3, PerSecond: 100})
	share := egress.NewShare("the sessions of this tenant", nil, func() egress.Limits { return *limits.Load() })
	open := func() (*rig, string) {
		r := newRig(t, &gate{connect: func(egress.Request) egress.Verdict { return public }}, egress.Config{Ports: []uint16{portOf(far)}, Share: share})
		r.dns.set("good.example.com", "93.184.216.34")
		return r, at(r.lookUp("good.example.com"), portOf(far))
	}
	use := func(r *rig, addr string) (net.Conn, error) {
		c, err := r.dial(addr)
		if err == nil {
			_, _ = io.WriteString(c, "x")
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		return c, err
	}
	one, addr := open()
	two, addrTwo := open()
	var all []net.Conn
	for range 2 {
		c, err := use(one, addr)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if _, err := use(two, addrTwo); err != nil {
		t.Fatalf("the third of three: %v", err)
	}
	if _, err := use(two, addrTwo); err == nil {
		t.Error("a fourth connection of three passes")
	}
	two.gate.wait(t, func(r egress.Record) bool {
		return strings.Contains(r.Error, "the sessions of this tenant have 3 connections")
	})
	_ = all[0].Close()
	one.gate.wait(t, func(r egress.Record) bool { return r.Allow && r.Up == 1 })
	if _, err := use(two, addrTwo); err != nil {
		t.Errorf("after another session gave one back: %v", err)
	}
	limits.Store(&egress.Limits{Bytes: 2}) // as a reload does; the closed connection has moved as many
	if _, err := use(one, addr); err == nil {
		t.Error("more bytes pass than there are for all")
	}
	one.gate.wait(t, func(r egress.Record) bool {
		return strings.Contains(r.Error, "the sessions of this tenant have moved their limit of 2 bytes")
	})
	limits.Store(&egress.Limits{})
	if _, err := use(one, addr); err != nil {
		t.Errorf("without a bound: %v", err)
	}
}

// A body that ends with its connection arrives whole, and as an end.
func TestBodyUntilTheEnd(t *testing.T) {
	listen(t, "93.184.216.34:80", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1000))
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nall of it")
	})
	g := &gate{connect: func(egress.Request) egress.Verdict { return public }}
	r := newRig(t, g, egress.Config{})
	r.dns.set("good.example.com", "93.184.216.34")
	c := r.mustDial(r.lookUp("good.example.com") + ":80")
	res, body := respond(t, c, bufio.NewReader(c), "GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n")
	if res.StatusCode != http.StatusOK || body != "all of it" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	_ = c.Close()
	if rec := g.wait(t, func(r egress.Record) bool { return r.Method != "" }); rec.Error != "" {
		t.Errorf("its record has the error %q", rec.Error)
	}
}

// What tenants share between them bounds each, and none takes more of it than it has open.
func TestShareOfAll(t *testing.T) {
	far := listen(t, "93.184.216.34:0", echo)
	host := egress.NewShare("the sessions of this host", nil, func() egress.Limits { return egress.Limits{Connections: 2} })
	open := func(most int) (*rig, string) {
		share := egress.NewShare("the sessions of this tenant", host, func() egress.Limits { return egress.Limits{Connections: most} })
		r := newRig(t, &gate{connect: func(egress.Request) egress.Verdict { return public }}, egress.Config{Ports: []uint16{portOf(far)}, Share: share})
		r.dns.set("good.example.com", "93.184.216.34")
		return r, at(r.lookUp("good.example.com"), portOf(far))
	}
	one, addr := open(1)
	two, addrTwo := open(0)
	use := func(r *rig, addr string) net.Conn {
		c, err := r.dial(addr)
		if err != nil {
			return nil
		}
		_, _ = io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return nil
		}
		return c
	}
	first := use(one, addr)
	if first == nil || use(one, addr) != nil { // refused for its tenant: it takes nothing of the host's
		t.Fatal("one connection is allowed, and one was wanted")
	}
	one.gate.wait(t, func(r egress.Record) bool { return strings.Contains(r.Error, "the sessions of this tenant have 1 ") })
	if use(two, addrTwo) == nil {
		t.Error("the second of the host's two is refused")
	}
	if use(two, addrTwo) != nil {
		t.Error("a third of the host's two passes")
	}
	two.gate.wait(t, func(r egress.Record) bool { return strings.Contains(r.Error, "the sessions of this host have 2 ") })
	_ = first.Close()
	one.gate.wait(t, func(r egress.Record) bool { return r.Allow && r.Up == 1 })
	if use(two, addrTwo) == nil {
		t.Error("after one was given back: refused")
	}
}

// Requests on one connection are no way around the bound of connections a second.
func TestRequestsArePaced(t *testing.T) {
	web(t, "93.184.216.34:80", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	g := &gate{connect: func(egress.Request) egress.Verdict { return public }, http: func(egress.Request) egress.Verdict { return public }}
	r := newRig(t, g, egress.Config{Limits: egress.Limits{PerSecond: 20}})
	r.dns.set("good.example.com", "93.184.216.34")
	c := r.mustDial(r.lookUp("good.example.com") + ":80")
	br := bufio.NewReader(c)
	began := time.Now()
	const n = 60
	for range n {
		if res, _ := respond(t, c, br, "GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n"); res.StatusCode != http.StatusOK {
			t.Fatal(res.Status)
		}
	}
	// Twenty at once, and then twenty a second: a lower bound, which no load makes shorter.
	if took := time.Since(began); took < time.Second {
		t.Errorf("%d requests passed in %s", n, took)
	}
}

// Programs that ask the resolver on and on, on as many streams as there are, do not keep the
// way out from closing.
func TestCloseUnderQueries(t *testing.T) {
	ns := newNamespace(t)
	n, err := egress.Open(t.Context(), egress.Config{Session: "ses_test", Namespace: ns, Gate: &gate{}, Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	query := dnsmessage.Message{Header: dnsmessage.Header{ID: 1}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName("a.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}}}
	raw, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	raw = append([]byte{0, byte(len(raw))}, raw...)
	var wg sync.WaitGroup
	answered := make(chan struct{}, 100)
	for range 20 { // some wait for a stream of their own
		c, err := netns.In(ns, func() (net.Conn, error) { return net.Dial("tcp4", "127.0.0.53:53") })
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		wg.Go(func() {
			buf := make([]byte, 1500)
			for first := true; ; first = false {
				if _, err := c.Write(raw); err != nil {
					return
				}
				if _, err := c.Read(buf); err != nil {
					return
				}
				if first {
					answered <- struct{}{}
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	for range 16 {
		<-answered
	}
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the network does not close while its programs ask")
	}
	wg.Wait()
}

// However many hosts the requests of one client of the proxy are to, it has one far connection at
// a time, and no limit is needed for that.
func TestFarConnectionsAreCounted(t *testing.T) {
	far := web(t, "93.184.216.34:80", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	var open, most atomic.Int64
	far.opened = func() { most.Store(max(most.Load(), open.Add(1))) }
	far.closed = func() { open.Add(-1) }
	g := &gate{connect: func(egress.Request) egress.Verdict { return public }}
	r := newRig(t, g, egress.Config{Limits: egress.Limits{Connections: 1}})
	c := r.mustDial("127.0.0.1:3128")
	br := bufio.NewReader(c)
	const hosts = 150
	for i := range hosts {
		host := fmt.Sprintf("h%d.example.com", i)
		r.dns.set(host, "93.184.216.34")
		if res, body := respond(t, c, br, "GET http://"+host+"/ HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %q", host, res.StatusCode, body)
		}
	}
	// A far side sees the end of one after the beginning of the next.
	if n := most.Load(); far.conns.Load() != hosts || n > 5 {
		t.Errorf("%d connections arrived, and %d were open at once", far.conns.Load(), n)
	}
	// The same host again and again is one connection.
	before := far.conns.Load()
	for range 5 {
		respond(t, c, br, "GET http://h149.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	if n := far.conns.Load() - before; n != 0 {
		t.Errorf("five requests to one host made %d further connections", n)
	}
}
