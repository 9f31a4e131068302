package egress_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/testrig"
)

// noting is a gate whose records are kept.
type noting struct {
	egress.Gate
	mu      sync.Mutex // guards records
	records []egress.Record
}

func (n *noting) Done(r egress.Record) {
	n.mu.Lock()
	n.records = append(n.records, r)
	n.mu.Unlock()
	n.Gate.Done(r)
}

// of gives the records of connections and those of requests of a call, "" for all.
func (n *noting) of(call string) (conns, requests []egress.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.records {
		if call != "" && r.Calls[0] != call {
			continue
		}
		if r.Method == "" {
			conns = append(conns, r)
		} else {
			requests = append(requests, r)
		}
	}
	return conns, requests
}

// serveLong answers requests, some of them in two parts: the second when a test wants it.
func (f *feeds) serveLong(c net.Conn) {
	br := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		switch q.URL.Path {
		case "/long":
			f.begin(c, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\npassed")
		case "/ws":
			f.begin(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\npassed")
			_, _ = io.Copy(io.Discard, br)
			return
		default:
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npassed")
		}
	}
}

// Requests of one connection of the proxy go to several hosts: each is judged by the rules for its own,
// also while it is under way and after it became a tunnel, and each connection that they need has a
// record of its own, with what it moved.
func TestRequestsOfSeveralHosts(t *testing.T) {
	var f feeds
	for _, p := range []int{80, 8080} {
		listen(t, fmt.Sprintf("0.0.0.0:%d", p), f.serveLong)
	}
	listen(t, "0.0.0.0:9000", func(c net.Conn) { f.begin(c, "passed"); _, _ = io.Copy(io.Discard, c) })
	rules := &ruled{}
	rules.set(&policy.Stack{})
	g := &noting{Gate: rules.gate(t)}
	var call atomic.Int64 // one for each case
	r := newRig(t, &gate{}, egress.Config{Gate: g, Calls: func() []string { return []string{fmt.Sprint(call.Load())} }, Limits: egress.Limits{PerSecond: 100_000, Connections: 1000}})
	for name, addr := range names {
		r.dns.set(name, addr)
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	somewhere := func(what string, path ...string) *try {
		c := &try{way: "proxy", what: "http", host: pick(random, "a.example", "x.a.example", "12.0.0.5"), port: pick[uint16](random, 80, 80, 8080)}
		if c.addr, c.texts[0] = names[c.host], "GET "+pick(random, path...); what == "CONNECT" {
			c.way, c.what, c.port = what, "feed", 9000
		}
		return c
	}
	// lines are rules under which most passes, and those that come when they change: for one host.
	lines := func() string {
		host := pick(random, "a.example", "x.a.example", "12.0.0.5", "*.example")
		network, requests := "\"*:*\" = \"allow\"\n", ""
		switch random.IntN(4) {
		case 0:
			network += fmt.Sprintf("%q = \"deny\"\n", host)
		case 1:
			requests = fmt.Sprintf("\"* http://%s:*/%s*\" = \"deny\"\n", host, pick(random, "long", "ws", "ok", ""))
		case 2:
			network += fmt.Sprintf("%q = %q\n", names[pick(random, "a.example", "x.a.example")]+pick(random, "", ":8080"), pick(random, "deny", "ask"))
		}
		return "[permission.network]\n" + network + "[permission.http]\n" + requests
	}
	var went, cut int
	var records []func() // to check when all is over
	for i := range testrig.Rounds(200) {
		text := lines()
		s := laws{Stack: stackOf(t, text)}
		rules.set(s.Stack)
		call.Store(int64(i))
		v := &conversation{Conn: r.mustDial("127.0.0.1:3128")}
		v.Reader = bufio.NewReader(v.Conn)
		var hosts []*try // that a connection was wanted to, each as often as it was
		var connected []bool
		asked, failed := 0, false
		want := func(c *try) bool {
			if len(hosts) == 0 || c.endpoint() != hosts[len(hosts)-1].endpoint() || c.way == "CONNECT" {
				hosts, connected = append(hosts, c), append(connected, s.allows(policy.Connection(c.endpoint())))
			}
			if c.way != "CONNECT" {
				asked++
			}
			return c.passes(s, 0, true)
		}
		for range random.IntN(5) {
			c := somewhere("", "/ok", "/")
			v.c = c
			if wanted := want(c); v.send("", 0) != wanted {
				t.Errorf("seed %d, case %d: %+v passes: %t\n%s", seed, i, c, !wanted, text)
			} else if failed = !wanted; failed {
				break
			}
		}
		if !failed {
			c := somewhere(pick(random, "", "", "CONNECT"), "/long", "/ws")
			wanted := want(c)
			got := v.begin(c, wanted)
			if got != wanted {
				t.Errorf("seed %d, case %d: %+v begins: %t\n%s", seed, i, c, got, text)
			}
			if got {
				next := lines()
				unread := c.unread(s)
				s.Stack = stackOf(t, next)
				rules.set(s.Stack)
				r.net.Rejudge()
				f.goOn("passed")
				wanted := c.passes(s, 0, true) && (!unread || c.unread(s))
				if went++; !wanted {
					cut++
				}
				if got := v.hears(wanted); got != wanted {
					t.Errorf("seed %d, case %d, after %d others: %+v goes on: %t\n%s\nthen\n%s", seed, i, len(hosts)-1, c, got, text, next)
				}
			}
		}
		_ = v.Close()
		records = append(records, func() {
			var conns, requests []egress.Record
			testrig.Eventually(t, "all is recorded", func() bool {
				conns, requests = g.of(fmt.Sprint(i))
				return len(conns) >= len(hosts) && len(requests) >= asked
			})
			if len(conns) != len(hosts) || len(requests) != asked {
				t.Fatalf("seed %d, case %d: %d connections and %d requests have %d and %d records: %+v", seed, i, len(hosts), asked, len(conns), len(requests), conns)
			}
			for j, c := range hosts {
				rec, down := conns[j], int64(0)
				for _, q := range requests {
					if strings.HasPrefix(q.URL, "http://"+strings.TrimSuffix(c.endpoint().String(), ":80")+"/") {
						down += q.Down
					}
				}
				if rec.Host != c.host || rec.Port != c.port || rec.Address.IsValid() && rec.Address.Addr().String() != c.addr || rec.Allow && !connected[j] || c.way != "CONNECT" && (rec.Down > down || rec.Address.IsValid() && rec.Down == 0) {
					t.Errorf("seed %d, case %d: the record of connection %d, to %+v, with %d bytes of its requests: %+v", seed, i, j, c, down, rec)
				}
			}
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	for _, check := range records {
		check()
	}
	t.Logf("%d were under way when the rules changed, and %d of these were cut", went, cut)
	if went < 20 || cut == 0 || cut == went {
		t.Errorf("%d were under way when the rules changed, and %d of these were cut: the cases say nothing", went, cut)
	}
}

// begin asks for what goes on until a test says, and reports whether it has begun; wanted as for hears.
func (v *conversation) begin(c *try, wanted bool) bool {
	v.c = c
	to := c.endpoint().String()
	text := "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n\r\n"
	if c.way != "CONNECT" {
		path := strings.TrimPrefix(c.texts[0], "GET ")
		text = "GET http://" + to + path + " HTTP/1.1\r\nHost: " + to + "\r\n"
		if path == "/ws" {
			text += "Connection: Upgrade\r\nUpgrade: websocket\r\n"
		}
		text += "\r\n"
	}
	_, _ = io.WriteString(v.Conn, text)
	line, _ := v.Reader.ReadString('\n')
	for l := line; strings.TrimSpace(l) != ""; l, _ = v.Reader.ReadString('\n') {
	}
	return (strings.Contains(line, " 200 ") || strings.Contains(line, " 101 ")) && v.hears(wanted)
}
