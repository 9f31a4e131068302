package session

import (
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/internal/approval"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

func TestAnswersThatAreRefused(t *testing.T) {
	h, _ := asking(t)
	s := h.create(alice, client.SessionCreate{Token: true})
	_, a := h.waiting(s.ID, "ls x")
	_, opaque := h.waiting(s.ID, `eval "$X"`)
	for _, tt := range []struct {
		name string
		id   string
		a    client.ApprovalAnswer
		code client.Code
		says string
	}{
		{"nothing", a.ID, client.ApprovalAnswer{}, client.CodeInvalidRequest, "once, always or reject"},
		{"another word", a.ID, client.ApprovalAnswer{Answer: "yes"}, client.CodeInvalidRequest, "yes"},
		{"another input", a.ID, client.ApprovalAnswer{Answer: "once", SHA256: "00"}, client.CodeConflict, a.SHA256},
		{"scope", a.ID, client.ApprovalAnswer{Answer: "always", Scope: "world"}, client.CodeInvalidRequest, "world"},
		{"scope of once", a.ID, client.ApprovalAnswer{Answer: "once", Scope: "session"}, client.CodeInvalidRequest, "scope"},
		{"expires", a.ID, client.ApprovalAnswer{Answer: "always", Expires: "soon"}, client.CodeInvalidRequest, "soon"},
		{"expired", a.ID, client.ApprovalAnswer{Answer: "always", Expires: "-1h"}, client.CodeInvalidRequest, "-1h"},
		{"message of once", a.ID, client.ApprovalAnswer{Answer: "once", Message: "ok"}, client.CodeInvalidRequest, "message"},
		{"long message", a.ID, client.ApprovalAnswer{Answer: "reject", Message: strings.Repeat("x", 5000)}, client.CodeInvalidRequest, "5000"},
		{"always for what is opaque", opaque.ID, always, client.CodeInvalidRequest, "nothing"},
		{"no id", "x", once, client.CodeNotFound, "x"},
		{"unknown id", h.store.NewID("apr_"), once, client.CodeNotFound, "apr_"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := h.m.Approvals.Answer(t.Context(), carol, tt.id, tt.a)
			if codeOfErr(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %s about %q", err, tt.code, tt.says)
			}
		})
	}
	if n := len(h.pending()); n != 2 {
		t.Errorf("%d wait", n)
	}
	for name, f := range map[string]client.ApprovalQuery{"after": {After: "x"}, "session": {Session: "nonsense"}} {
		if _, err := h.m.Approvals.Approvals(t.Context(), carol, f); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if l, err := h.m.Approvals.Approvals(t.Context(), carol, client.ApprovalQuery{Limit: 1, Session: s.ID}); err != nil || len(l.Items) != 1 || l.Next != a.ID {
		t.Errorf("a page: %+v, %v", l, err)
	}
}

func TestWhoMayAnswer(t *testing.T) {
	h, _ := asking(t)
	s := h.create(alice, client.SessionCreate{Token: true})
	other := h.create(alice, client.SessionCreate{})
	token := auth.Principal{UID: alice.UID, Tenant: "a", Session: s.ID}
	otherToken := auth.Principal{UID: alice.UID, Tenant: "a", Session: other.ID}
	admin := auth.Principal{UID: 0, Tenant: "a", Admin: true}
	for _, tt := range []struct {
		name   string
		self   bool
		by, to auth.Principal
		want   client.Code
	}{
		{"another user", false, alice, carol, ""},
		{"an admin", false, alice, admin, ""},
		{"the same user", false, alice, alice, client.CodeForbidden},
		{"an admin's own call", false, admin, admin, client.CodeForbidden},
		{"the token that made it", false, token, token, client.CodeForbidden},
		{"another token", false, alice, otherToken, client.CodeForbidden},
		{"a token for its user", false, alice, token, client.CodeForbidden},
		{"the user for a token", false, token, alice, ""},
		{"another tenant", false, alice, bob, client.CodeNotFound},
		{"another tenant with self_approve", true, alice, bob, client.CodeNotFound},
		{"the same user with self_approve", true, alice, alice, ""},
		{"the token with self_approve", true, token, token, ""},
		{"another token with self_approve", true, token, otherToken, client.CodeNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.reload(func(set *Settings) { set.Approvals.SelfApprove = tt.self })
			c, a := h.waitingFor(tt.by, s.ID, bashCall("ls "+strings.ReplaceAll(tt.name, " ", "-")))
			if a.SelfApprove != tt.self {
				t.Errorf("it says self_approve: %v", a.SelfApprove)
			}
			_, err := h.m.Approvals.Answer(t.Context(), tt.to, a.ID, once)
			if codeOfErr(err) != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if tt.want == client.CodeNotFound {
				unknown := h.store.NewID("apr_")
				_, e := h.m.Approvals.Answer(t.Context(), tt.to, unknown, once)
				if strings.ReplaceAll(inside(err), a.ID, "ID") != strings.ReplaceAll(inside(e), unknown, "ID") {
					t.Errorf("a foreign id is answered by %v, an unknown one by %v", err, e)
				}
			}
			if tt.want != "" {
				if got, err := h.m.calls.GetCall(t.Context(), alice, c.ID); err != nil || got.Status != client.CallPending {
					t.Errorf("it does not wait any more: %+v, %v", got, err)
				}
				h.reload(func(set *Settings) { set.Approvals.SelfApprove = false })
				h.answer(a, reject)
			}
			h.finished(c.ID)
			// What has ended is as foreign as what is pending.
			if tt.want == client.CodeNotFound && tt.to.Session == "" {
				if _, err := h.m.Approvals.Answer(t.Context(), tt.to, a.ID, once); codeOfErr(err) != client.CodeNotFound {
					t.Errorf("after its end: %v", err)
				}
			}
		})
	}
	_, a := h.waiting(s.ID, "ls for-lists")
	if l, err := h.m.Approvals.Approvals(t.Context(), bob, client.ApprovalQuery{}); err != nil || len(l.Items) != 0 {
		t.Errorf("another tenant sees %+v, %v", l, err)
	}
	for _, verb := range []error{
		second(h.m.Approvals.Approvals(t.Context(), token, client.ApprovalQuery{})), second(h.m.Approvals.SavedApprovals(t.Context(), token, client.ApprovalQuery{})),
		h.m.Approvals.Revoke(t.Context(), token, "x"), second(h.m.Policy.Explain(t.Context(), token, client.PolicyExplain{})),
	} {
		if codeOfErr(verb) != client.CodeForbidden {
			t.Errorf("for a token: %v", verb)
		}
	}
	h.answer(a, reject)
}

func TestNobodyAnswers(t *testing.T) {
	h, w := asking(t)
	s := h.create(alice, client.SessionCreate{})
	h.reload(func(set *Settings) { set.Approvals.Timeout = 20 * time.Millisecond })
	c := h.call(s.ID, bashCall("ls"))
	if c.Error == nil || c.Error.Code != client.CodeApprovalTimeout || c.Permission.Verdict != "deny" || c.Permission.ApprovalID == "" {
		t.Errorf("%+v, %+v", c.Error, c.Permission)
	}
	if got := w.said(); got != "timeout" {
		t.Errorf("observers heard %q", got)
	}
	h.reload(func(set *Settings) { set.Approvals = approval.Config{None: true} })
	c = h.call(s.ID, bashCall("ls x"))
	if c.Error == nil || c.Error.Code != client.CodeDenied || !strings.Contains(c.Error.Message, "nobody is there") || c.Permission.ApprovalID != "" {
		t.Errorf("%+v, %+v", c.Error, c.Permission)
	}
	if ci := h.create(alice, client.SessionCreate{Profile: "ci"}); true {
		h.reload(func(set *Settings) { set.Approvals = approval.Config{} })
		if c := h.call(ci.ID, bashCall("ls x")); c.Error == nil || c.Error.Code != client.CodeDenied {
			t.Errorf("profile ci: %+v", c.Error)
		}
	}
	if n := len(h.pending()); n != 0 {
		t.Errorf("%d wait", n)
	}
}
