package network

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/endpoint"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/testrig"
)

// ruledHosts are hosts of random rules, and where they lead: the last has a line of its own, without
// which a private address is refused.
var ruledHosts = map[string]string{"one.rules.example": "8.8.6.1", "deep.one.rules.example": "8.8.7.1", "two.rules.example": "10.40.0.1", "8.8.6.1": "8.8.6.1", "10.40.0.1": "10.40.0.1"}

// ruledNames are lines of the daemon's hosts file.
const ruledNames = "8.8.6.1 one.rules.example\n8.8.7.1 deep.one.rules.example\n10.40.0.1 two.rules.example\n8.8.6.9 spelled.rules.example\n"

var ruledPorts = []int{80, 443, 8080, 9000}

// probing does what it is told by files, and keeps its connections meanwhile.
const probing = `
import json, os, socket, time
conns = {}
def whole(got):
    head, end, body = got.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length": return end and len(body) >= int(value)
    return end
def read(c, done):
    got = b""
    while not done(got):
        b = c.recv(65536)
        if not b: break
        got += b
    return got
def exchange(c, text, done=whole):
    c.sendall(text.encode("latin1"))
    return read(c, done).decode("latin1")
def opened(q):
    c = conns[q["conn"]] = socket.create_connection((q["host"], q["port"]), 30)
    if not q["first"]: return True, c
    if q["port"] == 1080:
        got = exchange(c, q["first"], lambda g: len(g) >= 12)
        return len(got) == 12 and got[3] == "\0", c
    got = exchange(c, q["first"])
    return got.startswith("HTTP/1.1 200"), c
def do(q):
    try:
        c = conns.get(q["conn"])
        if c is None:
            ok, c = opened(q)
            if not ok: return "not opened"
        got = ""
        for text in q["texts"]: got = exchange(c, text)
        if q["last"]:
            c.sendall(q["last"].encode("latin1"))
            c.shutdown(socket.SHUT_WR)
        if q["last"] or q["rest"]: got += read(c, lambda g: False).decode("latin1")
        return got
    except OSError as e: return "error: %s" % e
    finally:
        if q["close"] and q["conn"] in conns: conns.pop(q["conn"]).close()
n = 0
while True:
    n += 1
    while not os.path.exists("in.%d" % n): time.sleep(0.002)
    with open("in.%d" % n) as f: q = json.load(f)
    if q["over"]: break
    got = [do({**q, "last": last}) for last in q["lasts"]]
    with open("out", "w") as f: json.dump(got, f)
    os.rename("out", "out.%d" % n)
`

// A question is what a probe is to do on a connection, which it opens where there is none.
type question struct {
	Conn  string   `json:"conn"`
	Host  string   `json:"host"`
	Port  int      `json:"port"`
	First string   `json:"first"` // to a proxy
	Texts []string `json:"texts"` // each waits for its answer
	Lasts []string `json:"lasts"` // after which nothing more comes, each on a connection of its own; "" for none
	Rest  bool     `json:"rest"`  // until the end
	Close bool     `json:"close"`
	Over  bool     `json:"over"`
}

// probe is a program in a session that a test talks to.
type probe struct {
	r       *rig
	dir     string
	session string
	n       int
}

// probe starts one.
func (r *rig) probe(rules ...client.RuleOf) *probe {
	r.t.Helper()
	return r.probeBeside("", rules...)
}

// probeBeside starts one in a worktree that has these rules of its own.
func (r *rig) probeBeside(worktree string, rules ...client.RuleOf) *probe {
	r.t.Helper()
	p := &probe{r: r, dir: r.scripts("probe.py", probing)}
	if worktree != "" {
		must(r.t, os.Mkdir(filepath.Join(p.dir, ".toold"), 0o755))
		must(r.t, os.WriteFile(filepath.Join(p.dir, ".toold/policy.toml"), []byte(worktree), 0o644))
	}
	p.session = r.session(client.SessionCreate{Worktree: client.Worktree{Source: p.dir, Mode: client.WorktreeBind}, Permission: rules})
	done := make(chan error, 1)
	go func() {
		input := json.RawMessage(`{"command":"python3 probe.py","timeout":600000}`)
		c, err := r.client.CreateCall(context.Background(), p.session, client.CallCreate{Tool: "bash", Input: input}, client.CallOptions{})
		if err == nil && c.Status != client.CallCompleted {
			err = fmt.Errorf("%s: %s", c.Status, c.Output)
		}
		done <- err
	}()
	r.t.Cleanup(func() {
		p.put(question{Over: true})
		if err := <-done; err != nil {
			r.t.Errorf("the probe: %v", err)
		}
	})
	return p
}

func (p *probe) put(q question) string {
	p.r.t.Helper()
	p.n++
	if q.Texts == nil {
		q.Texts = []string{}
	}
	if q.Lasts == nil {
		q.Lasts = []string{""}
	}
	name := filepath.Join(p.dir, "in")
	must(p.r.t, os.WriteFile(name, must1(json.Marshal(q)), 0o644))
	must(p.r.t, os.Rename(name, fmt.Sprintf("%s.%d", name, p.n)))
	return filepath.Join(p.dir, fmt.Sprintf("out.%d", p.n))
}

// ask waits for the answer of the probe.
func (p *probe) ask(q question) string {
	p.r.t.Helper()
	return p.answer(p.put(q))
}

func (p *probe) answer(file string) string {
	p.r.t.Helper()
	return p.answers(file)[0]
}

// answers are those to each of the last texts.
func (p *probe) answers(file string) (got []string) {
	p.r.t.Helper()
	testrig.Eventually(p.r.t, "the probe answers", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && json.Unmarshal(b, &got) == nil
	})
	for i, a := range got {
		if strings.Contains(a, "timed out") {
			p.r.t.Errorf("no answer and no end: %d, %q", i, a)
		}
	}
	return got
}

// by makes a question go a way out.
func (q question) by(way, host string, port int) question {
	to := fmt.Sprintf("%s:%d", host, port)
	switch way {
	case "transparent":
		q.Host, q.Port = host, port
	case "proxy":
		q.Host, q.Port = "127.0.0.1", 3128
	case "CONNECT":
		q.Host, q.Port, q.First = "127.0.0.1", 3128, connect(to)
	case "SOCKS":
		q.Host, q.Port, q.First = "127.0.0.1", 1080, latin1(socksTo(3, string([]byte{byte(len(host))})+host, uint16(port)))
	}
	return q
}

// waysOut are those of the tier.
func (r *rig) waysOut() []string {
	ways := []string{"proxy", "CONNECT", "SOCKS", "transparent"}
	if r.tier.relayed {
		return ways[:3]
	}
	return ways
}

// rules makes the rules for connections and requests anew, behind more lines of [network].
func (r *rig) rules(network, requests string, more ...string) {
	r.t.Helper()
	r.configure(strings.Join(more, "\n"))
	file := filepath.Join(r.dir, "config.toml")
	text, err := os.ReadFile(file)
	must(r.t, err)
	before, _, _ := strings.Cut(string(text), "[permission.network]\n")
	must(r.t, os.WriteFile(file, []byte(before+"[permission.network]\n"+network+"[permission.http]\n"+requests), 0o600))
	_, err = r.client.Reload(context.Background(), false)
	must(r.t, err)
}

// randomRules are lines of network and of http; bound is for who can only make things stricter.
func randomRules(random *rand.Rand, bound bool) (network, requests string) {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	port := func() string { return pick("", "", ":8080", ":9000", ":80", ":443", ":*") }
	lines := func(first string, n int, pattern func() string) string {
		seen := make(map[string]bool)
		for range n {
			if p := pattern(); !seen[p] {
				seen[p] = true
				first += fmt.Sprintf("%q = %q\n", p, pick("allow", "allow", "allow", "deny", "ask"))
			}
		}
		return first
	}
	first := "\"*:*\" = \"allow\"\n\"none.example:8080\" = \"allow\"\n\"none.example:9000\" = \"allow\"\n\"10.40.0.0/16:*\" = \"allow\"\n"
	never, least, more := pick("", "\"* http://*:*/never\" = \"deny\"\n"), 1, 4
	if bound {
		first, never, least, more = "", "", 0, 2
	}
	network = lines(first, random.IntN(more), func() string {
		return pick("one.rules.example", "*.rules.example", "*.one.rules.example", "two.rules.example", "8.8.6.0/24", "8.8.7.1", "10.40.0.1", "8.8.6.1") + port()
	})
	requests = lines(never, least+random.IntN(more), func() string {
		return pick("*", "GET", "POST") + " " + pick("http", "http", "*", "https", "https") + "://" + pick("*", "one.rules.example", "*.rules.example", "8.8.6.1", "10.40.0.1") + port() + pick("/*", "/hidden*", "/ok", "/ok/*", "/h?dden*", "/q?admin=1*")
	})
	return network, requests
}

// anyBytes answers requests, and whatever else comes.
func anyBytes(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(bound))
	br := bufio.NewReader(c)
	for {
		first, err := br.Peek(1)
		if err != nil {
			return
		}
		answer := "served\r\n\r\n"
		if first[0] == 'G' || first[0] == 'P' {
			q, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, q.Body)
			answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved"
		} else {
			_, _ = br.Discard(br.Buffered())
		}
		_, _ = io.WriteString(c, answer)
	}
}

// ruling is what rules say of what a random case sends, as they are explained.
type ruling struct {
	action  string // of all that is asked, the strictest
	unread  bool   // nobody looks at what the connection carries
	looked  bool   // somebody looks at how it begins
	named   bool   // nothing but TLS passes, to the name that was asked for
	network string
	http    string
}

// A sending is the random case of something that is sent by a way out.
type sending struct {
	host, way, what string // what: http, tls or raw
	port            int
}

func (c *sending) at() string { return fmt.Sprintf("%s:%d", c.host, c.port) }

// text is what is sent, and the request for http.
func (c *sending) text(t *testing.T, method, target string) string {
	switch c.what {
	case "tls":
		if net.ParseIP(c.host) != nil {
			return latin1(greeting(t, "")) // an address is no name
		}
		return latin1(greeting(t, c.host))
	case "raw":
		return "\x01binary\r\n\r\n"
	}
	if c.way == "proxy" {
		target = "http://" + c.at() + target
	}
	return method + " " + target + " HTTP/1.1\r\nHost: " + c.at() + "\r\nContent-Length: 0\r\n\r\n"
}

// latin1 are bytes as the probe takes them.
func latin1(bytes string) string {
	var b strings.Builder
	for _, c := range []byte(bytes) {
		b.WriteRune(rune(c))
	}
	return b.String()
}

// testRules: what is explained is what happens, by each way out, to requests, TLS and other bytes, on
// the first thing that is sent on a connection and on the second, between which the rules may have
// changed; for what is asked, as it was answered. The rules are those of the file, with lines of the
// tenant, of the session and of its worktree, and what was saved by answers.
func testRules(t *testing.T, r *rig) {
	cases := 6
	switch {
	case os.Getenv("TOOLD_TEST_LONG") != "":
		cases = 1000
	case r.tier.name == runc.name:
		cases = 40
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, a := range []string{"8.8.6.1", "8.8.7.1", "10.40.0.1"} {
		for _, port := range ruledPorts {
			t.Cleanup(testrig.Serve(r.listen(fmt.Sprintf("%s:%d", a, port)), anyBytes))
		}
	}
	own := []client.RuleOf{
		{Permission: "http", Pattern: "* http://two.rules.example:8080/q*", Action: "deny"},
		{Permission: "network", Pattern: "8.8.7.0/24:9000", Action: "deny"},
	}
	const tables = "[%[1]spermission.network]\n%[2]s[%[1]spermission.http]\n%[3]s"
	narrow := func(below string) string {
		network, requests := randomRules(random, true)
		return fmt.Sprintf(tables, below, network, requests)
	}
	for _, more := range must1(policy.ParseCeiling("session", []byte(narrow("")))) {
		own = append(own, client.RuleOf{Permission: more.Permission, Pattern: more.Pattern, Action: string(more.Action)})
	}
	ceiling, err := policy.CheckRules("session", own)
	must(t, err)
	worktree := narrow("")
	t.Logf("the session has %+v, its worktree\n%s", own, worktree)
	var network, requests string
	var stack *policy.Stack
	var saved []policy.Rule
	anew := func() {
		network, requests = randomRules(random, false)
		if random.IntN(4) == 0 { // what was allowed for good is taken back
			for _, rule := range saved {
				must(t, r.client.RevokeApproval(context.Background(), rule.Source))
			}
			saved = nil
		}
		if random.IntN(3) == 0 {
			requests += narrow("tenant.default.")
		}
		tls := []string{"tls = []", "tls = []", "tls = [9000]", "tls = [8080, 9000]", "tls = [80]"}[random.IntN(5)]
		r.rules(network, requests, tls)
		network = "[network]\n" + tls + "\n[permission.network]\n" + network // for who reads of a failure too
		set, err := policy.Parse("rules.toml", []byte(network+"[permission.http]\n"+requests))
		must(t, err)
		stack, err = set.Stack("build", "default")
		must(t, err)
		stack = stack.With(policy.Ceiling{Name: "session", Rules: ceiling}, policy.Ceiling{Name: "worktree", Rules: must1(policy.ParseCeiling("worktree", []byte(worktree)))}).Remember(saved)
	}
	t.Cleanup(func() { r.configure(""); r.ctl("reload") })
	anew()
	p := r.probeBeside(worktree, own...)
	said := make(map[string]bool) // by permission and pattern: an answer holds while the probe runs
	judged := func(c *ruling, permission, pattern, action string) {
		if action == "ask" {
			question := permission + " " + pattern
			if _, known := said[question]; !known {
				said[question] = random.IntN(3) > 0
			}
			if !said[question] {
				action = "deny"
			}
		}
		if c.action != "deny" && action != "allow" {
			c.action = action
		}
	}
	explained := func(c *ruling, tool, key, text string) {
		v, err := r.client.ExplainPolicy(context.Background(), client.PolicyExplain{Session: p.session, Tool: tool, Input: must1(json.Marshal(map[string]string{key: text}))})
		must(t, err)
		judged(c, tool, v.Requests[0].Pattern, v.Action)
	}
	// rule says what becomes of a sending; read: those on its connection were read before.
	rule := func(c *sending, request string, read bool) (all ruling) {
		all = ruling{action: "allow", network: network, http: requests}
		explained(&all, "network", "address", c.at())
		dialled := policy.Address(must1(endpoint.Parse(fmt.Sprintf("%s:%d", ruledHosts[c.host], c.port))))
		judged(&all, dialled.Permission, dialled.Pattern, string(stack.JudgeOne(&dialled).Action))
		how := stack.Reads(must1(endpoint.Parse(c.at())))
		tls := how.OnlyTLS
		only := !tls && (how.Only || c.port == 80)
		all.named = tls && c.way != "proxy"
		all.looked = c.way == "proxy" || tls || only || how.Requests || how.TLS != nil
		all.unread = c.way != "proxy" && !tls && !only && !how.Requests && (c.what == "http" || how.TLS == nil)
		passes := true
		switch c.what {
		case "raw":
			passes = !tls && !only
		case "tls":
			explained(&all, "http", "request", "GET https://"+c.at()+"/")
		default:
			if read || !all.unread {
				explained(&all, "http", "request", request)
			}
		}
		if !passes {
			all.action = "deny"
		}
		return all
	}
	// sent answers whoever is asked until the probe has an answer.
	sent := func(q question) string {
		file := p.put(q)
		testrig.Eventually(t, "the probe answers", func() bool {
			if _, err := os.Stat(file); err == nil {
				return true
			}
			list, err := r.client.ListApprovals(context.Background(), client.ApprovalQuery{Session: p.session})
			must(t, err)
			for _, a := range list.Items {
				answer := client.AnswerReject
				if said[a.Requests[0].Permission+" "+a.Requests[0].Pattern] {
					if answer = client.AnswerOnce; random.IntN(4) == 0 {
						answer = client.AnswerAlways
					}
				}
				got, err := r.client.AnswerApproval(context.Background(), a.ID, client.ApprovalAnswer{Answer: answer})
				if err != nil || got.Reply == nil { // it may be over
					continue
				}
				for _, rule := range got.Reply.Saved {
					saved = append(saved, policy.Rule{Permission: rule.Permission, Pattern: rule.Pattern, Action: policy.Allow, Source: rule.ID})
					stack = stack.Remember(saved[len(saved)-1:])
				}
			}
			return false
		})
		return p.answer(file)
	}
	hosts := []string{"one.rules.example", "deep.one.rules.example", "two.rules.example", "8.8.6.1", "10.40.0.1"}
	paths := []string{"/hidden", "/%68idden", "//hidden", "/ok", "/ok?", "/;/hidden", "/%2Fhidden", "/%2568idden", "/ok/x", "/ok%2fx", "/q?%61dmin=1", "/q?b=1", "/Ok;x"}
	var passed, cut, other int
	for i := range cases {
		if i > 0 {
			anew()
		}
		c := &sending{
			host: hosts[random.IntN(len(hosts))], port: ruledPorts[random.IntN(len(ruledPorts))], way: r.waysOut()[random.IntN(len(r.waysOut()))],
			what: []string{"http", "tls", "raw"}[random.IntN(3)],
		}
		if c.way == "proxy" {
			c.what = "http"
		}
		q := question{Conn: fmt.Sprint(i)}.by(c.way, strings.ToUpper(c.host[:1])+c.host[1:], c.port)
		var before ruling
		for n := range 2 {
			method, target := []string{"GET", "POST"}[random.IntN(2)], paths[random.IntN(len(paths))]
			q.Texts, q.Close = []string{c.text(t, method, target)}, n == 1
			is := rule(c, method+" http://"+c.at()+target, n == 1 && !before.unread)
			if n == 1 && (is.network != before.network || is.http != before.http) && (!before.looked && is.looked || before.unread && !is.unread || !before.named && is.named) {
				is.action = "deny" // what it carries was not looked at
			}
			answer := sent(q)
			got := strings.Contains(answer, "served") && (c.what != "http" || strings.HasPrefix(answer, "HTTP/1.1 200"))
			if want := is.action != "deny"; got != want && (n == 0 || is.action != "ask") { // what is open may be cut where it is asked about
				t.Errorf("seed %d, case %d, %d: %s %s of %+v passes: %t, and is explained as %s: %q\n%s%s\nbefore\n%s%s", seed, i, n, method, target, *c, got, is.action, answer, is.network, is.http, before.network, before.http)
			}
			if n == 0 && !got {
				break
			}
			if n == 1 {
				if !got {
					cut++
				}
				break
			}
			passed++
			if c.what != "http" {
				other++
			}
			if before = is; random.IntN(3) > 0 {
				anew()
			}
		}
	}
	t.Logf("%d cases: %d passed at first, %d of these not as requests, and %d not again; %d questions, %d saved", cases, passed, other, cut, len(said), len(saved))
	if cases >= 40 && passed == 0 || cases >= 1000 && (cut == 0 || other == 0 || len(said) == 0) {
		t.Errorf("of %d cases %d passed at first, and %d of these not again: the cases say nothing", cases, passed, cut)
	}
}

// testRevoked: what "always" has saved is taken back while connections are open.
func testRevoked(t *testing.T, r *rig) {
	ctx := context.Background()
	_ = r.trap("8.8.6.1:7000")
	r.serve("8.8.6.1:7080")
	r.rules("\"one.rules.example:*\" = \"ask\"\n\"none.example:7080\" = \"deny\"\n", "\"*\" = \"allow\"\n")
	t.Cleanup(func() { r.configure(""); r.ctl("reload") })
	p := r.probe()
	asked := func() *client.Approval {
		t.Helper()
		var a *client.Approval
		testrig.Eventually(t, "somebody is asked", func() bool {
			list, err := r.client.ListApprovals(ctx, client.ApprovalQuery{Session: p.session})
			if err != nil || len(list.Items) != 1 {
				return false
			}
			a = &list.Items[0]
			return true
		})
		return a
	}
	answer := func(a *client.Approval, with client.Answer) {
		t.Helper()
		_, err := r.client.AnswerApproval(ctx, a.ID, client.ApprovalAnswer{Answer: with})
		must(t, err)
	}
	// A tunnel of which the far side says something first.
	tunnel := question{Conn: "tunnel"}.by("CONNECT", "one.rules.example", 7000)
	tunnelled := p.put(tunnel)
	answer(asked(), client.AnswerAlways)
	if got := p.answer(tunnelled); got != "" {
		t.Fatalf("the tunnel: %q", got)
	}
	plain := question{Conn: "plain", Texts: []string{"GET http://one.rules.example:7080/a HTTP/1.1\r\nHost: x\r\n\r\n"}}.by("proxy", "", 0)
	first := p.put(plain)
	answer(asked(), client.AnswerAlways)
	for range 2 { // the second asks nobody
		if got := p.answer(first); !strings.Contains(got, "served one.rules.example:7080/a") {
			t.Fatalf("the request: %q", got)
		}
		first = p.put(plain)
	}
	_ = p.answer(first)
	saved, err := r.client.ListSavedApprovals(ctx, client.ApprovalQuery{Session: p.session})
	must(t, err)
	if len(saved.Items) != 2 {
		t.Fatalf("saved: %+v", saved.Items)
	}
	rest := p.put(question{Conn: "tunnel", Rest: true})
	for _, s := range saved.Items {
		must(t, r.client.RevokeApproval(ctx, s.ID))
	}
	// It ends, with what the far side had said.
	if got := p.answer(rest); strings.TrimPrefix(got, "trapped\n") != "" && !strings.HasPrefix(got, "error: ") {
		t.Errorf("the tunnel's rest: %q", got)
	}
	again := p.put(plain)
	answer(asked(), client.AnswerReject)
	if got := p.answer(again); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("the next request: %q", got)
	}
}

// testNetworkGone: a reload that gives no network holds for connections that are open, of each way out,
// and for those that would be opened; one that gives it again, for new ones.
func testNetworkGone(t *testing.T, r *rig) {
	const host = "one.rules.example"
	_ = r.trap("8.8.6.1:7000")
	r.serve("8.8.6.1:7080")
	r.rules("\""+host+":7000\" = \"allow\"\n\""+host+":7080\" = \"allow\"\n", "\"*\" = \"allow\"\n")
	t.Cleanup(func() { r.configure(""); r.ctl("reload") })
	p := r.probe()
	questions := make(map[string]question)
	for _, way := range r.waysOut() {
		target := "/a"
		if way == "proxy" {
			target = "http://" + host + ":7080/a"
		}
		questions[way] = question{Conn: way, Texts: []string{"GET " + target + " HTTP/1.1\r\nHost: " + host + ":7080\r\n\r\n"}}.by(way, host, 7080)
	}
	served := func(when string, conn func(way string) string, want bool) {
		t.Helper()
		for way, q := range questions {
			q.Conn = conn(way)
			if got := p.ask(q); strings.Contains(got, "served "+host+":7080/a") != want {
				t.Errorf("%s, by %s: %q", when, way, got)
			}
		}
	}
	same := func(way string) string { return way }
	other := func(n string) func(string) string { return func(way string) string { return way + n } }
	served("before", same, true)
	served("before, again", same, true)
	if got := p.ask(question{Conn: "tunnel"}.by("CONNECT", host, 7000)); got != "" {
		t.Fatalf("the tunnel: %q", got)
	}
	rest := p.put(question{Conn: "tunnel", Rest: true})
	file := filepath.Join(r.dir, "config.toml")
	with, err := os.ReadFile(file)
	must(t, err)
	without := strings.Replace(string(with), "mode = \"rules\"", "mode = \"none\"", 1)
	must(t, os.WriteFile(file, []byte(without), 0o600))
	r.ctl("reload")
	if got := p.answer(rest); strings.TrimPrefix(got, "trapped\n") != "" && !strings.HasPrefix(got, "error: ") {
		t.Errorf("the tunnel's rest: %q", got)
	}
	served("on what is open", same, false)
	served("on a new connection", other("2"), false)
	must(t, os.WriteFile(file, with, 0o600))
	r.ctl("reload")
	served("when there is a network again", other("3"), true)
}

// heard are the requests that arrive at a server that takes them as they come.
type heard struct {
	mu       sync.Mutex // guards requests
	requests []string
}

func (h *heard) serve(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(bound))
	br := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		h.mu.Lock()
		h.requests = append(h.requests, q.RequestURI)
		h.mu.Unlock()
		_, _ = io.Copy(io.Discard, q.Body)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved")
	}
}

func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.requests
	h.requests = nil
	return all
}

// hiddenTo says whether some server takes a target for what is below /hidden: one that undoes escapes
// up to three times, in any order with the rest.
func hiddenTo(target string) bool {
	for range 4 {
		text, _, _ := strings.Cut(strings.ReplaceAll(target, `\`, "/"), "?")
		parts := strings.Split(text, "/")
		for i := range parts {
			parts[i], _, _ = strings.Cut(parts[i], ";")
		}
		if strings.HasPrefix(path.Clean("/"+strings.Join(parts, "/")), "/hidden") {
			return true
		}
		next, err := url.PathUnescape(target)
		if err != nil {
			return false
		}
		target = next
	}
	return false
}

// testSpellings: a deny of a path on a port holds for each spelling that some server takes for it,
// on the second request of a connection and, on runc, on the first, by each way out.
func testSpellings(t *testing.T, r *rig) {
	const host, at = "spelled.rules.example", "spelled.rules.example:8080"
	h := &heard{}
	t.Cleanup(testrig.Serve(r.listen("8.8.6.9:8080"), h.serve))
	r.rules("\""+at+"\" = \"allow\"\n", "\"* http://"+at+"/hidden*\" = \"deny\"\n")
	t.Cleanup(func() { r.configure(""); r.ctl("reload") })
	p := r.probe()
	var texts []string
	add := func(text ...string) { texts = append(texts, text...) }
	for _, target := range []string{
		"/hidden", "/hidden/x", "/hidden?x", "/%68idden", "/%68%69%64%64%65%6E", "/%2568idden", "/%252568idden", "/x/../hidden", "/x/%2e%2e/hidden", "/x/%2E./hidden", "/x/%252e%252e/hidden",
		"/x%2f..%2fhidden", "/x%252f..%252fhidden", "/x%5c..%5chidden", "/x\\..\\hidden", "/./hidden", "/%2e/hidden", "//hidden", "///x/..//hidden", "/%2fhidden", "/%252Fhidden", "/;a/hidden",
		"/x/..;/hidden", "/x/..;a=b/hidden", "/x/..%3b/hidden", "/x/..%253b/hidden", "/\\hidden", "/%5chidden", "/x/y/../../hidden", "/hidden;x", "/hidden%00", "/../hidden", "/x/../../../hidden",
	} {
		add(get(target, at))
	}
	for _, method := range []string{"POST", "OPTIONS", "TRACE", "QUERY", "get", "X"} {
		add(method + " /hidden HTTP/1.1\r\nHost: " + at + "\r\n\r\n")
	}
	for _, name := range []string{"SPELLED.Rules.Example:8080", "spelled.rules.example.:8080", "spelled.rules.example", "spelled.rules.example:08080", "8.8.6.9:8080", "none.example:8080", ""} {
		add(get("/hidden", name), get("http://"+name+"/hidden", at))
	}
	smuggled := get("/hidden", at)
	chunked := func(coding, body string) string {
		return "POST /fine HTTP/1.1\r\nHost: " + at + "\r\n" + coding + "\r\n" + body
	}
	add(
		"GET http://"+at+"/hidden HTTP/1.1\r\nHost: none.example\r\n\r\n", "GET HTTP://"+strings.ToUpper(at)+"/hidden HTTP/1.1\r\n\r\n", "GET /hidden HTTP/1.0\r\n\r\n", "GET /hidden\r\n\r\n", "GET /hidden\n\n",
		"GET\t/hidden HTTP/1.1\r\nHost: "+at+"\r\n\r\n", "GET  /hidden HTTP/1.1\r\nHost: "+at+"\r\n\r\n", "\r\n\r\nGET /hidden HTTP/1.1\r\nHost: "+at+"\r\n\r\n", "GET /hidden HTTP/1.1\nHost: "+at+"\n\n",
		"GET /hidden HTTP/9.9\r\nHost: "+at+"\r\n\r\n", "GET hidden HTTP/1.1\r\nHost: "+at+"\r\n\r\n", get("/hidden", at, "Host: "+at+"\r\n"), get("/hidden", "none.example", "Host: "+at+"\r\n"), get("/hidden", at, " folded: x\r\n"),
		get("/hidden", at, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"), get("/fine", at, "Connection: Upgrade\r\nUpgrade: h2c\r\n")+smuggled,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", get("/hidden", at, "Connection: Upgrade\r\nUpgrade: websocket\r\n"), get("/fine", at, "X-Original-URL: /fine\r\n")+smuggled,
		chunked("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+smuggled), chunked("Transfer-Encoding: chunked\r\nContent-Length: 400\r\n", "0\r\n\r\n"+smuggled),
		chunked("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"+smuggled), chunked("Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n", smuggled), chunked("Transfer-Encoding: \x0bchunked\r\nContent-Length: 0\r\n", smuggled),
		chunked("Transfer-Encoding : chunked\r\nContent-Length: 0\r\n", smuggled), chunked("Transfer-Encoding:\r\n chunked\r\nContent-Length: 0\r\n", smuggled), chunked("Transfer-Encoding: chunked\r\n", "0;x=\r\n\r\n"+smuggled),
		chunked("Transfer-Encoding: chunked\r\n", "1\nx\n0\n\n"+smuggled), chunked("Transfer-Encoding: chunked\r\n", "0x0\r\n\r\n"+smuggled), chunked("Transfer-Encoding: chunked\r\n", "0\r\nHost: x\r\n\r\n"+smuggled),
		chunked("Content-Length: 0\r\nContent-Length: 10\r\n", smuggled), chunked("Content-Length: 0, 0\r\n", smuggled), chunked("Content-Length: -0\r\n", smuggled), chunked("", smuggled), chunked("Expect: 100-continue\r\nContent-Length: 0\r\n", smuggled),
	)
	n, firsts := 0, 1
	if r.tier.name == runc.name {
		firsts = 2
	}
	for _, way := range r.waysOut() {
		fine := get("/fine", at)
		if way == "proxy" {
			fine = strings.Replace(fine, "/fine", "http://"+at+"/fine", 1)
		}
		fine = strings.Replace(fine, "Connection: close\r\n", "", 1)
		if got := p.ask(question{Conn: "control", Texts: []string{fine, fine}, Close: true}.by(way, host, 8080)); !strings.HasSuffix(got, "served") {
			t.Fatalf("the control by %s: %q", way, got)
		}
		sent := slices.Clone(texts)
		for i, text := range sent {
			if way == "proxy" { // to the host, but for what is to another one
				text = strings.ReplaceAll(strings.ReplaceAll(text, " /", " http://"+at+"/"), "\t/", "\thttp://"+at+"/")
			}
			sent[i] = text
		}
		for _, before := range [][]string{{fine}, nil}[:firsts] {
			q := question{Conn: "attempt", Texts: before, Lasts: sent, Close: true}.by(way, host, 8080)
			for i, got := range p.answers(p.put(q)) {
				if n++; before != nil && !strings.Contains(got, "served") {
					t.Errorf("by %s, before %q: %q", way, sent[i], got)
				}
			}
			for _, target := range h.take() {
				if hiddenTo(target) {
					t.Errorf("by %s, after %d others: %q arrived", way, len(before), target)
				}
			}
		}
	}
	t.Logf("%d attempts", n)
}
