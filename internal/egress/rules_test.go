package egress_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/remark"
	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/endpoint"
	"github.com/toold/toold/internal/policy"
	rulesgate "github.com/toold/toold/internal/session/gate"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
)

// ruled are the rules of a session whose approver rejects all, or allows all once.
type ruled struct {
	stack atomic.Pointer[policy.Stack]
	once  atomic.Bool // all is allowed that is asked about, until the call ends
	rev   atomic.Uint64

	mu      sync.Mutex      // guards the field below
	blocked []remark.Denial // that calls are told of
}

func (r *ruled) set(s *policy.Stack) {
	r.stack.Store(s)
	r.rev.Add(1)
}

func (r *ruled) Outgoing(_ context.Context, o *call.Outgoing) policy.Verdict {
	v := r.stack.Load().JudgeOne(&o.Request)
	if v.Action == policy.Ask {
		if v.Action = policy.Deny; r.once.Load() {
			v.Action = policy.Allow
		}
	}
	return v
}

// over ends the calls for which something was allowed once.
func (r *ruled) over() {
	r.once.Store(false)
	r.rev.Add(1)
}

func (r *ruled) Blocked(_ []string, n remark.Denial) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocked = append(r.blocked, n)
}

// lines are those under the results of calls.
func (r *ruled) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all remark.Denials
	for _, n := range r.blocked {
		all.Add(n)
	}
	return all.Lines()
}

func (r *ruled) gate(t *testing.T) *rulesgate.Gate {
	t.Helper()
	st, err := store.Open(store.Config{Path: filepath.Join(t.TempDir(), "db"), Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	g := rulesgate.New(rulesgate.Config{
		Session: "ses_test", Tenant: "default", Calls: r, Store: st, Log: slog.New(slog.DiscardHandler),
		Stack: func([]string) *policy.Stack { return r.stack.Load() }, Revision: r.rev.Load,
		Closed: func() string { return "" }, Learn: func() bool { return false },
		Observe: func(string, int64, int64, time.Duration) {},
	})
	t.Cleanup(g.Close)
	return g
}

// A try is a connection of a random case: what is sent on it, twice.
type try struct {
	way, host, addr, what string
	port                  uint16
	texts                 [2]string // methods and paths of requests
}

// names are hosts of random cases, and where they lead.
var names = map[string]string{feeding: "12.0.0.6", "a.example": "93.184.216.34", "x.a.example": "12.0.0.5", "b.example": "10.1.1.1", "12.0.0.5": "12.0.0.5", "93.184.216.34": "93.184.216.34"}

// feeding is the host of a far side that speaks first.
const feeding = "feed.example"

var casePorts = []uint16{80, 8080, 443, 9000}

// tlsPorts are those of [network] tls in random rules.
var tlsPorts = []string{"", "", "9000", "8080, 9000", "80"}

// tlsOf are the ports that the first lines of random rules name so.
func tlsOf(text string) (ports []uint16) {
	_, list, _ := strings.Cut(text, "tls = [")
	list, _, _ = strings.Cut(list, "]")
	for p := range strings.SplitSeq(list, ", ") {
		if n, err := strconv.ParseUint(p, 10, 16); err == nil {
			ports = append(ports, uint16(n))
		}
	}
	return ports
}

// pick is one of a list.
func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// randomLines are random tables of network and of http; below is the table that they are in. Places
// come from a few, so that they meet. bound is for who can only make things stricter.
func randomLines(r *rand.Rand, below string, bound bool) string {
	host := func(hosts ...string) string {
		return pick(r, hosts...) + pick(r, "", "", "", ":8080", ":*", ":443", ":9000", ":80")
	}
	action := func() string { return pick(r, "allow", "allow", "deny", "ask") }
	lines := make(map[string]string)
	var b strings.Builder
	add := func(pattern, action string) {
		if lines[pattern] == "" {
			lines[pattern] = action
			fmt.Fprintf(&b, "%q = %q\n", pattern, action)
		}
	}
	network, requests := 1+r.IntN(5), r.IntN(5)
	if bound {
		network, requests = r.IntN(3), r.IntN(3)
	}
	fmt.Fprintf(&b, "[%spermission.network]\n", below)
	if !bound && r.IntN(3) > 0 {
		add("*:*", "allow")
	}
	for range network {
		add(host("*", "a.example", "*.example", "x.a.example", "b.example", feeding, "*.a.example", "12.0.0.0/24", "12.0.0.5", "10.0.0.0/8", "10.1.1.1", "93.184.216.34"), action())
	}
	fmt.Fprintf(&b, "[%spermission.http]\n", below)
	if r.IntN(5) == 0 {
		add("*", action())
	}
	for range requests {
		add(pick(r, "*", "GET", "POST")+" "+pick(r, "http", "http", "https", "*")+"://"+host("*", "a.example", "*.example", "x.a.example", "12.0.0.5", "93.184.216.34", feeding)+
			pick(r, "/*", "/secret*", "/ok", "/ok/*", "/s?cret*", "/q?admin=1*"), action())
	}
	return b.String()
}

// randomRules are a file of rules, with lines for the tenant, and behind it a session's own, its
// worktree's, and approvals that were saved. The text is all of them.
func randomRules(t *testing.T, r *rand.Rand) (text string, s laws) {
	t.Helper()
	tls := fmt.Sprintf("[network]\ntls = [%s]\n", pick(r, tlsPorts...))
	bound := func(lines string) {
		s.bounds = append(s.bounds, stackOf(t, tls+"[[rule]]\npermission = \"network\"\npattern = \"*:*\"\naction = \"allow\"\n"+lines))
	}
	text = tls + randomLines(r, "", false)
	if r.IntN(4) == 0 {
		const below = "tenant.default."
		lines := randomLines(r, below, true)
		text += lines
		bound(strings.ReplaceAll(lines, "["+below, "["))
	}
	s.Stack = stackOf(t, text)
	for _, name := range []string{"session", "worktree"} {
		if r.IntN(4) > 0 {
			continue
		}
		lines := randomLines(r, "", true)
		rules, err := policy.ParseCeiling(name, []byte(lines))
		if err == nil && name == "session" {
			of := make([]client.RuleOf, len(rules))
			for i, r := range rules {
				of[i] = client.RuleOf{Permission: r.Permission, Pattern: r.Pattern, Action: string(r.Action)}
			}
			rules, err = policy.CheckRules(name, of)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, lines)
		}
		s.Stack = s.With(policy.Ceiling{Name: name, Rules: rules})
		bound(lines)
		text += "# of the " + name + "\n" + lines
	}
	if r.IntN(3) > 0 {
		return text, s
	}
	var saved []policy.Rule
	for range 1 + r.IntN(3) {
		c := randomTry(r)
		q := policy.Connection(c.endpoint())
		if u, err := endpoint.ParseRequest("GET", "http://"+c.endpoint().String()+"/"); err == nil && r.IntN(2) == 0 {
			q = policy.HTTP(u)
		}
		saved = append(saved, policy.Rule{Permission: q.Permission, Pattern: q.Save, Action: policy.Allow, Source: "approval"})
		text += fmt.Sprintf("# saved: %s %q\n", q.Permission, q.Save)
	}
	s.Stack = s.Remember(saved)
	return text, s
}

func randomTry(r *rand.Rand) *try {
	c := &try{
		way: pick(r, "transparent", "proxy", "CONNECT", "SOCKS"), host: pick(r, "a.example", "x.a.example", "b.example", "12.0.0.5", "93.184.216.34", feeding),
		port: pick(r, casePorts...), what: pick(r, "http", "http", "http", "tls", "raw"),
	}
	if c.host == feeding {
		c.way, c.what = pick(r, "transparent", "CONNECT", "SOCKS"), "feed"
	}
	if c.addr = names[c.host]; c.way == "proxy" {
		c.what = "http"
	}
	for i := range c.texts {
		c.texts[i] = pick(r, "GET", "GET", "POST") + " " + pick(r, "/secret", "/%73ecret", "//secret", "/ok", "/ok?", "/;/secret", "/%2Fsecret", "/ok/x", "/ok%2fx", "/q?%61dmin=1", "/q?b=1", "/a/../ok", "/Ok;x")
	}
	return c
}

func (c *try) endpoint() endpoint.Endpoint {
	h, _ := endpoint.ParseHost(c.host)
	return endpoint.Endpoint{Host: h, Port: c.port}
}

// stackOf are the rules of a text.
func stackOf(t *testing.T, text string) *policy.Stack {
	t.Helper()
	set, err := policy.Parse("rules.toml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	s, err := set.Stack("build", "default")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// laws are the rules of a moment, and whether what they ask about is allowed. bounds are those of them that can only
// make things stricter, each as if there were no others: what one of them denies never passes.
type laws struct {
	*policy.Stack
	bounds []*policy.Stack
	once   bool
}

// allows says whether what is explained of a request lets it pass.
func (s laws) allows(q policy.Request) bool {
	for _, b := range s.bounds {
		v := b.JudgeOne(&q)
		// Others may be about plain HTTP where these know nothing but TLS, which they close then.
		tls := v.Rule == "[network] tls" || q.Permission == policy.PermissionNetwork && strings.Contains(v.Reason, "cannot be read")
		if v.Action == policy.Deny && !tls {
			return false
		}
	}
	action := s.Explain([]policy.Request{q})[0].Action
	return action == string(policy.Allow) || s.once && action == string(policy.Ask)
}

// connects says whether the rules as they are explained let a connection be made.
func (c *try) connects(s laws) bool {
	addr := netip.MustParseAddr(c.addr)
	at := policy.Address(endpoint.Endpoint{Host: endpoint.HostOf(addr), Port: c.port})
	return s.allows(policy.Connection(c.endpoint())) && s.allows(at) && (!addr.IsPrivate() || s.JudgeOne(&at).Pattern != "")
}

// passes says whether the i-th thing that is sent should arrive; read, whether the connection was
// read as one of requests before.
func (c *try) passes(s laws, i int, read bool) bool {
	_, only, tls := c.reads(s)
	switch c.what {
	case "raw", "feed":
		return c.connects(s) && !tls && !only
	case "tls":
		_, path, _ := strings.Cut(c.texts[i], " ")
		q, err := endpoint.ParseRequest("GET", "https://"+c.endpoint().String()+path)
		if err != nil { // what the session sends there is for the far side to refuse
			q, _ = endpoint.ParseRequest("GET", "https://"+c.endpoint().String()+"/")
		}
		return c.connects(s) && s.allows(policy.HTTP(q))
	}
	method, path, _ := strings.Cut(c.texts[i], " ")
	q, err := endpoint.ParseRequest(method, "http://"+c.endpoint().String()+path)
	if !read && c.unread(s) {
		return c.connects(s) && (err != nil || s.allows(policy.HTTP(q))) // where nobody looks, no rule is about it
	}
	return err == nil && c.connects(s) && s.allows(policy.HTTP(q))
}

// reads says how the place is read, and whether nothing but HTTP, or nothing but TLS, passes there.
func (c *try) reads(s laws) (how policy.Reading, only, tls bool) {
	how = s.Reads(c.endpoint())
	for _, b := range s.bounds {
		more := b.Reads(c.endpoint())
		how.Requests, how.Only, how.ByPort = how.Requests || more.Requests, how.Only || more.Only, how.ByPort || more.ByPort
		if how.OnlyTLS = how.OnlyTLS && !how.ByPort; how.TLS == nil {
			how.TLS = more.TLS
		}
	}
	return how, !how.OnlyTLS && (how.Only || c.port == 80), how.OnlyTLS
}

// unread says whether nobody looks at what the connection carries, as no rule could be about it.
func (c *try) unread(s laws) bool {
	read, only, tls := c.reads(s)
	return c.way != "proxy" && !only && !tls && !read.Requests && (c.what == "http" || read.TLS == nil)
}

// looked says whether somebody looks at how the connection begins.
func (c *try) looked(s laws) bool {
	read, only, tls := c.reads(s)
	return c.way == "proxy" || only || tls || read.Requests || read.TLS != nil
}

// named says whether nothing but TLS passes, to the name that was asked for.
func (c *try) named(s laws) bool {
	_, _, tls := c.reads(s)
	return tls && c.way != "proxy"
}

// feeds are connections of far sides that say something when a test wants it.
type feeds struct {
	mu   sync.Mutex // guards all
	open []net.Conn
}

func (f *feeds) begin(c net.Conn, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = io.WriteString(c, text)
	f.open = append(f.open, c)
}

// goOn says something more on all of them.
func (f *feeds) goOn(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		_, _ = io.WriteString(c, text)
	}
	f.open = nil
}

// far is the far side of random cases: it says "passed" to whatever it gets, and at one address first.
func (f *feeds) far(c net.Conn) {
	br := bufio.NewReader(c)
	if strings.HasPrefix(c.LocalAddr().String(), names[feeding]+":") {
		f.begin(c, "passed")
	}
	for {
		first, err := br.Peek(1)
		if err != nil {
			return
		}
		if first[0] != 'G' && first[0] != 'P' {
			_, _ = br.Discard(br.Buffered())
			_, _ = io.WriteString(c, "passed")
			continue
		}
		q, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npassed")
	}
}

// conversation is a connection of a program, and what is behind it.
type conversation struct {
	net.Conn
	*bufio.Reader
	c *try
}

func (c *try) open(r *rig) *conversation {
	r.Helper()
	host := c.host
	if strings.HasSuffix(host, "example") {
		host = strings.ToUpper(host[:1]) + host[1:]
	}
	to := at(host, c.port)
	dial := func(addr string) *conversation {
		conn, err := r.dial(addr)
		if err != nil {
			return nil
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		return &conversation{conn, bufio.NewReader(conn), c}
	}
	switch c.way {
	case "transparent":
		if strings.HasSuffix(host, "example") {
			to = at(r.lookUp(host), c.port)
		}
		return dial(to)
	case "SOCKS":
		v := dial("127.0.0.1:1080")
		_, _ = io.WriteString(v, "\x05\x01\x00\x05\x01\x00\x03"+string([]byte{byte(len(host))})+host+string([]byte{byte(c.port >> 8), byte(c.port)}))
		answer := make([]byte, 12)
		if _, err := io.ReadFull(v.Reader, answer); err != nil || answer[3] != 0 {
			_ = v.Close()
			return nil
		}
		return v
	case "CONNECT":
		v := dial("127.0.0.1:3128")
		_, _ = io.WriteString(v, "CONNECT "+to+" HTTP/1.1\r\nHost: "+to+"\r\n\r\n")
		if res, err := http.ReadResponse(v.Reader, &http.Request{Method: http.MethodConnect}); err != nil || res.StatusCode != http.StatusOK {
			_ = v.Close()
			return nil
		}
		return v
	}
	return dial("127.0.0.1:3128")
}

// Write and Read are the connection's and the buffer's.
func (v *conversation) Write(p []byte) (int, error) { return v.Conn.Write(p) }
func (v *conversation) Read(p []byte) (int, error)  { return v.Reader.Read(p) }

// hears reports whether the far side's next words come. Where they should not, the program ends what
// it says, so that whoever waits for that does not wait on.
func (v *conversation) hears(want bool) bool {
	if !want {
		_ = v.Conn.(*net.TCPConn).CloseWrite()
	}
	got := make([]byte, 6)
	_, err := io.ReadFull(v, got)
	return err == nil && string(got) == "passed"
}

// send reports whether the i-th text arrives.
func (v *conversation) send(hello string, i int) bool {
	text := "\x01binary\r\n\r\n" // which a server that waits for a request refuses at once
	switch v.c.what {
	case "tls":
		text = hello
	case "http":
		method, path, _ := strings.Cut(v.c.texts[i], " ")
		url := path
		if v.c.way == "proxy" {
			url = "http://" + v.c.endpoint().String() + path
		}
		_, _ = io.WriteString(v, method+" "+url+" HTTP/1.1\r\nHost: "+v.c.endpoint().String()+"\r\nContent-Length: 0\r\n\r\n")
		res, err := http.ReadResponse(v.Reader, nil)
		if err != nil {
			return false
		}
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode == http.StatusOK && string(body) == "passed"
	}
	_, _ = io.WriteString(v, text)
	return v.hears(true)
}

// What is explained is what happens: random rules, by each way out, on the first thing that is sent
// and on the second, between which the rules may have changed, those of the file, a tenant's, a session's and a
// worktree's, and what was saved; also where the far side speaks first
// and the program not at all, and where the rules change before it does. What they ask about may be
// allowed until a call ends, which is such a change too.
func TestExplainedIsWhatHappens(t *testing.T) {
	cases := testrig.Rounds(4000)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	var f feeds
	for _, p := range casePorts {
		listen(t, fmt.Sprintf("0.0.0.0:%d", p), f.far)
	}
	rules := &ruled{}
	rules.set(&policy.Stack{})
	r := newRig(t, &gate{}, egress.Config{Gate: rules.gate(t), Ports: casePorts, Limits: egress.Limits{PerSecond: 100_000, Connections: 1000}})
	for name, addr := range names {
		r.dns.set(name, addr)
	}
	hellos := make(map[string]string)
	for name := range names {
		hellos[name] = helloTo(t, name)
	}
	// change has other rules, or what was allowed end; the text is for who looks into a failure.
	change := func(text string, s laws) (string, laws) {
		if s.once && random.IntN(3) == 0 {
			s.once = false
			rules.over()
			return text + "and nobody allows what is asked about", s
		}
		once := s.once
		text, s = randomRules(t, random)
		s.once = once
		rules.set(s.Stack)
		if err := r.net.SetPorts(casePorts, tlsOf(text)); err != nil {
			t.Fatal(err)
		}
		return text, s
	}
	var passed, cut, ended, late, differ int
	for i := range cases {
		once := random.IntN(2) == 0
		rules.once.Store(once)
		text, s := change("", laws{})
		s.once = once
		c := randomTry(random)
		v := c.open(r)
		want := c.passes(s, 0, false)
		var got bool
		switch {
		case v == nil:
		case c.what == "feed":
			got = v.hears(want)
		case (c.way == "CONNECT" || c.way == "SOCKS") && random.IntN(3) == 0:
			_, only, tls := c.reads(s)
			before, looked := text, c.looked(s)
			text, s = change(text, s)
			r.net.Rejudge()
			got = v.send(hellos[c.host], 0)
			_, onlyNow, tlsNow := c.reads(s)
			// What began under other rules may be refused for that.
			want = c.passes(s, 0, only) && (got || looked && !only && !onlyNow && tls == tlsNow)
			if late++; got != want {
				differ++
				t.Errorf("seed %d, case %d: %+v passes when the rules changed before it spoke: %t, and is explained as %t\n%s\nthen\n%s", seed, i, c, got, want, before, text)
			}
			want, got = false, false
		default:
			got = v.send(hellos[c.host], 0)
		}
		if got != want {
			differ++
			t.Errorf("seed %d, case %d: %+v passes: %t, and is explained as %t\n%s", seed, i, c, got, want, text)
		}
		if got {
			passed++
			before, looked, unread := s, c.looked(s), c.unread(s)
			next := text
			if random.IntN(2) == 0 {
				next, s = change(text, s)
				r.net.Rejudge()
			}
			want := c.passes(s, 1, !unread)
			if (s.Stack != before.Stack || s.once != before.once) && (!looked && c.looked(s) || unread && !c.unread(s) || !c.named(before) && c.named(s)) {
				want = false // what it carries was not looked at, or not to which name it is
			}
			if !want {
				cut++
			}
			if before.once && !s.once && !want {
				ended++
			}
			// The first request may be under way yet: its answer is here, its end was not seen there.
			first := (s.Stack != before.Stack || s.once != before.once) && !c.passes(s, 0, true)
			var got bool
			if c.what == "feed" {
				f.goOn("passed")
				got = v.hears(want)
			} else {
				got = v.send(hellos[c.host], 1)
			}
			if got != want && (!want || !first) {
				differ++
				t.Errorf("seed %d, case %d: the second of %+v passes: %t, and is explained as %t\n%s\nthen\n%s", seed, i, c, got, want, text, next)
			}
			if c.what == "feed" && got {
				c.what = pick(random, "http", "tls", "raw")
				want := c.passes(s, 0, false)
				if c.what == "http" { // a request after the answer
					want = c.unread(s) && c.connects(s)
				}
				if got := v.send(hellos[c.host], 0); got != want {
					differ++
					t.Errorf("seed %d, case %d: what %+v says then passes: %t, and is explained as %t\n%s\nthen\n%s", seed, i, c, got, want, text, next)
				}
			}
		}
		if v != nil {
			_ = v.Close()
		}
		if differ > 5 {
			t.FailNow()
		}
	}
	t.Logf("seed %d, %d cases: %d passed at first, %d of these not again, %d as a call had ended; the rules changed before %d; %d differ", seed, cases, passed, cut, ended, late, differ)
	if passed < cases/20 || cut < passed/20 || cut > passed*9/10 || ended == 0 {
		t.Errorf("of %d cases %d passed at first, and %d of these not again, %d as a call had ended: the cases say nothing", cases, passed, cut, ended)
	}
}

// helloTo is a ClientHello; an address has no name in it.
func helloTo(t *testing.T, name string) string {
	t.Helper()
	if net.ParseIP(name) != nil {
		name = ""
	}
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		_ = near.Close()
	}()
	defer far.Close()
	buf := make([]byte, 16<<10)
	n, err := far.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

// An address that a rule is about holds whatever led to it, and is not told.
func TestAddressesAreJudged(t *testing.T) {
	listen(t, "[::]:9000", echo)
	var said atomic.Pointer[egress.Verdict]
	said.Store(&egress.Verdict{})
	g := &gate{connect: func(r egress.Request) egress.Verdict {
		if r.Address.IsValid() {
			return *said.Load()
		}
		return public
	}, opens: func(a netip.Addr) egress.Opening {
		switch a.String() {
		case "12.0.0.5":
			return egress.Refused
		case "12.0.0.6", "10.0.0.6", "64:ff9b::a00:6":
			return egress.Asked
		case "64:ff9b::a00:7":
			return egress.Asked // and what it leads to is not named
		}
		return egress.Public
	}}
	r := newRig(t, g, egress.Config{Ports: []uint16{9000}})
	r.dns.set("denied.example", "12.0.0.5")
	r.dns.set("asked.example", "12.0.0.6")
	r.dns.set("private.example", "10.1.2.3")
	r.dns.set("asked-behind.example", "64:ff9b::a00:6")
	r.dns.set("private-behind.example", "64:ff9b::a00:7")
	r.dns.set("both.example", "12.0.0.5+93.184.216.34")
	try := func(host string) bool {
		c := r.mustDial("127.0.0.1:3128")
		defer c.Close()
		_, _ = io.WriteString(c, "CONNECT "+host+":9000 HTTP/1.1\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode == http.StatusOK {
			return true
		}
		body, _ := io.ReadAll(res.Body)
		for _, inner := range []string{"12.0.0.", "10.1.2.3"} {
			if strings.Contains(string(body), inner) {
				t.Errorf("%s: the answer tells %q", host, body)
			}
		}
		return false
	}
	if try("denied.example") || try("private.example") || try("asked.example") || try("asked-behind.example") || !try("both.example") {
		t.Error("what is denied passes, or what is allowed does not")
	}
	rec := g.wait(t, func(r egress.Record) bool { return r.Host == "denied.example" })
	if rec.Allow || rec.Rule != denied.Rule || rec.Error != "" {
		t.Errorf("the record of a denied address: %+v", rec)
	}
	if rec = g.wait(t, func(r egress.Record) bool { return r.Host == "private.example" }); strings.Contains(rec.Error, "10.1.2.3") {
		t.Errorf("the record of a private address: %+v", rec)
	}
	said.Store(&allow)
	if !try("asked.example") || !try("asked-behind.example") {
		t.Error("an address that somebody has allowed is refused")
	}
	if try("private-behind.example") {
		t.Error("a private address behind one that somebody has allowed passes")
	}
}

// A far side may speak first where requests would be read; a request after that is not judged, and
// does not pass.
func TestFarSpeaksFirst(t *testing.T) {
	listen(t, "0.0.0.0:9000", func(c net.Conn) { _, _ = io.WriteString(c, "hello\n"); echo(c) })
	web(t, "0.0.0.0:8080", func(w http.ResponseWriter, q *http.Request) { _, _ = io.WriteString(w, q.Host) })
	g := &gate{connect: func(egress.Request) egress.Verdict { return public }, reads: func(egress.Request) egress.Reading { return egress.Reading{Requests: true} }}
	r := newRig(t, g, egress.Config{Ports: []uint16{8080, 9000}})
	// A Host without a port is the connection's, and another one is refused.
	for host, want := range map[string]string{"93.184.216.34": "93.184.216.34:8080", "93.184.216.34:8080": "93.184.216.34:8080", "93.184.216.34:80": "", "12.0.0.5": ""} {
		got := r.exchange("93.184.216.34:8080", "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		if passes := strings.HasSuffix(got, want) && strings.HasPrefix(got, "HTTP/1.1 200"); passes != (want != "") {
			t.Errorf("Host %s: %q", host, got)
		}
	}
	for text, passes := range map[string]bool{"EHLO x\r\n": true, "SSH-2.0-x y\r\n": true, "GET /secret HTTP/1.1\r\n\r\n": false, "get\t/secret\n": false} {
		c := r.mustDial("93.184.216.34:9000")
		br := bufio.NewReader(c)
		if line, err := br.ReadString('\n'); err != nil || line != "hello\n" {
			t.Errorf("%q: the far side says %q, %v", text, line, err)
		}
		_, _ = io.WriteString(c, text)
		if line, _ := br.ReadString('\n'); (line != "") != passes {
			t.Errorf("%q: came back %q", text, line)
		}
	}
}

// Where a name leads, and which addresses a rule is about, is told nobody in the session: its
// programs in no part of an answer, its calls in no line.
func TestAddressOfANameIsNotTold(t *testing.T) {
	rules := &ruled{}
	rules.set(stackOf(t, `[permission.network]
"*.example:*" = "allow"
"10.1.1.1:*" = "deny"
"10.2.0.0/16:*" = "deny"
"10.3.3.3:*" = "ask"
"*:9001" = "allow"
`))
	r := newRig(t, &gate{}, egress.Config{Gate: rules.gate(t), Ports: []uint16{9000}})
	lines := map[string]string{"one.example": "rules.toml:3", "many.example": "rules.toml:4", "asked.example": "rules.toml:5"}
	r.dns.set("one.example", "10.1.1.1")
	r.dns.set("many.example", "10.2.1.1")
	r.dns.set("asked.example", "10.3.3.3")
	for host, line := range lines {
		for _, text := range []string{
			"CONNECT " + host + ":443 HTTP/1.1\r\nHost: " + host + ":443\r\n\r\n",
			"GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n",
		} {
			got := r.exchange("127.0.0.1:3128", text)
			if !strings.HasPrefix(got, "HTTP/1.1 403") || !strings.Contains(got, "Toold-Rule: "+line+"\r\n") || strings.Contains(got, "10.") {
				t.Errorf("%.20q is answered with %q", text, got)
			}
			if _, body, _ := strings.Cut(got, "\r\n\r\n"); !strings.HasPrefix(body, "network: ") || strings.Count(body, "\n") != 1 || !strings.HasSuffix(body, "\n") {
				t.Errorf("%.20q is answered with more than one line, or none: %q", text, body)
			}
		}
	}
	rules.mu.Lock()
	defer rules.mu.Unlock()
	if len(rules.blocked) < 2*len(lines) {
		t.Errorf("calls are told of %+v", rules.blocked)
	}
	for _, n := range rules.blocked {
		if host, _, _ := strings.Cut(strings.TrimPrefix(n.To, "GET http://"), ":"); n.Rule != lines[strings.TrimSuffix(host, "/")] {
			t.Errorf("a call is told %+v", n)
		}
	}
}

// Where nothing but HTTP passes, whoever says something else, waits for the other side, or ends
// before it is known what it says, is told so in the result of its call.
func TestOnlyHTTPPasses(t *testing.T) {
	rules := &ruled{}
	rules.set(stackOf(t, `
[permission.network]
"*:*" = "allow"
[permission.http]
"* http://*.only.example:8080/*" = "allow"
"* http://*.only.example:443/*" = "allow"
`))
	g := &noting{Gate: rules.gate(t)}
	r := newRig(t, &gate{}, egress.Config{Gate: g, Ports: []uint16{8080}})
	// Where other things pass too, what could yet become a request does after as long, and becomes none.
	listen(t, "0.0.0.0:9000", echo)
	others := &ruled{}
	others.set(stackOf(t, "[permission.network]\n\"*:*\" = \"allow\"\n[permission.http]\n\"* http://evil.example/*\" = \"deny\"\n"))
	beside := newRig(t, &gate{}, egress.Config{Gate: others.gate(t), Ports: []uint16{9000}})
	var wait sync.WaitGroup
	for text, more := range map[string]string{"xx": "yy", "POST secret H": "TTP/1.1\n", "xx ": "/secret\n", "POST secret HTTP/1.1": "\n"} {
		c := beside.mustDial("93.184.216.34:9000")
		wait.Go(func() {
			_, _ = io.WriteString(c, text)
			got := make([]byte, len(text))
			if n, _ := io.ReadFull(c, got); n > 0 != !strings.HasSuffix(text, "1.1") || n > 0 && string(got) != text {
				t.Errorf("%q: came %q", text, got[:n])
			}
			_, _ = io.WriteString(c, more)
			if n, _ := io.ReadFull(c, got[:2]); n > 0 != (more == "yy") {
				t.Errorf("%q and then %q: came %q", text, more, got[:n])
			}
		})
	}
	why := make(map[string]string) // by host
	for port, rule := range map[int]string{80: "", 8080: "rules.toml:5", 443: "rules.toml:6"} {
		for text, words := range map[string]string{"": "no request came in 10s", "SSH-2.0-x y\r\n": "only HTTP", "\x16\x03\x01\x02": "only HTTP", "PRI * HTTP/2.0\r\n\r\n": "HTTP/2", "GE": "no request came in 10s", "end": "it ended without a request"} {
			for _, way := range []string{"transparent", "CONNECT", "SOCKS"} {
				host := fmt.Sprintf("h%d.only.example", len(why))
				if why[host] = rule + ": " + words; words == "HTTP/2" {
					why[host] = ": " + words
				}
				v := (&try{way: way, host: host, port: uint16(port)}).open(r)
				if v == nil {
					t.Fatalf("%s to port %d: not opened", way, port)
				}
				wait.Go(func() {
					if text == "end" {
						_ = v.Conn.(*net.TCPConn).CloseWrite()
					} else {
						_, _ = io.WriteString(v, text)
					}
					if got, err := io.ReadAll(v); len(got) > 0 || err == nil {
						t.Errorf("%s, %d, %q: came %q, %v", way, port, text, got, err)
					}
				})
			}
		}
	}
	wait.Wait()
	conns, _ := g.of("")
	for _, rec := range conns {
		rule, words, _ := strings.Cut(why[rec.Host], ": ")
		if said := rec.Reason + rec.Error; !strings.Contains(said, words) || rec.Allow == (rule != "") || !strings.HasPrefix(rec.Rule, cmp.Or(rule, "rules.toml:3")) {
			t.Errorf("%q is recorded as %+v", why[rec.Host], rec)
		}
	}
	if lines := rules.lines(); len(conns) != len(why) || len(lines) == 0 || !strings.Contains(lines[len(lines)-1], fmt.Sprintf("and %d more", len(why)-len(lines))) {
		t.Errorf("%d of %d are recorded, and the result has %q", len(conns), len(why), lines)
	}
}

// A host whose requests by https some rule denies is refused as a whole, by each way out, and the result of the
// call says why.
func TestUnreadIsTold(t *testing.T) {
	rules := &ruled{}
	rules.set(stackOf(t, `
[network]
tls = [9000]
[permission.network]
"*:*" = "allow"
[permission.http]
"* https://closed.example:*/secret*" = "deny"
`))
	r := newRig(t, &gate{}, egress.Config{Gate: rules.gate(t), Ports: []uint16{8443, 9000}, TLS: []uint16{9000}})
	r.dns.set("closed.example", "93.184.216.34")
	hello := helloTo(t, "closed.example")
	ports := []uint16{443, 8443, 9000}
	for _, port := range ports {
		for _, way := range []string{"transparent", "CONNECT", "SOCKS"} {
			if v := (&try{way: way, host: "closed.example", port: port}).open(r); v != nil {
				_, _ = io.WriteString(v, hello)
				if got, _ := io.ReadAll(v); len(got) > 0 {
					t.Errorf("%s to port %d: came %q", way, port, got)
				}
			}
		}
	}
	told := func() (n int) {
		rules.mu.Lock()
		defer rules.mu.Unlock()
		return len(rules.blocked)
	}
	testrig.Eventually(t, "all of them are told", func() bool { return told() == 3*len(ports) })
	lines := rules.lines()
	for i, port := range ports {
		want := fmt.Sprintf("network: closed.example:%d was denied by rules.toml:7 (http \"* https://closed.example:*/secret*\"): requests by https cannot be read", port)
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("the result has %q, want a line with %q", lines, want)
		}
	}
}

// A request goes to the host that its connection is to, on every port where some rule of http asks or
// denies; where none does, nobody looks.
func TestHostOfARequest(t *testing.T) {
	web(t, "0.0.0.0:8080", func(w http.ResponseWriter, q *http.Request) { _, _ = io.WriteString(w, "for "+q.Host) })
	rules := &ruled{}
	rules.set(&policy.Stack{})
	g := &noting{Gate: rules.gate(t)}
	r := newRig(t, &gate{}, egress.Config{Gate: g, Ports: []uint16{8080}})
	r.dns.set("cdn.example", "93.184.216.34")
	for text, passes := range map[string]bool{
		`"* http://evil.example:8080/*" = "deny"`: false, `"POST *://*.evil.example/x" = "ask"`: false, `"*" = "deny"` + "\n" + `"* http://*/*" = "allow"`: false,
		`"* https://evil.example/*" = "deny"`: true, `"* http://evil.example:8080/*" = "allow"`: true, "": true,
	} {
		rules.set(stackOf(t, "[permission.network]\n\"cdn.example:8080\" = \"allow\"\n[permission.http]\n"+text))
		got := r.exchange(at(r.lookUp("cdn.example"), 8080), "GET / HTTP/1.1\r\nHost: evil.example:8080\r\nConnection: close\r\n\r\n")
		if passed := strings.HasSuffix(got, "for evil.example:8080"); passed != passes {
			t.Errorf("%s: answered %q", text, got)
		}
	}
	testrig.Eventually(t, "what was refused is told", func() bool {
		lines := rules.lines()
		return len(lines) == 1 && strings.Contains(lines[0], "the connection is to cdn.example:8080, and its request to evil.example:8080")
	})
}

// What is open where only TLS passes from now on is cut, whoever it greeted: nobody looked at the name.
func TestPortOfTLSComes(t *testing.T) {
	for _, p := range []int{443, 9000} {
		listen(t, fmt.Sprintf("0.0.0.0:%d", p), echo)
	}
	rules := &ruled{}
	rules.set(stackOf(t, "[permission.network]\n\"*:*\" = \"allow\"\n"))
	r := newRig(t, &gate{}, egress.Config{Gate: rules.gate(t), Ports: []uint16{9000}})
	r.dns.set("a.example", "93.184.216.34")
	for _, looked := range []bool{false, true} {
		requests := ""
		if looked {
			requests = "\"* http://b.example/*\" = \"deny\"\n"
		}
		rules.set(stackOf(t, "[permission.network]\n\"*:*\" = \"allow\"\n[permission.http]\n"+requests))
		if err := r.net.SetPorts([]uint16{9000}, nil); err != nil {
			t.Fatal(err)
		}
		open := func(port uint16, text string) net.Conn {
			c := r.mustDial(at(r.lookUp("a.example"), port))
			_, _ = io.WriteString(c, text)
			if _, err := io.ReadFull(c, make([]byte, len(text))); err != nil {
				t.Fatal(err)
			}
			return c
		}
		hello := helloTo(t, "a.example")
		stays := open(443, hello)
		cut := []net.Conn{open(9000, "\x01raw\r\n"), open(9000, helloTo(t, "b.example")), open(9000, hello), r.mustDial(at(r.lookUp("a.example"), 9000))}
		if err := r.net.SetPorts([]uint16{9000}, []uint16{9000}); err != nil {
			t.Fatal(err)
		}
		r.net.Rejudge()
		for i, c := range cut {
			_, _ = io.WriteString(c, "more")
			if got, _ := io.ReadAll(c); len(got) > 0 {
				t.Errorf("looked at: %t, connection %d goes on: %q", looked, i, got)
			}
		}
		for _, c := range []net.Conn{stays, open(9000, hello)} {
			_, _ = io.WriteString(c, "more")
			if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
				t.Errorf("looked at: %t, TLS to the name that was asked for does not go on: %v", looked, err)
			}
		}
	}
}
