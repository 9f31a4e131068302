package judge

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// parse reads a configuration's rules.
func parse(t *testing.T, text string) *policy.Set {
	t.Helper()
	set, err := policy.Parse("config.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// memory is what approvers have saved.
type memory struct {
	version uint64
	rules   []policy.Rule
	until   time.Time
	ends    map[string]time.Time // until, of these profiles
}

func (m *memory) Version() uint64 { return m.version }

func (m *memory) RulesOf(_, _, profile string, _ time.Time) ([]policy.Rule, time.Time) {
	if end, ok := m.ends[profile]; ok {
		return m.rules, end
	}
	return m.rules, m.until
}

// bench is a session with its judge.
type bench struct {
	*Judge
	t     *testing.T
	store *store.Store
	saved *memory
	tools *tool.Registry
	row   store.Session
}

func newBench(t *testing.T) *bench {
	st, err := store.Open(store.Config{Path: filepath.Join(t.TempDir(), "toold.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	b := &bench{t: t, store: st, saved: &memory{}, tools: tool.NewRegistry()}
	b.row = store.Session{Session: client.Session{
		ID: st.NewID("ses_"), Tenant: "a", State: client.SessionReady, Worktree: client.Worktree{Target: "/workspace"},
	}}
	court := NewCourt(&Config{Loop: policy.LoopConfig{Threshold: 3, PollingThreshold: 6, MaxPeriod: 4, HardLimit: 8}}, b.saved, st, b.tools)
	b.Judge = court.New(func() store.Session { return b.row })
	if err := st.Write(func(tx *store.Tx) error { return tx.PutSession(&b.row) }); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) bash(command string) *tool.Invocation {
	b.t.Helper()
	inv, err := b.tools.Parse("bash", json.RawMessage(fmt.Sprintf(`{"command":%q}`, command)))
	if err != nil {
		b.t.Fatal(err)
	}
	return inv
}

// record stores a call that has not ended, and gives its id.
func (b *bench) record(command string, running bool) string {
	b.t.Helper()
	now := time.Now().UTC()
	row := &store.Call{Tenant: "a", Call: client.Call{
		ID: b.store.NewID("call_"), SessionID: b.row.ID, Tool: "bash", Input: b.bash(command).JSON,
		Status: client.CallPending, Time: client.CallTime{Queued: now},
	}}
	e := &store.Entry{}
	e.InsertCall(row)
	if running {
		e.StartCall(row.ID, now)
	}
	if err := b.store.Write(func(tx *store.Tx) error { return tx.Put(e) }); err != nil {
		b.t.Fatal(err)
	}
	return row.ID
}

func (b *bench) guard(id, command string) *Loop {
	b.t.Helper()
	l, err := b.Guard(b.t.Context(), id, b.bash(command), false, false)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// The answer of a call counts from when it is there, also where the store has yet to
// hear of it when it is asked what earlier daemons did.
func TestAnswersBeforeTheHistoryIsRead(t *testing.T) {
	b := newBench(t)
	id := b.record("hold", true)
	b.Answered(&client.Call{ID: id, Output: "an answer"})
	b.guard(b.store.NewID("call_"), "echo a")
	i := b.history.indexLocked(id)
	if i < 0 || b.history.steps[i].Output == (policy.Digest{}) {
		t.Errorf("step %d of %+v", i, b.history.steps)
	}
}

// Calls that are on record before any of them was looked at count each other once.
func TestLoopsOfCallsOnRecord(t *testing.T) {
	b := newBench(t)
	var calls []string
	for range 3 {
		calls = append(calls, b.record("hold", false))
	}
	for i, id := range calls {
		if l := b.guard(id, "hold"); (l != nil) != (i == 2) {
			t.Errorf("call %d: loop %+v", i+1, l)
		}
	}
}

// TestCallsPutOff: a call that did not run, and was to be made again, is no part of a loop, in this
// daemon and in the next; one whose answer had no room has run, and is.
func TestCallsPutOff(t *testing.T) {
	for name, tt := range map[string]struct {
		code client.Code
		ran  bool
		loop bool
	}{
		"put off":          {client.CodeOverloaded, false, false},
		"answer not taken": {client.CodeOverloaded, true, true},
		"input refused":    {client.CodeInvalidInput, false, true},
		"stopped":          {client.CodeAborted, false, true},
	} {
		b := newBench(t)
		for range 9 {
			id := b.record("hold", tt.ran)
			b.guard(id, "hold")
			row, err := b.store.Call(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			row.Status, row.Error, row.Time.Ended = client.CallError, &client.Error{Code: tt.code}, new(time.Now())
			b.Answered(&row.Call)
			e := &store.Entry{}
			e.FinishCall(row)
			if err := b.store.Write(func(tx *store.Tx) error { return tx.Put(e) }); err != nil {
				t.Fatal(err)
			}
		}
		next := &bench{Judge: b.court.New(func() store.Session { return b.row }), t: t, tools: b.tools, store: b.store}
		for daemon, b := range map[string]*bench{"this": b, "the next": next} {
			if l := b.guard(b.store.NewID("call_"), "hold"); (l != nil) != tt.loop {
				t.Errorf("%s, %s daemon: loop %+v", name, daemon, l)
			}
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	b := newBench(t)
	for i := range 3 {
		id := b.store.NewID("call_")
		b.guard(id, fmt.Sprintf("echo %d", i))
		b.Answered(&client.Call{ID: id, Output: "x"})
	}
	hist := &b.history
	if len(hist.steps) != 3 || hist.steps[2].Output == (policy.Digest{}) {
		t.Errorf("steps %v", hist.steps)
	}
	for i := range 5 * policy.MaxHistory {
		b.guard(fmt.Sprint(i), fmt.Sprintf("echo %d", i))
	}
	if n := len(hist.steps); n < policy.MaxHistory || n > policy.MaxHistory+policy.MaxHistory/2 || cap(hist.steps) > 4*policy.MaxHistory {
		t.Errorf("%d steps", n)
	}
	if got := hist.steps[len(hist.steps)-1].Call; got != fmt.Sprint(5*policy.MaxHistory-1) {
		t.Errorf("the last is %s", got)
	}
}

// What approvers have saved holds no longer than they said, also for rules that were
// made while it did.
func TestSavedRulesExpire(t *testing.T) {
	b := newBench(t)
	b.saved.until = time.Now().Add(time.Hour)
	kept := b.Rules("build")
	if b.Rules("build") != kept || !kept.until.Equal(b.saved.until) {
		t.Fatal("rules that hold are made again")
	}
	kept.until = time.Now().Add(-time.Millisecond)
	if b.Rules("build") == kept {
		t.Error("rules that have expired still hold")
	}
	kept = b.Rules("build")
	if b.saved.version++; b.Rules("build") == kept {
		t.Error("what was saved since is not in the rules")
	}
}

func TestOpaque(t *testing.T) {
	opaque := []policy.Request{{Permission: "bash", Pattern: `eval "$X"`, Opaque: true}}
	for _, tt := range []struct {
		rules, profile, opaque string
		want                   policy.Action
		rule                   string
	}{
		{``, "build", "", policy.Allow, ""},
		{``, "build", "rule", policy.Allow, ""},
		{``, "build", "ask", policy.Ask, ruleOpaque},
		{``, "build", "deny", policy.Deny, ruleOpaque},
		{``, "ci", "ask", policy.Deny, ruleOpaque},
		{`permission = { bash = "deny" }`, "build", "ask", policy.Deny, "config.toml:1"},
		{`permission = { bash = { "*" = "deny", "eval *" = "allow" } }`, "build", "rule", policy.Deny, "config.toml:1"},
		{`permission = { bash = "ask" }`, "build", "ask", policy.Ask, "config.toml:1"},
	} {
		st, err := parse(t, tt.rules).Stack(tt.profile, "a")
		if err != nil {
			t.Fatal(err)
		}
		r := Rules{stack: st, config: &Config{Opaque: tt.opaque}}
		v, each := r.Judge(opaque)
		if v.Action != tt.want || tt.rule != "" && v.Rule != tt.rule || len(each) != 1 || each[0].Action != v.Action {
			t.Errorf("%q, profile %s, opaque %q: got %+v, %+v", tt.rules, tt.profile, tt.opaque, v, each)
		}
		// Only what is opaque is treated like that.
		if v, _ := r.Judge([]policy.Request{{Permission: "read", Pattern: "x", Opaque: true}}); v.Action != policy.Allow {
			t.Errorf("read: %+v", v)
		}
	}
}

func TestStrictestCounts(t *testing.T) {
	st, err := parse(t, `permission = { bash = { "*" = "allow", "a*" = "ask", "d*" = "deny" } }`).Stack("build", "a")
	if err != nil {
		t.Fatal(err)
	}
	r := Rules{stack: st, config: &Config{}}
	for _, tt := range []struct {
		commands string
		want     policy.Action
		decides  string
		pending  int
	}{
		{"", policy.Allow, "", 0},
		{"x y", policy.Allow, "x", 0},
		{"x a1 y a2", policy.Ask, "a1", 2},
		{"a1 d1 d2", policy.Deny, "d1", 0},
	} {
		var requests []policy.Request
		for c := range strings.FieldsSeq(tt.commands) {
			requests = append(requests, policy.Request{Permission: "bash", Pattern: c})
		}
		v, each := r.Judge(requests)
		if v.Action != tt.want || v.Request.Pattern != tt.decides || len(v.Pending) != tt.pending || len(each) != len(requests) {
			t.Errorf("%q: %+v", tt.commands, v)
		}
	}
}

// TestNeeds: a session has no tool that needs what the host or the session has not, and says why.
func TestNeeds(t *testing.T) {
	bash, _ := tool.NewRegistry().Get("bash")
	dial := *bash
	dial.Needs = tool.NeedsNetwork
	for mode, want := range map[string]string{client.NetworkNone: "the session has no network", client.NetworkRules: "", "host": ""} {
		b := newBench(t)
		b.row.Network.Mode = mode
		b.court.Configure(&Config{Choices: Choices{Lacking: map[tool.Need]string{tool.NeedsSkills: "no skills"}}})
		later, err := b.court.RulesWithout("a", policy.DefaultProfile, &b.row)
		if err != nil {
			t.Fatal(err)
		}
		for of, r := range map[string]*Rules{"its calls": b.Rules(policy.DefaultProfile), "its list": later} {
			if got := r.Unchosen(&dial); got != want {
				t.Errorf("%s with the network %q: got %q, want %q", of, mode, got, want)
			}
			if got := r.Unchosen(bash); got != "" {
				t.Errorf("%s with the network %q: bash, which needs nothing: %q", of, mode, got)
			}
			if absent := r.Set().Absent; len(absent) != 1 || absent[0].Why != "no skills" {
				t.Errorf("%s: absent are %+v", of, absent)
			}
		}
	}
	b := newBench(t)
	if r, err := b.court.RulesWithout("a", policy.DefaultProfile, nil); err != nil || r.Unchosen(&dial) != "" {
		t.Errorf("without a session: %q, %v", r.Unchosen(&dial), err)
	}
}

// TestPlaces: where the environment of a session or a call says where "~" and cd lead, it is not known which
// files a command writes; what else a session's sets is its maker's affair.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]bool{"HOME": {true, false}, "CDPATH": {false, true}, "PWD": {false, true}, "OLDPWD": {}, "PAGER": {}} {
		b, env := newBench(t), map[string]string{name: ""} // no values are on record
		inv := b.bash("cd d && echo a > f; echo a > ~/g")
		for of, reader := range map[string]*tool.Reader{"session": Reader(nil, env, nil), "call": Reader(nil, nil, env)} {
			q := Question{Profile: policy.DefaultProfile, Inv: inv, Access: inv.Input.Access(reader)}
			if of == "call" {
				q.Env = env
			}
			steered, unknown := false, map[string]bool{}
			for _, r := range b.Judge.Judge(q).Each {
				steered = steered || strings.Contains(r.Request.Why, "environment sets "+name)
			}
			for _, r := range policy.AsWritten(inv, reader, policy.NoSession) {
				if r.Permission == tool.PermissionEdit {
					unknown[r.Pattern] = r.Unknown
				}
			}
			if steered != (of == "call") {
				t.Errorf("%s of the %s: the command is judged as a whole: %v", name, of, steered)
			}
			if unknown["~/g"] != want[0] || unknown["f"] != want[1] {
				t.Errorf("%s of the %s: not known which file it is: %v", name, of, unknown)
			}
		}
	}
}

// TestRevisionOfAnotherProfile: what was saved for a profile that a call began with ends too, though the
// session has another by now.
func TestRevisionOfAnotherProfile(t *testing.T) {
	b := newBench(t)
	b.row.Profile = "strict"
	b.saved.ends = map[string]time.Time{"build": time.Now()}
	before := b.Revision()
	if b.Revision() != before {
		t.Error("nothing was given to anybody that has ended, and the revision has moved")
	}
	b.Rules("build")
	if b.Revision() == before {
		t.Error("what was saved for another profile has ended, and the revision has not moved")
	}
}
