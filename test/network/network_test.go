package network

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// TestNetwork: one daemon for all that does not kill it.
func TestNetwork(t *testing.T) {
	for _, on := range tiers {
		t.Run(on.name, func(t *testing.T) { testNetwork(t, newRig(t, on)) })
	}
}

func testNetwork(t *testing.T, r *rig) {
	for _, tt := range []struct {
		name        string
		transparent bool // it connects without a proxy
		test        func(*testing.T, *rig)
	}{
		{"allowed", true, testAllowed},
		{"denied", true, testDenied},
		{"proxied", false, testProxied},
		{"asked", false, testAsked},
		{"guessed", false, testGuessed},
		{"waiting", true, testWaiting},
		{"none", false, testNone},
		{"explain", false, testExplain},
		{"learn", false, testLearn},
		{"reload", true, testReload},
		{"addresses", false, testAddresses},
		{"half-open", false, testHalfOpen},
		{"names", true, testNames},
		{"ports", true, testPorts},
		{"rows", false, testRows},
		{"other", false, testOther},
		{"redirects", false, testRedirects},
		{"large", false, testLarge},
		{"tenant", false, testTenant},
		{"rules", false, testRules},
		{"revoked", false, testRevoked},
		{"gone", false, testNetworkGone},
		{"spellings", false, testSpellings},
	} {
		if tt.transparent && r.tier.relayed {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			r.t = t
			tt.test(t, r)
		})
	}
	// In none of the tests may a byte have gone where no line lets it.
	if n := r.reached.Load(); n != 0 {
		t.Errorf("%d connections reached an address that no rule allows", n)
	}
}

// testAllowed: without a variable and without a proxy; by name, by address, and by both
// proxies.
func testAllowed(t *testing.T, r *rig) {
	s := r.session(client.SessionCreate{})
	got := r.bash(s, `env | grep -i proxy; for p in "" "-x http://127.0.0.1:3128" "-x socks5h://127.0.0.1:1080"; do
		curl -sS $p http://allowed.example/a http://allowed.example:8080/b http://10.20.0.1/c || exit; done`)
	has(t, got, "served allowed.example/a\n", "served allowed.example:8080/b\n", "served 10.20.0.1/c\n")
	if n := strings.Count(got.Output, "served"); n != 9 || got.IsError || got.Metadata["network"] != nil {
		t.Errorf("%d answers, metadata %v:\n%s", n, got.Metadata, got.Output)
	}
	log := r.ctl("network", "log", s)
	if n := strings.Count(log, "  "+got.ID+"  allow "); n < 9 {
		t.Errorf("%d lines of the log are of the call %s:\n%s", n, got.ID, log)
	}
	n, err := r.client.SessionNetwork(context.Background(), s)
	if err != nil || n.Mode != client.NetworkRules || len(n.Hosts) < 3 || n.LeftOut != 0 {
		t.Errorf("%+v, %v", n, err)
	}
}

// testPorts: what listens for the rules takes ports from the session's own servers, which the brief
// and the result of such a server name.
func testPorts(t *testing.T, r *rig) {
	s := r.session(client.SessionCreate{})
	got := r.bash(s, "timeout 60 python3 -m http.server 8080")
	has(t, got, "Address already in use", "(in this session no program can listen on ports 21, 22, ", " 8080")
	if got.Metadata["exit_code"] != float64(1) {
		t.Errorf("%v", got.Metadata)
	}
	brief, err := r.client.Brief(context.Background(), s)
	if err != nil || !strings.Contains(brief, "No program can listen on ports 21, 22, ") || !strings.Contains(brief, " 8080") {
		t.Errorf("%s, %v", brief, err)
	}
	free := r.bash(s, "python3 -m http.server 18080 & for i in $(seq 300); do curl -sS http://127.0.0.1:18080/ && exit; sleep 0.1; done; exit 1")
	if free.IsError || strings.Contains(free.Output, "no program can listen") {
		t.Errorf("another port: %s", free.Output)
	}
}

// testDenied: the answer of the call names host and rule, and nothing leaves the host.
func testDenied(t *testing.T, r *rig) {
	s := r.session(client.SessionCreate{})
	got := r.bash(s, `for u in http://denied.example/ https://denied.example/ http://10.30.0.1/ http://rebound.example/ \
		http://allowed.example/secret/x http://169.254.169.254/ http://denied.example:8080/; do curl -sS -m 20 $u; echo " $? $u"; done`)
	has(t, got,
		"network: GET http://denied.example/ was denied by default (network \"*\")\n",
		"config.toml:", `(http "* http://allowed.example/secret/*"): secrets stay there`,
		"rebound.example:80: it leads to what is not a public address, and no line of the rules names it",
	)
	lines := strings.Split(strings.TrimSpace(got.Output), "\n")
	tail := lines[max(0, len(lines)-5):]
	for _, l := range tail {
		if !strings.HasPrefix(l, "network: ") {
			t.Errorf("the last lines are not all of the network: %q", tail)
		}
	}
	if !strings.Contains(tail[4], "more: toolctl network log)") {
		t.Errorf("the last line does not count the others: %q", tail[4])
	}
	if list, ok := got.Metadata["network"].([]any); !ok || len(list) != 5 {
		t.Errorf("metadata %v", got.Metadata["network"])
	}
	// Control: what listens at the refused address answers where a line lets it.
	before := r.reached.Load()
	open := r.session(client.SessionCreate{Permission: []client.RuleOf{{Permission: "network", Pattern: "10.20.0.1", Action: "deny"}}})
	if got := r.bash(open, "curl -sS http://allowed.example/"); !strings.Contains(got.Output, "was denied by session rule 1\n") || strings.Contains(got.Output, "10.20.0.1") {
		t.Errorf("a session's own rule does not narrow: %s", got.Output)
	}
	if r.reached.Load() != before {
		t.Error("an address that is denied was dialled")
	}
}

// testAsked: a connection waits for its answer and goes on, or does not.
func testAsked(t *testing.T, r *rig) {
	s := r.session(client.SessionCreate{})
	for _, tt := range []struct {
		answer client.Answer
		want   string
	}{
		{client.AnswerOnce, "served asked.example/x\n"},
		{client.AnswerReject, "network: asked.example:80 was denied by "},
		{client.AnswerAlways, "served asked.example/x\n"},
	} {
		type ended struct {
			call *client.Call
			err  error
		}
		done := make(chan ended, 1)
		go func() {
			// The second time nobody is asked: an answer is for the call.
			c, err := r.try(s, "curl -sS http://asked.example/x; curl -sS http://asked.example/x # "+string(tt.answer))
			done <- ended{c, err}
		}()
		var a client.Approval
		testrig.Eventually(t, "the connection is asked about", func() bool {
			list, err := r.client.ListApprovals(context.Background(), client.ApprovalQuery{})
			if err != nil || len(list.Items) == 0 {
				return false
			}
			a = list.Items[0]
			return true
		})
		if len(a.Requests) != 1 || a.Requests[0].Permission != "network" || a.Requests[0].Pattern != "asked.example:80" || a.Requests[0].Save != "asked.example" {
			t.Errorf("asked %+v", a)
		}
		_, err := r.client.AnswerApproval(context.Background(), a.ID, client.ApprovalAnswer{Answer: tt.answer, Message: map[bool]string{true: "no"}[tt.answer == client.AnswerReject]})
		must(t, err)
		e := <-done
		must(t, e.err)
		has(t, e.call, tt.want)
		if e.call.ID != a.CallID {
			t.Errorf("the approval is of %s, the call is %s", a.CallID, e.call.ID)
		}
	}
	// It was saved for the session.
	has(t, r.bash(s, "curl -sS http://asked.example/y"), "served asked.example/y\n")
}

// testGuessed: of two running calls a connection is asked about for the one that wants it, where that is
// known, and else for the older, with both of them named.
func testGuessed(t *testing.T, r *rig) {
	ctx := context.Background()
	s := r.session(client.SessionCreate{})
	running := func(n int) (ids []string) { // the oldest first
		t.Helper()
		testrig.Eventually(t, fmt.Sprintf("%d calls run", n), func() bool {
			list, err := r.client.ListCalls(ctx, s, client.CallQuery{})
			must(t, err)
			ids = nil
			for _, c := range list.Items {
				if c.Status == client.CallRunning {
					ids = append(ids, c.ID)
				}
			}
			return len(ids) == n
		})
		slices.Sort(ids)
		return ids
	}
	waits := r.calling(s, "until [ -e /tmp/over ]; do sleep 0.05; done")
	older := running(1)[0]
	wants := r.calling(s, "curl -sS http://asked.example/guessed; touch /tmp/over")
	all := running(2)
	var a client.Approval
	testrig.Eventually(t, "the connection is asked about", func() bool {
		list, err := r.client.ListApprovals(ctx, client.ApprovalQuery{Session: s})
		if err != nil || len(list.Items) == 0 {
			return false
		}
		a = list.Items[0]
		return true
	})
	others, guessed := a.Metadata["calls"]
	switch {
	case guessed != r.tier.relayed && r.tier.name != docker.name: // an Engine may have its own cgroups
		t.Errorf("it is a guess: %t; %+v", guessed, a)
	case guessed && (a.CallID != older || fmt.Sprint(others) != fmt.Sprint(all)):
		t.Errorf("asked for %s, with %v; want %s, with %v", a.CallID, others, older, all)
	case !guessed && a.CallID != all[1]:
		t.Errorf("asked for %s, and %s wants it", a.CallID, all[1])
	}
	_, err := r.client.AnswerApproval(ctx, a.ID, client.ApprovalAnswer{Answer: client.AnswerOnce})
	must(t, err)
	if c := <-wants; c == nil || !strings.Contains(c.Output, "served asked.example/guessed") {
		t.Errorf("%+v", c)
	}
	if c := <-waits; c == nil || c.IsError {
		t.Errorf("%+v", c)
	}
}

// testWaiting: the time of a call stands still while its connection waits for an answer, and
// goes on after that; limits.wall ends it all the same.
func testWaiting(t *testing.T, r *rig) {
	wall := client.Duration(12 * time.Second)
	s := r.session(client.SessionCreate{Limits: client.Limits{Wall: wall}})
	call := func(command string) <-chan *client.Call {
		done := make(chan *client.Call, 1)
		go func() {
			input, err := json.Marshal(map[string]any{"command": command})
			if err != nil {
				t.Error(err)
			}
			c, err := r.client.CreateCall(context.Background(), s, client.CallCreate{Tool: "bash", Input: input, TimeoutMillis: 2000}, client.CallOptions{})
			if err != nil {
				t.Errorf("%s: %v", command, err)
				c = &client.Call{}
			}
			done <- c
		}()
		return done
	}
	asked := func(of string) (a client.Approval) {
		testrig.Eventually(t, of, func() bool {
			list, err := r.client.ListApprovals(context.Background(), client.ApprovalQuery{Session: s})
			if err != nil || len(list.Items) == 0 {
				return false
			}
			a = list.Items[0]
			return true
		})
		return a
	}
	well, late := "curl -sS http://asked.example/x", "curl -sS http://asked.example/x; sleep 100"
	for _, command := range []string{well, late} {
		done := call(command)
		a := asked("the connection of " + command + " is asked about")
		// A call with as much time that began later is over: so is the time that this one had.
		if other := <-call("sleep 100"); other.Metadata["reason"] != "timeout" {
			t.Fatalf("a call that does not wait ended with %v", other.Metadata)
		}
		_, err := r.client.AnswerApproval(context.Background(), a.ID, client.ApprovalAnswer{Answer: client.AnswerOnce})
		must(t, err)
		got := <-done
		has(t, got, "served asked.example/x\n")
		if want := map[string]any{well: "exit", late: "timeout"}[command]; got.Metadata["reason"] != want {
			t.Errorf("%s ended with %v, want the reason %v", command, got.Metadata, want)
		}
	}
	done := call(well)
	a := asked("it is asked about a third time")
	if got := <-done; got.Metadata["reason"] != "timeout" {
		t.Errorf("a call that nobody answers ended with %v", got.Metadata)
	}
	if _, err := r.client.AnswerApproval(context.Background(), a.ID, client.ApprovalAnswer{Answer: client.AnswerOnce}); err == nil {
		t.Error("an approval of a call that is over takes an answer")
	}
}

// testNone: a session can be stricter, and a tenant is as it is told.
func testNone(t *testing.T, r *rig) {
	s := r.session(client.SessionCreate{Network: client.Network{Mode: client.NetworkNone}})
	got := r.bash(s, "curl -sS -m 20 http://allowed.example/; curl -sS -m 20 http://10.20.0.1/; curl -sS -x http://127.0.0.1:3128 http://allowed.example/; env")
	has(t, got, "GOPROXY=off")
	if strings.Contains(got.Output, "served") {
		t.Errorf("without a network: %s", got.Output)
	}
	c := client.New(client.Options{Socket: testrig.Socket(r.dir), Tenant: "closed"})
	defer c.Close()
	closed, err := c.CreateSession(context.Background(), client.SessionCreate{})
	if err != nil || closed.Network.Mode != client.NetworkNone {
		t.Errorf("%+v, %v", closed, err)
	}
	if _, err := c.CreateSession(context.Background(), client.SessionCreate{Network: client.Network{Mode: "proxy"}}); err == nil {
		t.Error("an unknown mode is taken")
	}
}

func testExplain(t *testing.T, r *rig) {
	s := r.session(client.SessionCreate{})
	if got := r.ctl("policy", "explain", "network", "Allowed.Example.:443", "--session", s); !strings.Contains(got, "network: allow") {
		t.Error(got)
	}
	if got := r.ctl("policy", "explain", "http", "GET http://allowed.example/x"); !strings.Contains(got, "http: allow") {
		t.Error(got)
	}
	if got := r.ctl("session", "show", s); !strings.Contains(got, "network") || !strings.Contains(got, "rules") {
		t.Error(got)
	}
}

// testLearn: what learn prints lets a fresh session do the same, and nothing else.
func testLearn(t *testing.T, r *rig) {
	const build = "curl -sSf http://learned.example/a && curl -sSf http://learned.example:8080/b"
	r.configure("learn = true")
	r.ctl("reload")
	s := r.session(client.SessionCreate{})
	if got := r.bash(s, build); got.IsError {
		t.Fatalf("with learn: %s", got.Output)
	}
	rules := r.ctl("network", "learn", s)
	r.configure("")
	r.ctl("reload")
	if got := r.bash(r.session(client.SessionCreate{}), build); !got.IsError {
		t.Fatalf("without the rules the build passes: %s", got.Output)
	}
	// What was learned stands in the place of the rules for connections.
	r.permit("", func(string) string {
		return strings.TrimPrefix(rules, "[permission.network]\n") + "\"10.20.0.0/16:*\" = \"allow\"\n"
	})
	fresh := r.session(client.SessionCreate{})
	if got := r.bash(fresh, build); got.IsError {
		t.Errorf("by the rules that were learned:\n%s\n%s", rules, got.Output)
	}
	if got := r.bash(fresh, "curl -sSf http://other.example/"); !got.IsError {
		t.Errorf("the rules that were learned allow more:\n%s\n%s", rules, got.Output)
	}
	r.configure("")
	r.ctl("reload")
}

// testReload: a port that a reload names is listened at in sessions that run, and so is what it
// says of TLS.
func testReload(t *testing.T, r *rig) {
	const get = "curl -sS -m 20 http://allowed.example:12345/x"
	r.serve(open + ":12345")
	s := r.session(client.SessionCreate{})
	if got := r.bash(s, get); !got.IsError {
		t.Errorf("before a line names the port: %s", got.Output)
	}
	rules := func(more string) {
		r.permit(more, func(lines string) string { return "\"allowed.example:12345\" = \"allow\"\n" + lines })
	}
	rules("")
	has(t, r.bash(s, get), "served allowed.example:12345/x\n")
	rules("tls = [12345]\n")
	has(t, r.bash(s, get), "on port 12345 only TLS passes")
	r.configure("")
	r.ctl("reload")
}

// TestKill kills the daemon under connections: no program of the session gets a port of its
// listeners, the call goes on, and new connections work when the next daemon is there.
func TestKill(t *testing.T) {
	for _, on := range transparent {
		t.Run(on.name, func(t *testing.T) { testKill(t, newRig(t, on)) })
	}
}

func testKill(t *testing.T, r *rig) {
	work := filepath.Join(r.dir, "work")
	must(t, os.Mkdir(work, 0o777))
	must(t, os.Chmod(work, 0o777))
	s := r.session(client.SessionCreate{Worktree: client.Worktree{Source: work, Mode: client.WorktreeBind}})
	must(t, os.WriteFile(filepath.Join(work, "run.py"), []byte(`
import os, socket, time, urllib.request
def served():
    # One that waits in the listener's queue would live on with the next daemon: an answer shows that this one has it.
    h = socket.create_connection(("allowed.example", 8080), 60)
    h.sendall(b"GET /held HTTP/1.1\r\nHost: allowed.example:8080\r\n\r\n")
    if not h.recv(1): raise OSError("ended without an answer")
    return h
held = [served() for _ in range(100)]
def step(name, until):
    open(name, "w").close()
    while not os.path.exists(until): time.sleep(0.01)
step("open", "killed")
for port in (8080, 3128, 1080):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try: s.bind(("0.0.0.0", port)); s.listen(); print("took", port)
    except OSError as e: print("refused", port, e.strerror)
step("tried", "started")
print(urllib.request.urlopen("http://allowed.example:8080/again", timeout=30).read().decode())
broken = 0
for h in held:
    try:
        while h.recv(4096): pass
        broken += 1
    except TimeoutError: print("still open", h.getsockname())
    except OSError: broken += 1
print("broken", broken)
`), 0o644))
	go func() { _, _ = r.try(s, "python3 -u run.py") }() // its client goes with the daemon
	there := func(name string) func() bool {
		return func() bool { _, err := os.Stat(filepath.Join(work, name)); return err == nil }
	}
	testrig.Eventually(t, "100 connections are open", there("open"))
	must(t, r.Kill())
	must(t, os.WriteFile(filepath.Join(work, "killed"), nil, 0o644))
	testrig.Eventually(t, "the ports were tried", there("tried"))
	r.start()
	must(t, os.WriteFile(filepath.Join(work, "started"), nil, 0o644))
	var got *client.Call
	testrig.Eventually(t, "the call ends", func() bool {
		list, err := r.client.ListCalls(context.Background(), s, client.CallQuery{})
		if err != nil || len(list.Items) != 1 {
			return false
		}
		got = &list.Items[0]
		return got.Finished()
	})
	has(t, got, "refused 8080", "refused 3128", "refused 1080", "served allowed.example:8080/again", "broken 100")
	if got.IsError || strings.Contains(got.Output, "took") {
		t.Errorf("%s: %s", got.Status, got.Output)
	}
}

// testProxied: by the proxies, which the usual variables name where there is no other way.
func testProxied(t *testing.T, r *rig) {
	got := r.bash(r.session(client.SessionCreate{}), `curl -sS http://allowed.example/a; curl -sS http://allowed.example/secret/x
		curl -sS -x socks5h://127.0.0.1:1080 http://allowed.example:8080/b; curl -sS https://denied.example/`)
	has(t, got, "served allowed.example/a\n", "served allowed.example:8080/b\n", "secrets stay there", `network: denied.example:443 was denied by default (network "*")`)
}
