package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/approval"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/endpoint"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
)

// TestNetworkThatCannotBe: where the driver's sandboxes can have none, one that asks is
// refused, and one that does not ask is told.
func TestNetworkThatCannotBe(t *testing.T) {
	h := newHouse(t)
	h.set.Network.Mode = client.NetworkRules
	h.open()
	_, err := h.m.Create(t.Context(), root, client.SessionCreate{Network: client.Network{Mode: client.NetworkRules}})
	if codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("asked for: %v", err)
	}
	s := h.create(root, client.SessionCreate{})
	told := func(n string) bool { return strings.HasPrefix(n, "network: rules are not possible") }
	if s.Network.Mode != client.NetworkNone || !slices.ContainsFunc(s.Notes, told) {
		t.Errorf("%+v, notes %q", s.Network, s.Notes)
	}
	if s := h.create(root, client.SessionCreate{Network: client.Network{Mode: client.NetworkNone}}); slices.ContainsFunc(s.Notes, told) {
		t.Errorf("one that wants none is told: %q", s.Notes)
	}
}

// TestReplayConnections: other rules judge what was reached, each host once.
func TestReplayConnections(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	for _, r := range []client.NetworkRecord{
		{Permission: "network", To: "api.example.com:443", Verdict: "allow", Rule: "old.toml:1", Up: 5, Down: 7},
		{Permission: "network", To: "api.example.com:443", Verdict: "allow", Rule: "old.toml:1", Up: 5, Down: 7, Error: "reset", LeftOut: 4},
		{Permission: "network", To: "other.example:443", Verdict: "deny", Rule: "default"},
		{Permission: "network", To: "same.example:443", Verdict: "allow", Rule: "old.toml:2"},
		{Permission: "http", To: "GET http://same.example/a", Verdict: "allow", Rule: "default"},
		{Permission: "network", To: "no host", Verdict: "deny"},
		{Permission: "http", To: "GET http://same.example:8080/a", Verdict: "allow", Rule: "default"},
		{Permission: "http", To: "GET http://tls.example:443/a", Verdict: "allow", Rule: "default"}, // by the proxy, once
	} {
		e := event.New(client.EventNetworkAllowed, s.Tenant, s.ID, "call_x", r)
		if err := h.m.store.Write(func(tx *store.Tx) error { tx.AddEvent(e); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	got, err := h.replayer().Replay(t.Context(), root, client.PolicyReplay{
		Name: "new.toml", Session: s.ID, Tenant: s.Tenant,
		Rules: "[permission.network]\n\"*.example\" = \"allow\"\n\"*.example.com\" = \"ask\"\n[permission.http]\n\"* http://same.example/*\" = \"deny\"\n\"* http://same.example:8080/*\" = \"ask\"\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range got.Changes {
		all = append(all, c.Tool+" "+string(c.Input)+" "+c.Was+" "+c.Now+" "+c.NowRule)
	}
	want := []string{
		`network {"address":"api.example.com:443"} allow ask new.toml:3`,
		`network {"address":"other.example:443"} deny allow new.toml:2`,
		`http {"request":"GET http://same.example/a"} allow deny new.toml:5`,
		`http {"request":"GET http://same.example:8080/a"} allow ask new.toml:6`,
		`http {"request":"GET http://tls.example:443/a"} allow deny [network] tls`,
	}
	if !slices.Equal(all, want) || got.Calls != 6 {
		t.Errorf("%d judged, changes\n%s\nwant\n%s", got.Calls, strings.Join(all, "\n"), strings.Join(want, "\n"))
	}
	sum, err := h.m.Networks.Network(t.Context(), alice, s.ID)
	if err != nil || len(sum.Hosts) != 7 || sum.Hosts[0].Count != 2 || sum.Hosts[0].Failed != 1 || sum.Hosts[0].Up != 10 || sum.LeftOut != 4 {
		t.Errorf("%+v, %v", sum, err)
	}
	if _, err := h.m.Networks.Network(t.Context(), bob, s.ID); codeOfErr(err) != client.CodeNotFound {
		t.Errorf("another tenant's: %v", err)
	}
}

// TestAskedConnection: a connection that waits for an answer passes when new rules allow it, also
// in a session that chose among the tools.
func TestAskedConnection(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, "[permission]\nbash = \"allow\"\nnetwork = \"ask\"\n")
	h.open()
	s := h.create(alice, client.SessionCreate{Tools: []string{"bash"}})
	c := h.background(s.ID, "hold")
	to, err := endpoint.Parse("example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	calls, err := h.m.Calls(t.Context(), alice, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	passes := make(chan policy.Verdict, 1)
	go func() {
		passes <- calls.Outgoing(t.Context(), &call.Outgoing{Request: policy.Connection(to), Calls: []string{c.ID}, Exact: true})
	}()
	testrig.Eventually(t, "somebody is asked", func() bool { return len(h.pending()) == 1 })
	h.reload(func(s *Settings) { s.Policy = rules(t, "[permission]\nnetwork = \"allow\"\n") })
	if v := <-passes; v.Action != policy.Allow {
		t.Errorf("%+v", v)
	}
}

// TestAllowedOnceIsShared: an answer of once is for all calls of the session until the call ends
// that it was given for, as sockets can be passed on, and the question says so.
func TestAllowedOnceIsShared(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, "[permission]\nbash = \"allow\"\nnetwork = \"ask\"\n")
	h.open()
	s := h.create(alice, client.SessionCreate{})
	one, two := h.background(s.ID, "echo one; hold"), h.background(s.ID, "echo two; hold")
	other := h.background(h.create(alice, client.SessionCreate{}).ID, "hold")
	to, err := endpoint.Parse("example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	verdicts := make(chan policy.Verdict)
	dial := func(c *client.Call) {
		calls, err := h.m.Calls(t.Context(), alice, c.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			verdicts <- calls.Outgoing(t.Context(), &call.Outgoing{Request: policy.Connection(to), Calls: []string{c.ID}, Exact: true})
		}()
	}
	asked := func(c *client.Call) *client.Approval {
		dial(c)
		testrig.Eventually(t, "somebody is asked", func() bool { return len(h.pending()) == 1 })
		a := h.pending()[0]
		if a.Metadata["once"] != "for all calls of the session, until this call ends" {
			t.Errorf("the question: %+v", a.Metadata)
		}
		return &a
	}
	h.answer(asked(one), once)
	if v := <-verdicts; v.Action != policy.Allow {
		t.Errorf("of the call itself: %+v", v)
	}
	dial(two)
	if v := <-verdicts; v.Action != policy.Allow || !strings.Contains(v.Reason, one.ID) {
		t.Errorf("of another call: %+v", v)
	}
	reject := client.ApprovalAnswer{Answer: client.AnswerReject, Message: "no"}
	h.answer(asked(other), reject)
	if v := <-verdicts; v.Action != policy.Deny {
		t.Errorf("of another session: %+v", v)
	}
	if _, err := h.m.calls.AbortCall(t.Context(), alice, one.ID); err != nil {
		t.Fatal(err)
	}
	h.finished(one.ID)
	h.answer(asked(two), reject)
	if v := <-verdicts; v.Action != policy.Deny {
		t.Errorf("after the call: %+v", v)
	}
}

// TestNetworkTakenBack: a reload moves the revision of a live session's rules, which says what of its
// connections stands; where it gives no network, none does.
func TestNetworkTakenBack(t *testing.T) {
	h := newHouse(t)
	h.set.Network.Mode = client.NetworkRules
	h.set.Policy = rules(t, "[permission]\nnetwork = \"allow\"\n")
	h.open()
	s := h.create(alice, client.SessionCreate{})
	live := h.m.live()[0]
	closed := network{roster: h.m.roster}.closed(s.Tenant)
	to, err := endpoint.Parse("example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	stands := func() policy.Action {
		return live.calls.Outgoing(t.Context(), &call.Outgoing{Request: policy.Connection(to), Standing: true}).Action
	}
	before := live.judge.Revision()
	if why := closed(); why != "" || stands() != policy.Allow || live.judge.Revision() != before {
		t.Errorf("before: %q, %s", why, stands())
	}
	for _, action := range []string{"ask", "deny"} { // nobody is asked about what is open
		h.reload(func(s *Settings) { s.Policy = rules(t, "[permission]\nnetwork = \""+action+"\"\n") })
		if stands() != policy.Deny || live.judge.Revision() == before {
			t.Errorf("%s: it stands, or the revision is the same", action)
		}
		before = live.judge.Revision()
	}
	h.reload(func(s *Settings) { s.Network.Mode = client.NetworkNone })
	if closed() == "" {
		t.Error("the configuration gives no network, and the session has one")
	}
	h.reload(func(s *Settings) { s.Network.Mode = client.NetworkRules })
	if why := closed(); why != "" {
		t.Errorf("after it gives one again: %q", why)
	}
}

// TestOnceEndsWithTheCall: what was allowed once does not stand when the call is over that it was for,
// though another one has the socket; the revision says that what is open is to be judged again.
func TestOnceEndsWithTheCall(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, "[permission]\nbash = \"allow\"\nnetwork = \"ask\"\n")
	h.open()
	s := h.create(alice, client.SessionCreate{})
	one, two, idle := h.background(s.ID, "echo one; hold"), h.background(s.ID, "echo two; hold"), h.background(s.ID, "echo idle; hold")
	live := h.m.live()[0]
	to, err := endpoint.Parse("example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	judged := func(standing bool) policy.Action {
		return live.calls.Outgoing(t.Context(), &call.Outgoing{Request: policy.Connection(to), Calls: []string{one.ID, two.ID}, Standing: standing}).Action
	}
	end := func(id string) {
		if _, err := h.m.calls.AbortCall(t.Context(), alice, id); err != nil {
			t.Fatal(err)
		}
		h.finished(id)
	}
	verdict := make(chan policy.Action, 1)
	go func() { verdict <- judged(false) }()
	testrig.Eventually(t, "somebody is asked", func() bool { return len(h.pending()) == 1 })
	h.answer(&h.pending()[0], once)
	if v := <-verdict; v != policy.Allow || judged(true) != policy.Allow {
		t.Errorf("allowed once: %s", v)
	}
	before := live.judge.Revision()
	end(idle.ID)
	if live.judge.Revision() != before {
		t.Error("the end of a call for which nothing was allowed has all judged again")
	}
	end(one.ID)
	if live.judge.Revision() == before {
		t.Error("the end of the call that something was allowed for has nothing judged again")
	}
	if v := judged(true); v != policy.Deny {
		t.Errorf("what was allowed for a call that is over: %s", v)
	}
}

// TestProfileChanged: a connection goes by the rules of the profile that its call began with, and of the
// session's once that is over: each change of these has what is open judged again.
func TestProfileChanged(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, `[permission]
bash = "allow"
[permission.network]
"*" = "allow"
[profile.strict.permission.network]
"*" = "deny"
"10.0.0.0/8" = "deny"
[profile.strict.permission.http]
"* http://example.com/*" = "deny"
"* https://example.com/*" = "deny"
`)
	h.open()
	s := h.create(alice, client.SessionCreate{Profile: "strict"})
	live := h.m.live()[0]
	to, err := endpoint.Parse("example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	inner, err := endpoint.Parse("10.1.1.1:443")
	if err != nil {
		t.Fatal(err)
	}
	strict := func(calls ...string) bool {
		t.Helper()
		connection := live.calls.Outgoing(t.Context(), &call.Outgoing{Request: policy.Connection(to), Calls: calls, Standing: true}).Action == policy.Deny
		stack, address := live.calls.Stack(calls), policy.Address(inner)
		if reads := stack.Reads(to).TLS != nil; reads != connection || (stack.JudgeOne(&address).Action == policy.Deny) != connection {
			t.Errorf("%q: one is judged by other rules than the other", calls)
		}
		return connection
	}
	patch := func(profile string) {
		t.Helper()
		before := live.judge.Revision()
		if _, err := h.m.Patch(t.Context(), alice, s.ID, client.SessionPatch{Profile: &profile}); err != nil {
			t.Fatal(err)
		}
		if live.judge.Revision() == before {
			t.Errorf("the profile is %s, and nothing is judged again", profile)
		}
	}
	c := h.background(s.ID, "hold")
	if !strict() || !strict(c.ID) {
		t.Error("the rules do not hold")
	}
	patch("build")
	if strict() || !strict(c.ID) {
		t.Error("the session's rules are the old ones, or the call's are not")
	}
	before := live.judge.Revision()
	if _, err := h.m.calls.AbortCall(t.Context(), alice, c.ID); err != nil {
		t.Fatal(err)
	}
	h.finished(c.ID)
	if live.judge.Revision() == before || strict(c.ID) {
		t.Error("the call is over, and its rules hold")
	}
	patch("strict")
	if !strict() || !strict(c.ID) {
		t.Error("what a call that is over has opened goes by other rules than the session's")
	}
}

// outgoing has a connection of one of these calls judged, and gives the verdict.
func (h *house) outgoing(ctx context.Context, to string, exact bool, calls ...string) <-chan policy.Verdict {
	h.t.Helper()
	e, err := endpoint.Parse(to)
	if err != nil {
		h.t.Fatal(err)
	}
	live, verdict := h.m.live()[0], make(chan policy.Verdict, 1)
	go func() {
		verdict <- live.calls.Outgoing(ctx, &call.Outgoing{Request: policy.Connection(e), Calls: calls, Exact: exact})
	}()
	return verdict
}

// TestConnectionIsAskedForTheOldest: where it is not known which of the running calls wants a connection, the
// question is about the oldest, and names them all.
func TestConnectionIsAskedForTheOldest(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, "[permission]\nbash = \"allow\"\nnetwork = \"ask\"\n")
	h.open()
	s := h.create(alice, client.SessionCreate{})
	one, two := h.background(s.ID, "echo one; hold"), h.background(s.ID, "echo two; hold")
	running := h.m.live()[0].calls.RunningIDs
	testrig.Eventually(t, "both run", func() bool { return len(running()) == 2 })
	if got := running(); !slices.Equal(got, []string{one.ID, two.ID}) {
		t.Fatalf("%q run, want %q and %q", got, one.ID, two.ID)
	}
	asked := func(to string, exact bool, calls ...string) *client.Approval {
		t.Helper()
		verdict := h.outgoing(t.Context(), to, exact, calls...)
		testrig.Eventually(t, "somebody is asked", func() bool { return len(h.pending()) == 1 })
		a := h.pending()[0]
		h.answer(&a, reject)
		if v := <-verdict; v.Action != policy.Deny {
			t.Errorf("%s was rejected, and is %s", to, v.Action)
		}
		return &a
	}
	check := func(a *client.Approval, call string, all ...string) {
		t.Helper()
		others, has := a.Metadata["calls"]
		if a.CallID != call || has != (all != nil) || has && fmt.Sprint(others) != fmt.Sprint(all) {
			t.Errorf("asked for %s, with %v; want %s, with %q", a.CallID, others, call, all)
		}
	}
	check(asked("guess.example:443", false, running()...), one.ID, one.ID, two.ID)
	check(asked("known.example:443", true, two.ID), two.ID)
	if _, err := h.m.calls.AbortCall(t.Context(), alice, one.ID); err != nil {
		t.Fatal(err)
	}
	h.finished(one.ID)
	check(asked("later.example:443", false, running()...), two.ID)
	check(asked("opened.before.example:443", false, one.ID, two.ID), two.ID, one.ID, two.ID) // by whichever of them
}

// TestNobodyAnswersForConnections: a connection waits no longer than approvals.timeout, as many as calls may
// wait and no more, and not at all where nobody answers.
func TestNobodyAnswersForConnections(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, "[permission]\nbash = \"allow\"\nnetwork = \"ask\"\n")
	h.open()
	s := h.create(alice, client.SessionCreate{})
	c := h.background(s.ID, "hold")
	refused := func(to, why string) {
		t.Helper()
		if v := <-h.outgoing(t.Context(), to, true, c.ID); v.Action != policy.Deny || !strings.Contains(v.Reason, why) {
			t.Errorf("%s: %+v, want it refused with %q", to, v, why)
		}
	}
	h.reload(func(set *Settings) { set.Approvals = approval.Config{Timeout: 20 * time.Millisecond} })
	refused("slow.example:443", "nobody answered approval apr_")
	refused("slow.example:443", "nobody answered approval apr_") // which was no answer
	h.reload(func(set *Settings) { set.Approvals = approval.Config{None: true} })
	refused("nobody.example:443", "nobody is there to give one")
	h.reload(func(set *Settings) { set.Approvals = approval.Config{} })
	if n := len(h.pending()); n != 0 {
		t.Errorf("%d wait", n)
	}
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	var held []<-chan policy.Verdict
	for i := range approval.MaxPendingSession {
		held = append(held, h.outgoing(ctx, fmt.Sprintf("h%d.example:443", i), true, c.ID))
	}
	testrig.Eventually(t, "all of them wait", func() bool {
		list, err := h.m.Approvals.Approvals(t.Context(), carol, client.ApprovalQuery{Limit: 100})
		return err == nil && len(list.Items) == approval.MaxPendingSession
	})
	refused("more.example:443", "wait for approval, the maximum")
	hangUp()
	for _, verdict := range held {
		if v := <-verdict; v.Action != policy.Deny {
			t.Errorf("who hung up is answered %s", v.Action)
		}
	}
	testrig.Eventually(t, "nothing waits", func() bool { return len(h.pending()) == 0 })
	v := h.outgoing(t.Context(), "more.example:443", true, c.ID)
	testrig.Eventually(t, "there is room again", func() bool { return len(h.pending()) == 1 })
	h.answer(&h.pending()[0], once)
	if v := <-v; v.Action != policy.Allow {
		t.Errorf("%+v", v)
	}
}
