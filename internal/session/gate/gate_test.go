package gate

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/remark"
	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
)

// fakeCalls allows all that it is asked about, and notes what is told.
type fakeCalls struct {
	mu      sync.Mutex // guards the fields below
	asked   []string
	blocked []remark.Denial
}

func (f *fakeCalls) Outgoing(_ context.Context, o *call.Outgoing) policy.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, o.Request.Permission+" "+o.Request.Pattern)
	return policy.Verdict{Action: policy.Allow, Rule: "rules.toml:2", Pattern: `network "*"`}
}

func (f *fakeCalls) Blocked(_ []string, n remark.Denial) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blocked = append(f.blocked, n)
}

func newGate(t *testing.T, rules string) (*Gate, *fakeCalls, *store.Store, map[string]int) {
	t.Helper()
	st, err := store.Open(store.Config{Path: filepath.Join(t.TempDir(), "db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	set, err := policy.Parse("rules.toml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	stack, err := set.Stack("build", "default")
	if err != nil {
		t.Fatal(err)
	}
	f, counts := &fakeCalls{}, make(map[string]int)
	g := New(Config{
		Session: "ses_1", Tenant: "default", Calls: f, Store: st, Log: slog.New(slog.DiscardHandler),
		Stack: func([]string) *policy.Stack { return stack }, Learn: func() bool { return false },
		Revision: func() uint64 { return 1 }, Closed: func() string { return "" },
		Observe: func(verdict string, up, down int64, _ time.Duration) { counts[verdict]++ },
	})
	return g, f, st, counts
}

// TestJudge: only what has one spelling is asked about, and private addresses come from lines
// with addresses alone.
func TestJudge(t *testing.T) {
	g, f, _, _ := newGate(t, "[permission.network]\n\"*\" = \"allow\"\n\"10.1.0.0/16\" = \"allow\"\n\"10.1.2.0/24\" = \"deny\"\n\"10.9.9.9\" = \"ask\"\n")
	defer g.Close()
	v := g.Connect(t.Context(), egress.Request{Host: "0x0a010001", Port: 443})
	if !v.Allow || v.Rule != `rules.toml:2 (network "*")` {
		t.Errorf("%+v", v)
	}
	for addr, want := range map[string]egress.Opening{"10.1.0.1": egress.Named, "10.1.2.1": egress.Refused, "10.9.9.9": egress.Asked, "10.2.0.1": egress.Public} {
		if _, got := g.Opens(egress.Request{Host: "a.example", Port: 443, Address: netip.MustParseAddr(addr)}); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
	g.Connect(t.Context(), egress.Request{Host: "a.example", Port: 443, Address: netip.MustParseAddr("10.9.9.9")})
	for _, bad := range []egress.Request{{Host: "a b", Port: 1}, {Host: "", Port: 1}, {Host: "user@a.example", Port: 1}} {
		if v := g.Connect(t.Context(), bad); v.Allow || v.Reason == "" {
			t.Errorf("%+v: %+v", bad, v)
		}
	}
	if v := g.HTTP(t.Context(), egress.Request{Method: "GET", URL: "http://a.example/x/../y"}); v.Allow {
		t.Errorf("%+v", v)
	}
	g.HTTP(t.Context(), egress.Request{Method: "GET", URL: "http://A.example:80//x"})
	want := []string{"network 10.1.0.1:443", "network 10.9.9.9:443", "http GET http://a.example/x"}
	if !slices.Equal(f.asked, want) {
		t.Errorf("asked %q, want %q", f.asked, want)
	}
}

// TestDone: each connection is counted, told to its calls where it did not pass, and stored; of
// a flood as many as there is room for, and the number of the others.
func TestDone(t *testing.T) {
	g, f, st, counts := newGate(t, "")
	tell := func(r egress.Record) { r.Host, r.Port, r.Calls = "a.example", 443, []string{"call_1"}; g.Done(r) }
	tell(egress.Record{Verdict: egress.Verdict{Allow: true, Rule: "r"}, Up: 3})
	tell(egress.Record{Verdict: egress.Verdict{Rule: "r", Reason: "no"}})
	tell(egress.Record{Verdict: egress.Verdict{Allow: true, Rule: "r"}, Error: "refused"})
	g.Done(egress.Record{Request: egress.Request{Calls: []string{"call_1"}}, Error: "too many"}) // before it was seen where it goes
	if counts["allow"] != 1 || counts["deny"] != 1 || counts["failed"] != 2 {
		t.Errorf("counted %v", counts)
	}
	want := []remark.Denial{{To: "a.example:443", Rule: "r", Reason: "no"}, {To: "a.example:443", Reason: "refused"}, {To: "a connection", Reason: "too many"}}
	if !slices.Equal(f.blocked, want) {
		t.Errorf("told %+v", f.blocked)
	}
	const flood = 5000
	for range flood {
		tell(egress.Record{Verdict: egress.Verdict{Allow: true}})
	}
	g.Close()
	events, err := st.Events(t.Context(), store.EventFilter{Session: "ses_1", Type: "network.*", Limit: 10000})
	var told, left int64
	for _, e := range events {
		var r client.NetworkRecord
		if err := json.Unmarshal(e.Data, &r); err != nil {
			t.Fatal(err)
		}
		if left += r.LeftOut; r.To != "" {
			told++
		}
		if (r.To == "" && r.Error == "") != (e.Type == client.EventNetworkLost) {
			t.Errorf("%s says %+v", e.Type, r)
		}
	}
	if told+left != flood+3 || left == 0 {
		t.Errorf("%d told and %d left out, of %d", told, left, flood+3)
	}
	if err != nil || len(events) < recordsAtOnce/2 || len(events) > flood/2 || events[1].Type != client.EventNetworkDenied || events[1].Call != "call_1" {
		t.Errorf("%d events, %v", len(events), err)
	}
}

// TestLostIsTold: how many records were left out is stored though no other record follows.
func TestLostIsTold(t *testing.T) {
	g, _, st, _ := newGate(t, "")
	defer g.Close()
	left := func() (n int64) {
		events, err := st.Events(t.Context(), store.EventFilter{Session: "ses_1", Type: client.EventNetworkLost, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			var r client.NetworkRecord
			if err := json.Unmarshal(e.Data, &r); err != nil {
				t.Fatal(err)
			}
			n += r.LeftOut
		}
		return n
	}
	for before := range int64(2) { // also after a time without any
		g.lost.Add(1)
		g.wake <- struct{}{}
		testrig.Eventually(t, "it is told", func() bool { return left() == before+1 })
	}
}
