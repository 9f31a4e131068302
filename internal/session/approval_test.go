package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// watcher keeps what observers and the audit log are told.
type watcher struct {
	mu        sync.Mutex // guards the fields below
	decisions []judge.Decision
	replies   []string
	loops     []string
	asked     int
	refuse    error // what Decided answers
}

func (w *watcher) SessionState(*client.Session, client.SessionState)       {}
func (w *watcher) SandboxCreated(string, bool, time.Duration)              {}
func (w *watcher) CallFinished(*client.Call, time.Duration, time.Duration) {}
func (w *watcher) Connection(string, int64, int64, time.Duration)          {}
func (w *watcher) OutputSpilled(int64)                                     {}
func (w *watcher) LenientConversion(string)                                {}
func (w *watcher) Alias(string, string)                                    {}
func (w *watcher) Hooked(string, string, time.Duration)                    {}
func (w *watcher) WorktreeOperation(string, string, time.Duration)         {}
func (w *watcher) Decided(d *judge.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decisions = append(w.decisions, *d)
}

func (w *watcher) DoomLoop(tool string, period int, action policy.Action) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loops = append(w.loops, fmt.Sprintf("%s %d %s", tool, period, action))
}

func (w *watcher) ApprovalAsked(*client.Approval) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
}

func (w *watcher) ApprovalReplied(_ *client.Approval, reply string, waited time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replies = append(w.replies, reply)
	if waited < 0 {
		w.replies = append(w.replies, "before it was asked")
	}
}

// auditor is a watcher as the audit log.
type auditor struct{ watcher }

func (a *auditor) Worktree(auth.Principal, *client.Session, record.Worktree) error { return a.refuse }

func (a *auditor) Admin(auth.Principal, record.Admin) error { return a.refuse }

func (a *auditor) Cache(auth.Principal, *client.Session, record.Cache) error { return a.refuse }

func (a *auditor) Decided(d *judge.Decision) error {
	a.watcher.Decided(d)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refuse
}
func (a *auditor) Finished(auth.Principal, *client.Call, [32]byte) error { return nil }
func (a *auditor) Ready() error                                          { return nil }

func (a *auditor) Noticed() string { return "" }

// said gives the replies that were told, and clears them.
func (w *watcher) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.replies, " ")
	w.replies = nil
	return all
}

var carol = auth.Principal{UID: 1002, Tenant: "a"} // of alice's tenant

// asking is a house whose bash asks, and where nothing else does.
func asking(t *testing.T) (*house, *watcher) {
	h, w := newHouse(t), &watcher{}
	h.obs = []Observer{w}
	h.set.Policy = rules(t, `
[permission.bash]
"*" = { action = "ask", reason = "somebody must look" }
"echo *" = "allow"
"rm *" = "deny"
`)
	h.open()
	return h, w
}

// waiting makes a call that must wait, and gives its approval.
func (h *house) waiting(session, command string) (*client.Call, *client.Approval) {
	h.t.Helper()
	return h.waitingFor(alice, session, bashCall(command))
}

func (h *house) waitingFor(p auth.Principal, session string, r client.CallCreate) (*client.Call, *client.Approval) {
	h.t.Helper()
	r.WaitMillis = new(int64)
	c, err := h.m.calls.Call(h.t.Context(), p, session, r, call.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	var found *client.Approval
	testrig.Eventually(h.t, "the call waits for approval", func() bool {
		for _, a := range h.pending() {
			if a.CallID == c.ID {
				found = &a
			}
		}
		return found != nil
	})
	return c, found
}

func (h *house) pending() []client.Approval {
	h.t.Helper()
	return h.pendingOf("a")
}

func (h *house) pendingOf(tenant string) []client.Approval {
	h.t.Helper()
	list, err := h.m.Approvals.Approvals(h.t.Context(), auth.Principal{UID: 1, Tenant: tenant}, client.ApprovalQuery{})
	if err != nil {
		h.t.Fatal(err)
	}
	return list.Items
}

func (h *house) answer(a *client.Approval, answer client.ApprovalAnswer) {
	h.t.Helper()
	if _, err := h.m.Approvals.Answer(h.t.Context(), carol, a.ID, answer); err != nil {
		h.t.Fatal(err)
	}
}

var (
	once   = client.ApprovalAnswer{Answer: client.AnswerOnce}
	always = client.ApprovalAnswer{Answer: client.AnswerAlways}
	reject = client.ApprovalAnswer{Answer: client.AnswerReject}
)

func TestApprovedOnce(t *testing.T) {
	h, w := asking(t)
	s := h.create(alice, client.SessionCreate{Limits: client.Limits{Calls: 1}})
	events, err := h.m.Events.Events(t.Context(), alice, event.Filter{Type: "approval.*"})
	if err != nil {
		t.Fatal(err)
	}
	c, a := h.waiting(s.ID, "ls x")
	input := sha256.Sum256(c.Input)
	if a.Tenant != "a" || a.SessionID != s.ID || a.Profile != "build" || a.Tool != "bash" || a.SHA256 != hex.EncodeToString(input[:]) ||
		len(a.Requests) != 1 || a.Requests[0].Pattern != "ls x" || a.Requests[0].Rule != "config.toml:3" ||
		a.Requests[0].Reason != "somebody must look" || a.Metadata["command"] != "ls x" || !a.Expires.Equal(a.Created.Add(10*time.Minute)) {
		t.Errorf("approval %+v", a)
	}
	now, err := h.m.calls.GetCall(t.Context(), alice, c.ID)
	if err != nil || now.Status != client.CallPending || now.Permission == nil || now.Permission.Verdict != "ask" || now.Permission.ApprovalID != a.ID {
		t.Errorf("while it waits: %+v, %v", now, err)
	}
	// It holds no slot.
	if c := h.call(s.ID, bashCall("echo meanwhile")); c.Output != "meanwhile\n" {
		t.Errorf("another call: %+v", c)
	}
	h.answer(a, client.ApprovalAnswer{Answer: client.AnswerOnce, SHA256: a.SHA256})
	done := h.finished(c.ID)
	if done.Status != client.CallCompleted || *done.Permission != (client.CallPermission{Verdict: "allow", Rule: "config.toml:3", ApprovalID: a.ID}) {
		t.Errorf("approved: %+v, %+v", done.Error, done.Permission)
	}
	// Single use.
	if _, err := h.m.Approvals.Answer(t.Context(), carol, a.ID, once); codeOfErr(err) != client.CodeConflict || !strings.Contains(err.Error(), "once by uid 1002") {
		t.Errorf("a second answer: %v", err)
	}
	again, b := h.waiting(s.ID, "ls x")
	if b.ID == a.ID {
		t.Error("the approval was used twice")
	}
	h.answer(b, reject)
	h.finished(again.ID)
	for i, want := range []string{"approval.asked", "approval.replied", "approval.asked", "approval.replied"} {
		e := <-events
		if e.Type != want || e.Session != s.ID || i < 2 && (e.Call != c.ID || !strings.Contains(string(e.Data), a.ID)) {
			t.Errorf("event %d: %+v %s", i, e, e.Data)
		}
	}
	if got := w.said(); got != "once reject" || w.asked != 2 {
		t.Errorf("observers heard %q of %d approvals", got, w.asked)
	}
	var verdicts []string
	for _, d := range w.decisions {
		verdicts = append(verdicts, string(d.Verdict.Action)+d.Approver)
		if d.Session != s.ID || d.Tool != "bash" || d.Principal.UID != alice.UID || d.Principal.Tenant != alice.Tenant || len(d.Requests) != 1 {
			t.Errorf("decision %+v", d)
		}
	}
	if got := strings.Join(verdicts, " "); got != "ask allow allowuid 1002 ask denyuid 1002" {
		t.Errorf("decisions %s", got)
	}
	if n := len(h.host.box(s.ID).runs); n != 2 {
		t.Errorf("%d calls ran", n)
	}
}

func TestStreamOfAnApproval(t *testing.T) {
	h, _ := asking(t)
	s := h.create(alice, client.SessionCreate{})
	var types []string
	c, err := h.m.calls.Call(t.Context(), alice, s.ID, bashCall("ls"), call.Options{OnEvent: func(e client.Event) {
		types = append(types, e.Type)
		if e.Type == client.EventApprovalAsked {
			var a client.Approval
			if err := json.Unmarshal(e.Data, &a); err != nil || a.CallID != e.Call {
				t.Errorf("asked %s, %v", e.Data, err)
			}
			go func() { _, _ = h.m.Approvals.Answer(context.Background(), carol, a.ID, once) }()
		}
	}})
	if err != nil || c.Status != client.CallCompleted {
		t.Errorf("%+v, %v", c, err)
	}
	if got := strings.Join(types, " "); got != "pending approval.asked approval.replied running completed" {
		t.Errorf("events %s", got)
	}
}

func TestRejected(t *testing.T) {
	h, w := asking(t)
	s, other := h.create(alice, client.SessionCreate{}), h.create(alice, client.SessionCreate{})
	c1, a1 := h.waiting(s.ID, "ls 1")
	c2, a2 := h.waiting(s.ID, "ls 2")
	c3, _ := h.waiting(s.ID, "ls 3")
	_, far := h.waiting(other.ID, "ls 4")
	// With a message: that call alone.
	h.answer(a1, client.ApprovalAnswer{Answer: client.AnswerReject, Message: "use grep\nplease"})
	if c := h.finished(c1.ID); c.Error == nil || c.Error.Code != client.CodeDenied || !strings.HasSuffix(c.Error.Message, "rejected by uid 1002: use grep\nplease") ||
		c.Permission.Verdict != "deny" || c.Permission.ApprovalID != a1.ID {
		t.Errorf("with a message: %+v, %+v", c.Error, c.Permission)
	}
	if n := len(h.pending()); n != 3 {
		t.Errorf("%d wait", n)
	}
	// Without: all others of the session as well.
	h.answer(a2, reject)
	for _, c := range []*client.Call{c2, c3} {
		if c := h.finished(c.ID); c.Error == nil || c.Error.Code != client.CodeDenied || !strings.Contains(c.Error.Message, "rejected by uid 1002") {
			t.Errorf("%+v", c.Error)
		}
	}
	if p := h.pending(); len(p) != 1 || p[0].ID != far.ID {
		t.Errorf("what waits: %+v", p)
	}
	if n := len(h.host.box(s.ID).runs); n != 0 {
		t.Errorf("%d calls ran", n)
	}
	if got := w.said(); got != "reject reject reject" {
		t.Errorf("observers heard %q", got)
	}
}

func TestApprovedAlways(t *testing.T) {
	h, w := asking(t)
	one := h.create(alice, client.SessionCreate{})
	two := h.create(alice, client.SessionCreate{})
	plan := h.create(alice, client.SessionCreate{Profile: "general"})
	foreign := h.create(bob, client.SessionCreate{})
	runs := func(s *client.Session, p auth.Principal, command string) bool {
		t.Helper()
		r := bashCall(command)
		r.WaitMillis = new(int64)
		c, err := h.m.calls.Call(t.Context(), p, s.ID, r, call.Options{})
		if err != nil {
			t.Fatal(err)
		}
		asked := false
		testrig.Eventually(t, "the call runs or asks", func() bool {
			asked = slices.ContainsFunc(h.pendingOf(p.Tenant), func(a client.Approval) bool { return a.CallID == c.ID })
			now, err := h.m.calls.GetCall(t.Context(), p, c.ID)
			return asked || err == nil && now.Finished()
		})
		if c, err = h.m.calls.AbortCall(t.Context(), p, c.ID); err != nil {
			t.Fatal(err)
		}
		return !asked && c.Status == client.CallCompleted
	}
	// Others of the same kind that wait are let go at once.
	c1, a := h.waiting(one.ID, "git log x")
	c2, _ := h.waiting(one.ID, "git log y")
	c3, left := h.waiting(two.ID, "git log z")
	if a.Requests[0].Save != "git log *" {
		t.Fatalf("requests %+v", a.Requests)
	}
	h.answer(a, always)
	for _, c := range []*client.Call{c1, c2} {
		if c := h.finished(c.ID); c.Status != client.CallCompleted || c.Permission.ApprovalID == "" {
			t.Errorf("%+v", c)
		}
	}
	if got := w.said(); got != "always always" {
		t.Errorf("observers heard %q", got)
	}
	if p := h.pending(); len(p) != 1 || p[0].ID != left.ID {
		t.Errorf("pending %+v", p)
	}
	if !runs(one, alice, "git log") || runs(two, alice, "git log") {
		t.Error("scope session does not hold where it should, or elsewhere too")
	}
	// A rule that denies is final, whatever was saved.
	if runs(one, alice, "rm x") {
		t.Error("a saved approval undid a deny")
	}
	h.answer(left, client.ApprovalAnswer{Answer: client.AnswerAlways, Scope: client.ScopeProfile, Expires: "1h"})
	h.finished(c3.ID)
	if !runs(two, alice, "git log") || runs(plan, alice, "git log") {
		t.Error("scope profile does not hold where it should, or elsewhere too")
	}
	_, a = h.waiting(plan.ID, "git diff")
	said, err := h.m.Approvals.Answer(h.t.Context(), carol, a.ID, client.ApprovalAnswer{Answer: client.AnswerAlways, Scope: client.ScopeTenant})
	if err != nil || said.Reply == nil || len(said.Reply.Saved) != 1 || said.Reply.Saved[0].Pattern != "git diff *" || said.Reply.Saved[0].ID == "" {
		t.Errorf("an answer names what it saves: %+v, %v", said, err)
	}
	if !runs(one, alice, "git diff x") || runs(foreign, bob, "git diff x") {
		t.Error("scope tenant does not hold where it should, or elsewhere too")
	}

	saved, err := h.m.Approvals.SavedApprovals(t.Context(), carol, client.ApprovalQuery{})
	if err != nil || len(saved.Items) != 3 {
		t.Fatalf("saved %+v, %v", saved, err)
	}
	v := saved.Items[1]
	if v.Scope != client.ScopeProfile || v.Profile != "build" || v.Pattern != "git log *" || v.Permission != "bash" || v.By != "uid 1002" ||
		v.Rule != "config.toml:3" || v.Expires == nil || v.ID != left.ID+".1" {
		t.Errorf("saved %+v", v)
	}
	if l, err := h.m.Approvals.SavedApprovals(t.Context(), bob, client.ApprovalQuery{}); err != nil || len(l.Items) != 0 {
		t.Errorf("another tenant sees %+v, %v", l, err)
	}
	if l, err := h.m.Approvals.SavedApprovals(t.Context(), carol, client.ApprovalQuery{Limit: 2}); err != nil || len(l.Items) != 2 || l.Next != l.Items[1].ID {
		t.Errorf("a page: %+v, %v", l, err)
	}
	if l, err := h.m.Approvals.SavedApprovals(t.Context(), carol, client.ApprovalQuery{Session: one.ID}); err != nil || len(l.Items) != 1 {
		t.Errorf("of one session: %+v, %v", l, err)
	}
	foreignErr, unknownErr := h.m.Approvals.Revoke(t.Context(), bob, v.ID), h.m.Approvals.Revoke(t.Context(), bob, "apr_unknown.1")
	if codeOfErr(foreignErr) != client.CodeNotFound || strings.Replace(foreignErr.Error(), v.ID, "apr_unknown.1", 1) != unknownErr.Error() {
		t.Errorf("another tenant revokes: %v, %v", foreignErr, unknownErr)
	}

	// It outlives the daemon, and ends when it is revoked or its session ends.
	h.stop()
	h.open()
	if !runs(two, alice, "git log") || !runs(one, alice, "git diff") {
		t.Error("a saved approval was lost with the daemon")
	}
	if err := h.m.Approvals.Revoke(t.Context(), carol, v.ID); err != nil {
		t.Error(err)
	}
	if runs(two, alice, "git log") {
		t.Error("a revoked approval holds")
	}
	if _, err := h.m.End(t.Context(), alice, one.ID, client.EndOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	saved, err = h.m.Approvals.SavedApprovals(t.Context(), carol, client.ApprovalQuery{})
	if err != nil || len(saved.Items) != 1 || saved.Items[0].Scope != client.ScopeTenant {
		t.Errorf("after the end of its session: %+v, %v", saved, err)
	}
	h.stop()
	h.open()
	if again, err := h.m.Approvals.SavedApprovals(t.Context(), carol, client.ApprovalQuery{}); err != nil || len(again.Items) != 1 {
		t.Errorf("in the store: %+v, %v", again, err)
	}
}

// What is saved says when it ends; that it does is tested where it is kept.
func TestSavedApprovalsExpire(t *testing.T) {
	h, _ := asking(t)
	s := h.create(alice, client.SessionCreate{})
	c, a := h.waiting(s.ID, "ls")
	h.answer(a, client.ApprovalAnswer{Answer: client.AnswerAlways, Expires: "1h"})
	h.finished(c.ID)
	if c := h.call(s.ID, bashCall("ls a")); c.Status != client.CallCompleted {
		t.Errorf("%+v", c.Error)
	}
	l, err := h.m.Approvals.SavedApprovals(t.Context(), carol, client.ApprovalQuery{})
	if err != nil || len(l.Items) != 1 || l.Items[0].Expires.Sub(l.Items[0].Created) != time.Hour {
		t.Fatalf("saved %+v, %v", l, err)
	}
	// One that ends while the session lives.
	if err := h.m.Approvals.Revoke(t.Context(), carol, l.Items[0].ID); err != nil {
		t.Fatal(err)
	}
	c, a = h.waiting(s.ID, "ls b")
	h.answer(a, client.ApprovalAnswer{Answer: client.AnswerAlways, Expires: "1s"})
	h.finished(c.ID)
	testrig.Eventually(t, "it has expired", func() bool {
		l, err := h.m.Approvals.SavedApprovals(t.Context(), carol, client.ApprovalQuery{})
		return err == nil && len(l.Items) == 0
	})
	_, a = h.waiting(s.ID, "ls c")
	h.answer(a, reject)
}

func TestReloadJudgesWhatWaits(t *testing.T) {
	h, _ := asking(t)
	s := h.create(alice, client.SessionCreate{})
	allowed, _ := h.waiting(s.ID, "ls allowed")
	denied, _ := h.waiting(s.ID, "ls denied")
	asked, a := h.waiting(s.ID, "ls asked")
	h.reload(func(set *Settings) {
		set.Policy = rules(t, `permission = { bash = { "*" = "ask", "ls allowed" = "allow", "ls denied" = { action = "deny", reason = "no more" } } }`)
	})
	if c := h.finished(allowed.ID); c.Status != client.CallCompleted {
		t.Errorf("allowed: %+v", c.Error)
	}
	if c := h.finished(denied.ID); c.Error == nil || c.Error.Code != client.CodeDenied || !strings.Contains(c.Error.Message, "no more") {
		t.Errorf("denied: %+v", c.Error)
	}
	if p := h.pending(); len(p) != 1 || p[0].ID != a.ID {
		t.Errorf("pending %+v", p)
	}
	h.answer(a, once)
	h.finished(asked.ID)
}

func TestApprovalsEndWithTheirCalls(t *testing.T) {
	h, w := asking(t)
	s := h.create(alice, client.SessionCreate{})
	c, a := h.waiting(s.ID, "ls")
	if c, err := h.m.calls.AbortCall(t.Context(), alice, c.ID); err != nil || c.Error.Code != client.CodeAborted {
		t.Errorf("aborted: %+v, %v", c, err)
	}
	if _, err := h.m.Approvals.Answer(t.Context(), carol, a.ID, once); codeOfErr(err) != client.CodeConflict || !strings.Contains(err.Error(), "gone") {
		t.Errorf("after the abort: %v", err)
	}
	c, a = h.waiting(s.ID, "ls")
	if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if c := h.finished(c.ID); c.Error == nil || c.Error.Code != client.CodeSessionLost {
		t.Errorf("its session ended: %+v", c.Error)
	}
	if _, err := h.m.Approvals.Answer(t.Context(), carol, a.ID, once); codeOfErr(err) != client.CodeConflict {
		t.Errorf("after the end: %v", err)
	}
	if got := w.said(); got != "gone gone" {
		t.Errorf("observers heard %q", got)
	}
}

func TestStaleApprovals(t *testing.T) {
	h, _ := asking(t)
	h.reload(func(set *Settings) { set.Policy = rules(t, `permission = { edit = "ask" }`) })
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	prepare := func(p run.Prepared) {
		box.mu.Lock()
		defer box.mu.Unlock()
		box.prepared = &p
	}
	file := run.Target{Asked: "f", Path: "/workspace/f", Exists: true, Kind: "file", SHA256: "one", Write: true}
	shownOne := run.Prepared{Targets: []run.Target{file}, Diff: "-a\n+b\n"}
	for _, tt := range []struct {
		name   string
		change func(p *run.Prepared)
		stale  bool
	}{
		{"nothing", func(*run.Prepared) {}, false},
		{"content", func(p *run.Prepared) { p.Targets = []run.Target{file}; p.Targets[0].SHA256 = "two" }, true},
		{"a link", func(p *run.Prepared) { p.Targets = []run.Target{file}; p.Targets[0].Path = "/workspace/g" }, true},
		{"removed", func(p *run.Prepared) { p.Targets = []run.Target{file}; p.Targets[0].Exists = false }, true},
		{"the change itself", func(p *run.Prepared) { p.Diff = "-a\n+c\n" }, true},
		{"more targets", func(p *run.Prepared) { p.Targets = []run.Target{file, file} }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			prepare(shownOne)
			c, a := h.waitingFor(alice, s.ID, writeCall("f"))
			if a.Metadata["diff"] != "-a\n+b\n" || a.Metadata["path"] != "f" || a.Metadata["input"] != nil {
				t.Errorf("metadata %v", a.Metadata)
			}
			changed := shownOne
			tt.change(&changed)
			prepare(changed)
			h.answer(a, once)
			done := h.finished(c.ID)
			if stale := done.Error != nil && done.Error.Code == client.CodeStaleApproval; stale != tt.stale {
				t.Errorf("%+v", done)
			}
		})
	}
	// The agent has the last look.
	prepare(shownOne)
	h.host.fail("run", &run.Error{Code: run.CodeStale, Message: "it has changed"})
	c, a := h.waitingFor(alice, s.ID, writeCall("f"))
	h.answer(a, once)
	if c := h.finished(c.ID); c.Error == nil || c.Error.Code != client.CodeStaleApproval || !strings.Contains(c.Error.Message, a.ID) {
		t.Errorf("at the run: %+v", c.Error)
	}
	h.reload(func(set *Settings) { set.Policy = nil })
	if c := h.call(s.ID, writeCall("f")); c.Error == nil || c.Error.Code != client.CodeStale {
		t.Errorf("without an approval: %+v", c.Error)
	}
}
