package network

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/egress/netns"
	"github.com/toold/toold/internal/testrig"
)

// Where names below trap.example lead. kept has a line in the rules and lies beside an address
// that has none; public is public; own is public too, and an address of the daemon's host.
const (
	kept    = "169.254.169.253"
	public  = "8.8.4.4"
	own     = "93.184.216.34"
	waiting = "10.20.0.9"
	held    = "10.20.0.8"
	moving  = "10.20.0.7"
	dialled = "10.20.0.6"
)

// refused are addresses of each kind that no name leads to.
var refused = []string{
	own, "127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "169.254.0.1", "100.64.0.1", "100.100.100.200",
	"168.63.129.16", "192.0.0.170", "198.19.255.254", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
	"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::1", "2001::1", "fc00::1", "fd00:ec2::254", "fe80::1", "ff02::1",
}

// trapNames are lines of the daemon's hosts file.
func trapNames() string {
	var b strings.Builder
	for i, a := range refused {
		fmt.Fprintf(&b, "%s r%d.trap.example\n", a, i)
	}
	for name, a := range map[string]string{"kept": kept, "public": public, "waiting": waiting, "held": held, "moving": moving, "dialled": dialled} {
		fmt.Fprintf(&b, "%s %s.trap.example\n", a, name)
	}
	return b.String() + elsewhereNames()
}

// trap counts what arrives at every address of the rig's namespace.
type trap struct {
	mu    sync.Mutex // guards the fields below
	conns map[netip.Addr]int
	bytes map[netip.Addr]int
}

func (tr *trap) at(addr string) (conns, bytes int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	a := netip.MustParseAddr(addr)
	return tr.conns[a], tr.bytes[a]
}

func (r *rig) trap(at ...string) *trap {
	r.t.Helper()
	tr := &trap{conns: make(map[netip.Addr]int), bytes: make(map[netip.Addr]int)}
	for _, at := range at {
		l, err := netns.In(r.ns, func() (net.Listener, error) { return net.Listen("tcp", at) })
		must(r.t, err)
		r.t.Cleanup(testrig.Serve(l, tr.serve))
	}
	return tr
}

func (tr *trap) serve(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(bound))
	a := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	tr.mu.Lock()
	tr.conns[a]++
	tr.mu.Unlock()
	_, _ = io.WriteString(c, "trapped\n")
	for buf := make([]byte, 4096); ; {
		n, err := c.Read(buf)
		tr.mu.Lock()
		tr.bytes[a] += n
		tr.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// reach asks for each of its arguments, NAME=ADDRESS, in each way that there is, and prints how
// many of them were answered.
const reach = `
import socket, struct, sys
PORT = 8081
def ask(to, text):
    try:
        c = socket.create_connection(to, 30)
        c.sendall(text)
        got = b""
        while len(got) < 65536:
            b = c.recv(4096)
            if not b or b"trapped" in got + b: return b"trapped" in got + b
            got += b
    except OSError: pass
    return False
def ways(name, addr):
    v6 = ":" in addr
    for host in (name, "[%s]" % addr if v6 else addr):
        yield ("127.0.0.1", 3128), b"CONNECT %s:%d HTTP/1.1\r\n\r\nx" % (host.encode(), PORT)
        yield ("127.0.0.1", 3128), b"CONNECT good.example@%s:%d HTTP/1.1\r\n\r\nx" % (host.encode(), PORT)
    yield ("127.0.0.1", 1080), b"\5\1\0\5\1\0\3" + bytes([len(name)]) + name.encode() + struct.pack(">H", PORT) + b"x"
    raw = socket.inet_pton(socket.AF_INET6 if v6 else socket.AF_INET, addr)
    yield ("127.0.0.1", 1080), b"\5\1\0\5\1\0" + (b"\4" if v6 else b"\1") + raw + struct.pack(">H", PORT) + b"x"
    yield (name, PORT), b"x"
    if not v6:
        n = int.from_bytes(raw, "big")
        for host in (str(n), hex(n), "0x%x.%d" % (raw[0], n & 0xffffff), "0%o.%d" % (raw[0], n & 0xffffff), "::ffff:" + addr):
            host = "[%s]" % host if ":" in host else host
            yield ("127.0.0.1", 3128), b"CONNECT %s:%d HTTP/1.1\r\n\r\nx" % (host.encode(), PORT)
        if raw[0] not in (0, 127) and raw[0] < 224: yield (addr, PORT), b"x"
for arg in sys.argv[1:]:
    name, addr = arg.split("=")
    answered = [ask(*w) for w in ways(name, addr)]
    print(name, "answered", sum(answered), "of", len(answered))
`

// testAddresses: no byte reaches an address of any kind that no rule names, by name, by address
// in every spelling, transparently and by both proxies; the same ways reach one that a rule names.
func testAddresses(t *testing.T, r *rig) {
	tr := r.trap("[::]:8081")
	s := r.session(client.SessionCreate{Worktree: client.Worktree{Source: r.scripts("reach.py", reach), Mode: client.WorktreeBind}})
	args := []string{"kept.trap.example=" + kept, "public.trap.example=" + public}
	for i, a := range refused {
		args = append(args, fmt.Sprintf("r%d.trap.example=%s", i, a))
	}
	got := r.bash(s, "python3 reach.py "+strings.Join(args, " "))
	// The control: all ways but the one with a user in the host, and those that need no proxy.
	ways := 11
	if r.tier.relayed {
		ways = 9
	}
	has(t, got, fmt.Sprintf("kept.trap.example answered %d of 13\n", ways), fmt.Sprintf("public.trap.example answered %d of 13\n", ways))
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for a, n := range tr.conns {
		if a.String() != kept && a.String() != public {
			t.Errorf("%d connections with %d bytes arrived at %s", n, tr.bytes[a], a)
		}
	}
	if len(tr.conns) != 2 || strings.Count(got.Output, " answered 0 of ") != len(refused) {
		t.Errorf("arrived %v\n%s", tr.conns, got.Output)
	}
}

// scripts makes a directory with a program in it.
func (r *rig) scripts(name, text string) string {
	r.t.Helper()
	dir, err := os.MkdirTemp(r.dir, "scripts-")
	must(r.t, err)
	must(r.t, os.Chmod(dir, 0o777))
	must(r.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	return dir
}

// flood begins greetings and requests that go on by a byte now and then, and reads answers that
// come as slowly; then it holds as many silent connections as it is told, until the file "stop" is
// there.
const flood = `
import os, socket, sys, time
silent, relayed = int(sys.argv[1]), sys.argv[2] == "true"
at = ("127.0.0.1", 3128) if relayed else (socket.gethostbyname("allowed.example"), 8080)
greetings, requests = [], []
def drip(list, port, text):
    proxy = port in (3128, 1080)
    for _ in range(8 if proxy or not relayed else 0):
        c = socket.create_connection(("127.0.0.1" if proxy else "allowed.example", port), 30)
        c.sendall(text); list.append(c)
drip(greetings, 443, b"\x16\x03\x01\x02\x00\x01\x00")
drip(greetings, 1080, b"\x05\xff")
drip(greetings, 3128, b"CONNECT allowed.example:443 HTTP/1.1\r\n\r\n\x16\x03\x01\x02\x00\x01\x00")
drip(requests, 80, b"GET / HTTP/1.1\r\nHost: allowed.example\r\nX: ")
drip(requests, 3128, b"GET http://allowed.example/ HTTP/1.1\r\nX: ")
drip(requests, 3128, b"GET http://allowed.example:8080/slow HTTP/1.1\r\nHost: allowed.example:8080\r\n\r\n")
drip(requests, 8080, b"GET /slow HTTP/1.1\r\nHost: allowed.example:8080\r\n\r\n")
for i in range(0, silent, 500):
    if os.fork() == 0:
        held = []
        for _ in range(min(500, silent - i)):
            c = socket.socket(); c.setblocking(False); held.append(c)
            c.connect_ex(at)
        open("part-%d" % os.getpid(), "w").close()
        while not os.path.exists("stop"): time.sleep(0.05)
        os._exit(0)
while not os.path.exists("stop"):
    time.sleep(0.2)
    for list in (greetings, requests):
        for c in list[:]:
            try: c.sendall(b"a")
            except OSError: list.remove(c)
    if not greetings: open("ended", "w").close()
while True:
    try: os.wait()
    except ChildProcessError: break
print("flooded")
`

// testHalfOpen: connections that say nothing, and those that are slow on either side, cost their own session its way out, and a neighbour
// nothing; the daemon keeps a bounded number of them, and takes new ones once they have gone.
func testHalfOpen(t *testing.T, r *rig) {
	silent := testrig.Rounds(400) // 10,000 where it runs for long
	tls := r.trap(open + ":443")
	dir := r.scripts("flood.py", flood)
	bad := r.session(client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeBind}})
	good := r.session(client.SessionCreate{})
	before := r.descriptors()
	done := r.calling(bad, fmt.Sprintf("python3 flood.py %d %v", silent, r.tier.relayed))
	testrig.Eventually(t, "the connections are open", func() bool {
		select {
		case got := <-done:
			t.Fatalf("the flood has ended: %+v", got)
		default:
		}
		parts, _ := filepath.Glob(filepath.Join(dir, "part-*"))
		return len(parts) == (silent+499)/500
	})
	for i := range 10 {
		if got := r.bash(good, fmt.Sprintf("curl -sS http://allowed.example:8080/%d", i)); got.IsError {
			t.Errorf("the neighbour: %s", got.Output)
		}
	}
	// Each of at most 256 connections has two descriptors and a pipe for each direction.
	if n := r.descriptors() - before; n > 256*6+100 {
		t.Errorf("the daemon has %d descriptors more", n)
	}
	testrig.Eventually(t, "greetings that take too long are ended", func() bool {
		_, err := os.Stat(filepath.Join(dir, "ended"))
		return err == nil
	})
	must(t, os.WriteFile(filepath.Join(dir, "stop"), nil, 0o644))
	if got := <-done; got == nil || !strings.Contains(got.Output, "flooded") {
		t.Errorf("the flood: %+v", got)
	}
	if _, n := tls.at(open); n != 0 {
		t.Errorf("%d bytes of greetings that never came to their end arrived", n)
	}
	has(t, r.bash(bad, "curl -sS http://allowed.example:8080/again"), "served allowed.example:8080/again\n")
}

// names asks for more names than get an answer at once, and for one again until it gets its answer.
const names = `
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("127.0.0.53", 53))
def query(name):
    labels = b"".join(bytes([len(l)]) + l for l in name.encode().split(b"."))
    return struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"
codes, sent = {}, 0
s.settimeout(0.001)
def take():
    while True:
        try: code = s.recv(1500)[3] & 15
        except OSError: return
        codes[code] = codes.get(code, 0) + 1
for i in range(int(sys.argv[1])):
    try: s.send(query("n%d.flood.example" % i))
    except OSError: pass
    if i % 50 == 0: take()
s.settimeout(1)
take()
print("answered", codes.get(0, 0), "refused", codes.get(2, 0))
`

// testNames: a session that asks for names without end gets refusals, and a neighbour its names at once.
func testNames(t *testing.T, r *rig) {
	bad := r.session(client.SessionCreate{Worktree: client.Worktree{Source: r.scripts("names.py", names), Mode: client.WorktreeBind}})
	good := r.session(client.SessionCreate{})
	done := r.calling(bad, fmt.Sprintf("python3 names.py %d", testrig.Rounds(5000)))
	for i := range 10 {
		has(t, r.bash(good, fmt.Sprintf("curl -sS http://allowed.example:8080/%d", i)), fmt.Sprintf("served allowed.example:8080/%d\n", i))
	}
	got := <-done
	var answered, refused int
	if _, err := fmt.Sscanf(got.Output, "answered %d refused %d", &answered, &refused); err != nil || answered == 0 || refused == 0 {
		t.Errorf("%d names answered, %d refused, %v: %s", answered, refused, err, got.Output)
	}
	has(t, r.bash(bad, "curl -sS http://allowed.example/again"), "served allowed.example/again\n")
}

// descriptors are how many the daemon has.
func (r *rig) descriptors() int {
	r.t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.Cmd.Process.Pid))
	must(r.t, err)
	return len(fds)
}

// step connects and says how that ended, tries to take ports while no daemon runs, and goes on when
// there is one again.
const step = `
import os, socket, sys, time
print("step", os.path.basename(os.getcwd()))
c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
c.sendall(bytes.fromhex(sys.argv[3]))
got = b""
try:
    while True:
        b = c.recv(100)
        if not b: break
        got += b
        open("answered", "w").close()
except ConnectionError: pass
except TimeoutError: got += b"still open"
print("ended with", got)
for at in [(host, int(port)) for host in ("0.0.0.0", "127.0.0.1") for port in sys.argv[4:]]:
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try: s.bind(at); s.listen(); print("took", *at)
    except OSError: pass
open("tried", "w").close()
while not os.path.exists("started"): time.sleep(0.02)
`

// TestKilledAtSteps kills the daemon while a connection waits for its answer, is looked up, is
// dialled, while its greeting is held back, while its bytes move, and while half is said to a proxy:
// the far side gets nothing that was not allowed to go, no program takes a port, no call is lost, and
// no answer that was asked for before opens anything after.
func TestKilledAtSteps(t *testing.T) {
	for _, on := range tiers {
		t.Run(on.name, func(t *testing.T) { testKilledAtSteps(t, newRig(t, on)) })
	}
}

func testKilledAtSteps(t *testing.T, r *rig) {
	anywhere, tls, full := r.trap("[::]:8081"), r.trap(held+":443"), r.full(dialled+":443")
	dir := r.scripts("step.py", step)
	s := r.session(client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeBind}})
	answered := func(name string) func() bool {
		return func() bool { _, err := os.Stat(filepath.Join(dir, name, "answered")); return err == nil }
	}
	nothing := func() int { return 0 }
	ports := "8081 3128 1080"
	if r.tier.relayed {
		ports = "3128 1080"
	}
	for _, tt := range []struct {
		name, to, text string
		there          func() bool
		arrived        func() int // where nothing more may arrive
		most           int
	}{
		{"waiting", "waiting.trap.example:8081", "xx", func() bool {
			list, err := r.client.ListApprovals(context.Background(), client.ApprovalQuery{})
			return err == nil && len(list.Items) == 1
		}, func() int { c, b := anywhere.at(waiting); return c + b }, 0},
		{"looked-up", "silent.trap.example:8081", "xx", func() bool { return r.zone.times("silent.trap.example") > 0 }, nothing, 0},
		{"dialled", "dialled.trap.example:443", greeting(t, "dialled.trap.example"), r.dialling, full, 0},
		{
			"greeting", "held.trap.example:443", "\x16\x03\x01\x02\x00\x01", func() bool { c, _ := tls.at(held); return c == 1 },
			func() int { _, b := tls.at(held); return b }, 0,
		},
		{
			"moving", "moving.trap.example:8081", "xx", func() bool { _, b := anywhere.at(moving); return b == 2 },
			func() int { _, b := anywhere.at(moving); return b }, 2,
		},
		{"SOCKS", socks, socksName("allowed.example", 8080)[:12], answered("SOCKS"), nothing, 0},
		{"CONNECT", proxy, "GET http://allowed.example/x HTTP/1.1\r\nHost: x\r\n\r\nCONNECT allowed.exa", answered("CONNECT"), nothing, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r.t = t
			to, text := tt.to, tt.text
			if r.tier.relayed && to != socks && to != proxy {
				to, text = proxy, connect(to, text)
			}
			command := fmt.Sprintf("mkdir %[1]s && cd %[1]s && python3 ../step.py %s %x 8082 %s", tt.name, strings.Replace(to, ":", " ", 1), text, ports)
			_ = r.calling(s, command) // its client goes with the daemon
			testrig.Eventually(t, "the connection has come so far", tt.there)
			must(t, r.Kill())
			testrig.Eventually(t, "the ports were tried", func() bool { _, err := os.Stat(filepath.Join(dir, tt.name, "tried")); return err == nil })
			r.start()
			must(t, os.WriteFile(filepath.Join(dir, tt.name, "started"), nil, 0o644))
			var got client.Call
			testrig.Eventually(t, "the call ends", func() bool {
				list, err := r.client.ListCalls(context.Background(), s, client.CallQuery{})
				for _, c := range list.Items {
					if strings.Contains(c.Output, "step "+tt.name+"\n") && c.Finished() {
						got = c
					}
				}
				return err == nil && got.ID != ""
			})
			// The control: a port that nobody listens at.
			if has(t, &got, "ended with b'", "took 0.0.0.0 8082\n", "took 127.0.0.1 8082\n"); strings.Contains(got.Output, "still open") || strings.Count(got.Output, "took") != 2 {
				t.Errorf("the connection lived on, or a port was free: %s", got.Output)
			}
			list, err := r.client.ListApprovals(context.Background(), client.ApprovalQuery{})
			if err != nil || len(list.Items) != 0 {
				t.Errorf("waiting after the end: %+v, %v", list, err)
			}
			if n := tt.arrived(); n != tt.most {
				t.Errorf("%d connections or bytes arrived, want %d", n, tt.most)
			}
			has(t, r.bash(s, "curl -sS http://allowed.example/"+tt.name), "served allowed.example/"+tt.name+"\n")
		})
	}
}

// full listens at an address whose queue is full: who dials it waits. What it returns says how many
// others than the test have connected.
func (r *rig) full(at string) func() int {
	r.t.Helper()
	l := r.listen(at)
	dial := func() net.Conn {
		c, err := netns.In(r.ns, func() (net.Conn, error) { return net.Dial("tcp", at) })
		must(r.t, err)
		return c
	}
	raw, err := l.(*net.TCPListener).SyscallConn()
	must(r.t, err)
	must(r.t, raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }))
	must(r.t, err)
	first := dial()
	r.t.Cleanup(func() { _ = first.Close(); _ = l.Close() })
	return func() int {
		var last net.Conn
		for others := 0; ; others++ {
			c, err := l.Accept()
			must(r.t, err)
			_ = c.Close()
			switch {
			case last == nil: // the queue has room now
				others--
				last = dial()
				defer last.Close()
			case c.RemoteAddr().String() == last.LocalAddr().String():
				return others
			}
		}
	}
}

// dialling says that the daemon has sent a SYN to dialled, and no answer has come.
func (r *rig) dialling() bool {
	a := netip.MustParseAddr(dialled).As4()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", r.Cmd.Process.Pid))
	return err == nil && strings.Contains(string(text), fmt.Sprintf(" %08X:01BB 02 ", binary.LittleEndian.Uint32(a[:])))
}

// ownAddress gives the rig's namespace every IPv6 address, and an address that is its own.
func (r *rig) ownAddress() {
	r.t.Helper()
	_, err := netns.In(r.ns, func() (struct{}, error) {
		out, err := exec.Command("sh", "-ec", "ip -6 route add local ::/0 dev lo; ip addr add "+own+"/32 dev lo").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return struct{}{}, err
	})
	must(r.t, err)
}
