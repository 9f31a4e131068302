package network

import (
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/egress/netns"
	"github.com/toold/toold/internal/testrig"
)

// elsewhere is public, and what names lead to that look like those of a rule; one name that a
// rule has leads there too.
const elsewhere = "8.8.4.5"

// lookalikes are names that no rule has. Those that can be in a hosts file lead to elsewhere.
var lookalikes = []string{
	"evil.example", "trap.example", "eviltrap.example", "elsewhere.trap.example.evil.example", "xn--x-8sb.trap.example.evil.example", "x.xn--trp-5cd.example",
	"x.trаp.example", "elsewhere.trap.example@evil.example", "elsewhere.trap.example\x00.evil.example", "elsewhere.trap.example%00.evil.example",
	"elsewhere.trap.example .evil.example", "elsewhere.trap.example#.evil.example", "evil.example?.trap.example", "evil.example\\.trap.example",
	".trap.example", "..trap.example", "*.trap.example", "elsewhere.trap.example..",
}

// elsewhereNames are lines of the daemon's hosts file.
func elsewhereNames() string {
	return elsewhere + " elsewhere.trap.example " + strings.Join(lookalikes[:6], " ") + "\n"
}

// Where a program of a session can ask; anything else is an address that it connects to.
const proxy, socks = "127.0.0.1:3128", "127.0.0.1:1080"

// An attempt is what a program of a session sends, once it has connected. Where want is "" nothing
// may answer it, and nothing may arrive.
type attempt struct{ row, to, text, want string }

func connect(to string, then ...string) string {
	return "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n\r\n" + strings.Join(then, "")
}

func get(url, host string, header ...string) string {
	return "GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(header, "") + "Connection: close\r\n\r\n"
}

func socksTo(kind byte, host string, port uint16) string {
	return "\x05\x01\x00\x05\x01\x00" + string([]byte{kind}) + host + string([]byte{byte(port >> 8), byte(port)})
}

func socksName(name string, port uint16) string {
	return socksTo(3, string([]byte{byte(len(name))})+name, port)
}

// greeting is a ClientHello to a server of that name.
func greeting(t *testing.T, name string) string {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		_ = near.Close()
	}()
	defer far.Close()
	buf := make([]byte, 16<<10)
	n, err := far.Read(buf)
	must(t, err)
	return string(buf[:n])
}

// attempts are the rows of the list of attacks that a program can make by a connection.
func attempts(t *testing.T) []attempt {
	t.Helper()
	const name, host, trapped = "public.trap.example", "Host: public.trap.example\r\n", "trapped"
	good, bad := greeting(t, name), greeting(t, "evil.example")
	list := []attempt{
		{"N1 an address that no rule names", elsewhere + ":8081", "x", ""},
		{"N1 the control", public + ":8081", "x", trapped},
		{"N1 a port that no rule names", public + ":8082", "x", ""},
		{"N1 the host's loopback", "127.0.0.1:8081", "x", ""},
		{"N2 the control", proxy, connect("elsewhere.trap.example:8081"), trapped},
		{"N2 case and a trailing dot", proxy, connect("ELSEWHERE.Trap.Example.:8081"), trapped},
		{"N2 case and a trailing dot", socks, socksName("ELSEWHERE.Trap.Example.", 8081), trapped},
		{"N2 another port", proxy, connect("elsewhere.trap.example:8082"), ""},
		{"N2 a path", proxy, connect("elsewhere.trap.example/.evil.example:8081"), ""},
		{"N2 CR and LF", proxy, "CONNECT evil.example:8081\r\n.trap.example:8081 HTTP/1.1\r\n\r\n", ""},
		{"N4 the first time", proxy, connect("changes.trap.example:8081"), trapped},
		{"N4 once it has changed", proxy, connect("changes.trap.example:8081"), ""},
		{"N4 once it has changed", socks, socksName("changes.trap.example", 8081), ""},
		{"N4 public beside private ones", proxy, connect("mixed.trap.example:8081"), trapped},
		{"N6 the control", proxy, get("http://public.trap.example/a", name), "served public.trap.example/a"},
		{"N6 the control of the other server", proxy, get("http://elsewhere.trap.example/a", name), trapped},
		{"N6 CONNECT to the port of ssh", proxy, connect("elsewhere.trap.example:22"), ""},
		{"N6 CONNECT to the port of SMTP", proxy, connect("elsewhere.trap.example:25"), ""},
		{"N6 Host is another", proxy, get("http://public.trap.example/b", "evil.example"), "served public.trap.example/b"},
		{"N6 the line is another", proxy, get("http://evil.example/", name), ""},
		{"N6 a user in the URL", proxy, get("http://public.trap.example@evil.example/", name), ""},
		{"N6 the second request is to another", proxy, "GET http://public.trap.example/c HTTP/1.1\r\n" + host + "\r\n" + get("http://evil.example/", name), "served public.trap.example/c"},
		{"N6 a length and a coding", proxy, "POST http://allowed.example/d HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n" + get("http://allowed.example/secret/d", name), "served allowed.example/d"},
		{"N6 a coding and a length", proxy, "POST http://allowed.example/e HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\nContent-Length: 100\r\n\r\n" + get("http://allowed.example/secret/e", name), ""},
		{"N6 a path that leaves", proxy, get("http://allowed.example/f/%2e%2e/secret/f", name), ""},
		{"N6 plain HTTP in a tunnel", proxy, connect("allowed.example:80", get("/g", "allowed.example")), "served allowed.example/g"},
		{"N6 what is denied in a tunnel", proxy, connect("allowed.example:80", get("/secret/g", "allowed.example")), ""},
		{"N6 plain HTTP in a tunnel of TLS", proxy, connect("public.trap.example:443", get("/h", name)), ""},
		{"N6 Host is another", name + ":80", get("/", "evil.example"), ""},
		{"N6 absolute to another", name + ":80", get("http://evil.example/", name), ""},
		{"N6 absolute to its own", name + ":80", get("http://public.trap.example/i", name), "served public.trap.example/i"},
		{"N6 WebSocket", proxy, get("http://allowed.example/ws", name, "Connection: Upgrade\r\nUpgrade: websocket\r\n"), "served upgraded"},
		{"N6 WebSocket to what is denied", proxy, get("http://allowed.example/secret/ws", name, "Connection: Upgrade\r\nUpgrade: websocket\r\n"), ""},
		{"N6 HTTP/2 by an upgrade", proxy, get("http://allowed.example/j", name, "Connection: Upgrade\r\nUpgrade: h2c\r\n"), "served allowed.example/j"},
		{"N6 HTTP/2 outright", proxy, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
		{"N6 HTTP/2 in a tunnel", proxy, connect("allowed.example:80", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ""},
		{"N7 allowed, to the proxy", proxy, get("http://allowed.example/k", name), "served allowed.example/k"},
		{"N7 allowed, CONNECT", proxy, connect("allowed.example:8080", get("/k", "allowed.example")), "served allowed.example:8080/k"},
		{"N7 allowed, SOCKS", socks, socksName("allowed.example", 8080) + get("/k", "allowed.example"), "served allowed.example:8080/k"},
		{"N7 allowed, an address", socks, socksTo(1, "\x08\x08\x04\x04", 8081), trapped},
		{"N7 allowed, as it is", "allowed.example:8080", get("/k", "allowed.example"), "served allowed.example:8080/k"},
		{"N7 denied, an address", socks, socksTo(1, "\x08\x08\x04\x05", 8081), ""},
		{"N7 denied, a v4 address as v6", socks, socksTo(4, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x08\x08\x04\x05", 8081), ""},
		{"N7 denied, as it is", "evil.example:8081", "x", ""},
		{"N11 a file", proxy, get("file:///etc/passwd", name), ""},
		{"N11 a socket", proxy, get("unix:///run/toold/toold.sock", name), ""},
		{"N11 gopher", proxy, get("gopher://public.trap.example:8081/", name), ""},
		{"N11 data", proxy, get("data:,served", name), ""},
		{"N11 the daemon's loopback", proxy, get("http://localhost:8081/", name), ""},
		{"N11 the daemon's loopback", socks, socksName("localhost", 8081), ""},
	}
	for _, l := range lookalikes {
		list = append(list, attempt{"N2 " + l, proxy, connect(l + ":8081"), ""}, attempt{"N2 " + l, proxy, get("http://"+l+"/", name), ""}, attempt{"N2 " + l, socks, socksName(l, 8081), ""})
	}
	for way, at := range map[string][2]string{"CONNECT": {proxy, connect(name + ":443")}, "SOCKS": {socks, socksName(name, 443)}, "as it is": {name + ":443", ""}} {
		list = append(list, attempt{"N8 the control, " + way, at[0], at[1] + good, trapped}, attempt{"N8 another name, " + way, at[0], at[1] + bad, ""})
	}
	return list
}

// try makes each attempt and writes what was answered, a line each.
const try = `
import json, socket, sys
out = open("answers", "w")
for to, text in json.load(open("attempts")):
    host, _, port = to.rpartition(":")
    got = b""
    try:
        c = socket.create_connection((host, int(port)), 20)
        c.sendall(bytes.fromhex(text))
        while b"trapped" not in got:
            b = c.recv(4096)
            if not b: break
            got += b
    except TimeoutError: got += b"no end"
    except OSError: pass
    print(got.hex(), file=out)
print("tried")
`

// testRows makes all attempts, with the rules, without one, and with the rules again.
func testRows(t *testing.T, r *rig) {
	all := attempts(t)
	plain, overTLS := r.trap("[::]:8081", elsewhere+":80", elsewhere+":22"), r.trap(public+":443")
	r.serve(public + ":80")
	dir := r.scripts("try.py", try)
	var sent [][2]string
	for _, a := range all {
		sent = append(sent, [2]string{a.to, hex.EncodeToString([]byte(a.text))})
	}
	b, err := json.Marshal(sent)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "attempts"), b, 0o644))
	s := r.session(client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeBind}})
	var arrived, greetings int
	check := func(rules bool) {
		t.Helper()
		has(t, r.bash(s, "python3 try.py"), "tried\n")
		b, err := os.ReadFile(filepath.Join(dir, "answers"))
		must(t, err)
		for i, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
			a := all[i]
			got, err := hex.DecodeString(line)
			must(t, err)
			want := a.want
			if direct := a.to != proxy && a.to != socks; !rules || direct && r.tier.relayed {
				want = ""
			}
			switch {
			case want == "trapped" && strings.HasPrefix(a.row, "N8"):
				greetings += len(greeting(t, "public.trap.example"))
			case want == "trapped":
				arrived++
			}
			served := bytes.Contains(got, []byte("trapped")) || bytes.Contains(got, []byte("served"))
			if !bytes.Contains(got, []byte(want)) || want == "" && served || bytes.HasSuffix(got, []byte("no end")) {
				t.Errorf("%s, with rules: %v: answered %q, want %q", a.row, rules, got, want)
			}
		}
		if n, bytes := plain.sum(); n != arrived {
			t.Errorf("with rules: %v: %d connections arrived, want %d; %d bytes", rules, n, arrived, bytes)
		}
		testrig.Eventually(t, "the greetings have arrived", func() bool { _, n := overTLS.sum(); return n >= greetings })
		if _, n := overTLS.sum(); n != greetings {
			t.Errorf("%d bytes arrived where greetings to its own name have %d", n, greetings)
		}
	}
	check(true)
	r.permit("", func(string) string { return "" })
	check(false)
	r.permit("", func(lines string) string { return lines })
	all = all[len(all)-6:] // whose answers are the same each time
	must(t, os.WriteFile(filepath.Join(dir, "attempts"), must1(json.Marshal(sent[len(sent)-6:])), 0o644))
	check(true)
}

func must1[T any](v T, _ error) T { return v }

// sum is what arrived at all addresses.
func (tr *trap) sum() (conns, bytes int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for a := range tr.conns {
		conns, bytes = conns+tr.conns[a], bytes+tr.bytes[a]
	}
	return conns, bytes
}

// permit makes the daemon's rules for connections anew from those of base.
func (r *rig) permit(more string, change func(lines string) string) {
	r.t.Helper()
	r.configure(more)
	file := filepath.Join(r.dir, "config.toml")
	text, err := os.ReadFile(file)
	must(r.t, err)
	before, rest, _ := strings.Cut(string(text), "[permission.network]\n")
	lines, after, _ := strings.Cut(rest, "[permission.http]")
	must(r.t, os.WriteFile(file, []byte(before+"[permission.network]\n"+change(lines)+"[permission.http]"+after), 0o600))
	r.ctl("reload")
}

// other tries what is no connection to the proxies, nor by TCP, and prints what passed.
const other = `
import os, socket, stat, struct
def tried(what, f):
    try:
        if f() is not False: print("passed:", what)
    except (OSError, AttributeError, ValueError): pass
def stream(family, to, *more):
    s = socket.socket(family, socket.SOCK_STREAM); s.settimeout(5); s.connect(to)
    for m in more: s.sendall(m)
    got = b""
    while b"trapped" not in got:
        b = s.recv(4096)
        if not b: return False
        got += b
def packet(family, to):
    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(0.2); s.sendto(b"x", to); s.recv(100)
for to in ("8.8.4.4", "10.20.0.1", "127.0.0.1", "255.255.255.255"):
    tried("UDP to " + to, lambda: packet(socket.AF_INET, (to, 8081)))
for to in ("2001:4860:4860::8844", "::1", "::ffff:8.8.4.5"):
    tried("IPv6 to " + to, lambda: stream(socket.AF_INET6, (to, 8081)))
tried("a raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
tried("a packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
tried("vsock", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 1)))
tried("an abstract socket of the daemon's namespace", lambda: stream(socket.AF_UNIX, "\0toold-rows"))
for i in range(1, 200): # that stand for names of another session
    tried("198.18.0.%d" % i, lambda: stream(socket.AF_INET, ("198.18.0.%d" % i, 8081)))
ask = b"CONNECT public.trap.example:8081 HTTP/1.1\r\n\r\n"
for top in ("/run", "/tmp", "/dev", "/var", "/home"):
    for dir, _, names in os.walk(top):
        for n in names:
            p = os.path.join(dir, n)
            try: found = stat.S_ISSOCK(os.lstat(p).st_mode)
            except OSError: continue
            if found:
                tried(p, lambda: stream(socket.AF_UNIX, p, ask))
                tried(p, lambda: stream(socket.AF_UNIX, p, struct.pack(">H", 3128), ask))
tried("control", lambda: stream(socket.AF_INET, ("127.0.0.1", 3128), ask))
`

// testOther: rows N1 and N10, by what is no TCP, and by what another session has.
func testOther(t *testing.T, r *rig) {
	tr := r.trap("[::]:8081")
	packets, err := netns.In(r.ns, func() (net.PacketConn, error) { return net.ListenPacket("udp", ":8081") })
	must(t, err)
	var datagrams atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 100); ; datagrams.Add(1) {
			if _, _, err := packets.ReadFrom(buf); err != nil {
				return
			}
		}
	}()
	defer func() { _ = packets.Close(); <-done }()
	abstract, err := netns.In(r.ns, func() (net.Listener, error) { return net.Listen("unix", "@toold-rows") })
	must(t, err)
	defer abstract.Close()
	neighbour := r.session(client.SessionCreate{})
	_ = r.bash(neighbour, "getent hosts public.trap.example; true") // has an address of its own from here
	s := r.session(client.SessionCreate{Worktree: client.Worktree{Source: r.scripts("other.py", other), Mode: client.WorktreeBind}})
	got := r.bash(s, "python3 other.py")
	if strings.Count(got.Output, "passed:") != 1 || !strings.Contains(got.Output, "passed: control\n") {
		t.Errorf("%s", got.Output)
	}
	if n, _ := tr.sum(); n != 1 || datagrams.Load() != 0 {
		t.Errorf("%d connections and %d datagrams arrived", n, datagrams.Load())
	}
	// The controls: both listeners hear what comes from their own namespace.
	_, err = netns.In(r.ns, func() (struct{}, error) {
		udp, err := net.Dial("udp4", public+":8081")
		if err != nil {
			return struct{}{}, err
		}
		defer udp.Close()
		if _, err := io.WriteString(udp, "x"); err != nil {
			return struct{}{}, err
		}
		c, err := net.Dial("unix", "@toold-rows")
		if err == nil {
			err = c.Close()
		}
		return struct{}{}, err
	})
	must(t, err)
	testrig.Eventually(t, "a datagram arrives", func() bool { return datagrams.Load() == 1 })
}

// testRedirects: row N5. Each hop is a request of its own.
func testRedirects(t *testing.T, r *rig) {
	tr := r.trap(elsewhere + ":80")
	s := r.session(client.SessionCreate{})
	const fetch = "curl -sSL -m 20 --max-redirs 30 'http://allowed.example/redirect?%s'\n"
	var b strings.Builder
	for _, to := range []string{
		"http://169.254.169.254/latest/meta-data/", "http://r7.trap.example/", "http://evil.example/", "http://denied.example/", "http://allowed.example/secret/x",
		"http://localhost/", "file:///etc/hostname", "http://allowed.example@evil.example/", "/redirect?http://evil.example/",
	} {
		fmt.Fprintf(&b, fetch, to)
	}
	got := r.bash(s, b.String())
	if n, _ := tr.sum(); n != 0 || strings.Contains(got.Output, "served") || strings.Contains(got.Output, "trapped") {
		t.Errorf("%d connections arrived: %s", n, got.Output)
	}
	has(t, got, "network: GET http://169.254.169.254/latest/meta-data/ was denied by")
	has(t, r.bash(s, fmt.Sprintf(fetch, "http://allowed.example:8080/fine")), "served allowed.example:8080/fine\n")
}

// large asks for more than there is of each limit.
const large = `
import socket, sys, time
def ask(text, until=b"\0"):
    c = socket.socket()
    c.settimeout(50)
    got = b""
    try: # one too many may be reset before connect has returned
        c.connect(("127.0.0.1", 3128))
        c.sendall(text)
        while until not in got:
            b = c.recv(1 << 16)
            if not b: break
            got += b
    except TimeoutError: got += b"no end"
    except OSError: pass
    return c, got
get = b"GET http://allowed.example/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n"
print("control", b"served" in ask(get % (b"x", b""))[1])
print("header", ask(get % (b"header-of-a-program", b"X: " + b"x" * 200000 + b"\r\n"))[1][:12])
print("answer", ask(get % (b"header", b""))[1][:12])
tunnels = [ask(b"CONNECT public.trap.example:8081 HTTP/1.1\r\n\r\n", b"trapped") for _ in range(40)]
print("tunnels", sum(b"trapped" in got for _, got in tunnels))
for c, got in tunnels:
    c.settimeout(50)
    try:
        if b"trapped" in got and c.recv(1): print("more")
    except TimeoutError: print("an idle tunnel stays")
    except OSError: pass
c, got = ask(b"CONNECT public.trap.example:8081 HTTP/1.1\r\n\r\n", b"trapped")
sent = 0
try:
    while sent < 1 << 24: sent += c.send((b"x" * 63 + b"\n") * (1 << 10))
    print("sent all")
except OSError: print("cut off")
`

// testLarge: row N9, with limits that are quickly reached.
func testLarge(t *testing.T, r *rig) {
	tr := r.trap("[::]:8081")
	r.configure("[network.limits]\nconnections = 10\nbytes = 4194304\nidle = \"3s\"")
	r.ctl("reload")
	s := r.session(client.SessionCreate{Worktree: client.Worktree{Source: r.scripts("large.py", large), Mode: client.WorktreeBind}})
	r.configure("")
	r.ctl("reload")
	got := r.bash(s, "python3 large.py")
	has(t, got, "control True", "header b'HTTP/1.1 431'", "answer b'HTTP/1.1 502'", "cut off\n", "have 10 connections; at most 10", "have moved their limit of 4194304 bytes")
	var tunnels int
	_, rest, _ := strings.Cut(got.Output, "\ntunnels ")
	if _, err := fmt.Sscan(rest, &tunnels); err != nil || tunnels < 10 || tunnels == 40 { // more than 10 where the first are idle before the last are there
		t.Errorf("%d of 40 tunnels were open: %v", tunnels, err)
	}
	if strings.Contains(got.Output, "stays") || strings.Contains(got.Output, "no end") || strings.Contains(got.Output, "more\n") {
		t.Errorf("%s", got.Output)
	}
	if _, n := tr.sum(); n > 5<<20 {
		t.Errorf("%d bytes arrived, and the session may move 4 MiB", n)
	}
}

// hold opens so many tunnels, and holds them until the file "stop" is there.
const hold = `
import os, socket, sys, time
held = []
for _ in range(int(sys.argv[1])):
    c = socket.socket()
    c.settimeout(50)
    got = b""
    try:
        c.connect(("127.0.0.1", 3128))
        c.sendall(b"CONNECT public.trap.example:8081 HTTP/1.1\r\n\r\n")
        while b"trapped" not in got:
            b = c.recv(4096)
            if not b: break
            got += b
    except OSError: pass
    if b"trapped" in got: held.append(c)
print("tunnels", len(held))
open("open", "w").close()
while not os.path.exists("stop"): time.sleep(0.02)
`

// testTenant: what a tenant may have open is counted over its sessions.
func testTenant(t *testing.T, r *rig) {
	_ = r.trap("[::]:8081")
	everybody := r.client
	r.client = client.New(client.Options{Socket: testrig.Socket(r.dir), Tenant: "small"})
	defer func() { r.client.Close(); r.client = everybody }()
	session := func() (id, dir string) {
		dir = r.scripts("hold.py", hold)
		return r.session(client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeBind}}), dir
	}
	one, dir := session()
	two, free := session()
	stop := func(dir string) { must(t, os.WriteFile(filepath.Join(dir, "stop"), nil, 0o644)) }
	done := r.calling(one, "python3 hold.py 3")
	testrig.Eventually(t, "three are open", func() bool { _, err := os.Stat(filepath.Join(dir, "open")); return err == nil })
	stop(free)
	has(t, r.bash(two, "python3 hold.py 3"), "tunnels 1\n", "a connection failed: the sessions of this tenant have 4 connections; at most 4 are open at once")
	stop(dir)
	has(t, <-done, "tunnels 3\n")
	again := 0
	testrig.Eventually(t, "what one has given back is the other's", func() bool {
		again++
		return strings.Contains(r.bash(two, fmt.Sprintf("python3 hold.py 3 # %d", again)).Output, "tunnels 3\n")
	})
}
