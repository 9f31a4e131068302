package session

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// This file carries out the recipe for a runner of docs/architecture.md on one that answers
// when somebody rings a bell.

// 1. A constant beside `tool.ByAgent`. The tools whose calls it runs have it as their
// `Definition.By`.
const byBell tool.By = 100

func bellTool() *tool.Definition { return &tool.Definition{Name: "bell", By: byBell, Truncate: "head"} }

type bellInput struct{ text string }

func (bellInput) Access(*tool.Reader) tool.Access {
	return tool.Access{Requests: []tool.Request{{Permission: "bell", Pattern: "bell"}}}
}

// 2. A type with the methods of `call.Runner`. `Prepare` has no effect. `Run` runs a call once,
// and returns when `Abort` ends it or its context does.
type bells struct {
	rung chan struct{}

	mu     sync.Mutex // guards the fields below
	ends   map[string]chan run.Reason
	begun  []string // inputs
	atOnce int
}

func (b *bells) Prepare(context.Context, agent.Request) (*run.Prepared, error) { return nil, nil }

func (b *bells) Run(ctx context.Context, q agent.Request, to agent.Follower) (*agent.Outcome, error) {
	in, end := q.Typed.(bellInput), make(chan run.Reason, 1)
	b.mu.Lock()
	b.ends[q.CallID], b.begun = end, append(b.begun, in.text)
	b.atOnce = max(b.atOnce, len(b.ends))
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ends, q.CallID)
	}()
	to.Metadata(map[string]any{"waits": true})
	select {
	case <-b.rung:
		return &agent.Outcome{Result: &run.Result{Title: "bell", Output: "ding " + in.text}}, nil
	case why := <-end:
		return &agent.Outcome{Err: run.Errorf(run.CodeAborted, "the bell is %s", why)}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (b *bells) Abort(id string, why run.Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if end := b.ends[id]; end != nil && len(end) == 0 {
		end <- why
	}
}

// 3. If its calls outlive the daemon, the methods of `call.Durable` too. Else the next daemon
// ends their records with the reason `lost`, and does not run them again.
var _ call.Runner = (*bells)(nil)

// openWithBells opens a daemon with such a runner, and a tool for it.
func (h *house) openWithBells(b *bells, o *told) {
	h.t.Helper()
	m := h.build()
	m.cfg.Auditor, m.calls.Auditor, m.calls.Tools = o, o, withBell{m.tools}
	// 4. An entry in `session.runnersOf`.
	m.runners = func(s *Session) map[tool.By]call.Runner {
		all := runnersOf(s)
		all[byBell] = b
		return all
	}
	if err := m.Start(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// withBell has one tool more.
type withBell struct{ call.Tools }

func (w withBell) Parse(name string, raw json.RawMessage) (*tool.Invocation, error) {
	if name == bellTool().Name {
		return &tool.Invocation{Tool: bellTool(), JSON: raw, Input: bellInput{string(raw)}}, nil
	}
	return w.Tools.Parse(name, raw)
}

func (w withBell) ParseHidden(name string, raw json.RawMessage) (*tool.Invocation, error) {
	if name == bellTool().Name {
		return w.Parse(name, raw)
	}
	return w.Tools.ParseHidden(name, raw)
}

func (w withBell) Get(name string) (*tool.Definition, bool) {
	if name == bellTool().Name {
		return bellTool(), true
	}
	return w.Tools.Get(name)
}

// 5. Tests: a slot, a loop, a denial, an abort, and a call that runs when its daemon dies.
func TestExampleRunner(t *testing.T) {
	h, o := newHouse(t), &told{}
	h.obs = []Observer{hookObserver{o}}
	h.set.Limits.Calls = 1
	h.set.Loop = policy.LoopConfig{Threshold: 3, PollingThreshold: 6, MaxPeriod: 4, HardLimit: 8}
	h.set.Policy = rules(t, `permission = { doom_loop = "deny", bell = "allow", bash = "deny" }`)
	b := &bells{rung: make(chan struct{}), ends: make(map[string]chan run.Reason)}
	h.openWithBells(b, o)
	s := h.create(alice, client.SessionCreate{})
	ring := client.CallCreate{Tool: "bell", Input: json.RawMessage(`"a"`), WaitMillis: new(int64)}
	first, second := h.call(s.ID, ring), h.call(s.ID, ring)
	b.rung <- struct{}{}
	b.rung <- struct{}{}
	for _, id := range []string{first.ID, second.ID} {
		if c := h.finished(id); c.Output != `ding "a"` || c.Permission.Verdict != "allow" || h.isOnRecord(o, c) != nil {
			t.Errorf("%+v, %v", c, h.isOnRecord(o, c))
		}
	}
	if b.atOnce != 1 {
		t.Errorf("%d ran at once", b.atOnce)
	}
	if c := h.finished(h.call(s.ID, ring).ID); c.Error == nil || c.Error.Code != client.CodeDoomLoop {
		t.Errorf("a loop: %+v", c.Error)
	}
	ring.Input = json.RawMessage(`"b"`)
	c := h.call(s.ID, ring)
	b.await(t, 1)
	if c, err := h.m.calls.AbortCall(t.Context(), alice, c.ID); err != nil || c.Error == nil || c.Error.Code != client.CodeAborted || c.Error.Message != "the bell is aborted" {
		t.Errorf("aborted: %+v, %v", c, err)
	}
	h.reload(func(set *Settings) { set.Policy = rules(t, `permission = { bell = "deny" }`) })
	if c := h.finished(h.call(s.ID, ring).ID); c.Error == nil || c.Error.Code != client.CodeDenied {
		t.Errorf("denied: %+v", c.Error)
	}
	h.reload(func(set *Settings) { set.Policy = nil })
	ring.Input = json.RawMessage(`"c"`)
	last := h.call(s.ID, ring)
	b.await(t, 1)
	h.kill()
	h.openWithBells(b, o)
	h.lostOnce(last.ID)
	if want := []string{`"a"`, `"a"`, `"b"`, `"c"`}; !slices.Equal(b.begun, want) {
		t.Errorf("ran %q, want %q", b.begun, want)
	}
}

// await waits until so many calls run.
func (b *bells) await(t *testing.T, n int) {
	t.Helper()
	testrig.Eventually(t, "calls run", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.ends) == n
	})
}

// isOnRecord says what is missing of a call on record.
func (h *house) isOnRecord(o *told, c *client.Call) []string {
	h.t.Helper()
	h.settled()
	var missing []string
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := countOf(o.finished, func(f client.Call) bool { return f.ID == c.ID }); n != 1 {
		missing = append(missing, "the end in the audit log")
	}
	if n := len(o.decisions); n == 0 || !slices.ContainsFunc(o.verdicts(), func(id string) bool { return id == c.ID }) {
		missing = append(missing, "the decision in the audit log")
	}
	for _, typ := range []string{client.EventCallPending, client.EventCallRunning, client.EventCallCompleted} {
		if n := h.told(alice, typ, c.ID); n != 1 {
			missing = append(missing, typ)
		}
	}
	return missing
}

// verdicts are the calls that decisions are about. Called with mu held.
func (o *told) verdicts() (ids []string) {
	for i := range o.decisions {
		ids = append(ids, o.decisions[i].Call)
	}
	return ids
}

func countOf[T any](all []T, is func(T) bool) (n int) {
	for _, v := range all {
		if is(v) {
			n++
		}
	}
	return n
}

// told counts the events of a type about a call that are on record.
func (h *house) told(by auth.Principal, typ, callID string) int {
	h.t.Helper()
	events, err := h.m.Events.Events(h.t.Context(), by, event.Filter{Stored: true, Type: typ})
	if err != nil {
		h.t.Fatal(err)
	}
	n := 0
	for e := range events {
		if e.Call == callID {
			n++
		}
	}
	return n
}

// lostOnce checks the end of a call that an earlier daemon ran in itself when it died.
func (h *house) lostOnce(id string) {
	h.t.Helper()
	c := h.finished(id)
	if c.Error == nil || c.Error.Code != client.CodeAborted || c.Metadata["reason"] != string(run.ReasonLost) || !strings.Contains(c.Error.Message, "the daemon ended while it ran the call") {
		h.t.Errorf("%+v, %v", c.Error, c.Metadata)
	}
	if n := h.told(alice, client.EventCallError, id); n != 1 {
		h.t.Errorf("its end was told %d times", n)
	}
}
