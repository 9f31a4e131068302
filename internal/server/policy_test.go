package server

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// TestApprovals: what the routes make of requests is what reaches the session.
func TestApprovals(t *testing.T) {
	d := start(t, nil)
	c, ctx := d.client(client.Options{}), t.Context()
	l, err := c.ListApprovals(ctx, client.ApprovalQuery{Session: "ses_1", After: "apr_0", Limit: 7})
	if err != nil || len(l.Items) != 1 || l.Items[0].Requests[0].Save != "git push *" || l.Next != "apr_9" {
		t.Errorf("ListApprovals = %+v, %v", l, err)
	}
	if want := (client.ApprovalQuery{Session: "ses_1", After: "apr_0", Limit: 7}); d.api.filter != any(want) {
		t.Errorf("filter = %+v, want %+v", d.api.filter, want)
	}
	saved, err := c.ListSavedApprovals(ctx, client.ApprovalQuery{Session: "work"})
	if err != nil || len(saved.Items) != 1 || saved.Items[0].ID != fakeSaved {
		t.Errorf("ListSavedApprovals = %+v, %v", saved, err)
	}
	answer := client.ApprovalAnswer{Answer: client.AnswerAlways, Scope: client.ScopeProfile, Expires: "12h", SHA256: "ab"}
	a, err := c.AnswerApproval(ctx, fakeApproval, answer)
	if err != nil || a.ID != fakeApproval || d.api.filter != any(answer) {
		t.Errorf("AnswerApproval = %+v, %v; the session saw %+v", a, err, d.api.filter)
	}
	if err := c.RevokeApproval(ctx, fakeSaved); err != nil {
		t.Error(err)
	}
}

// TestApprovalIDs: what can be no id is refused before anything sees it.
func TestApprovalIDs(t *testing.T) {
	d := start(t, nil)
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"POST", "/v1/approvals/apr_1", 200},
		{"POST", "/v1/approvals/apr_2", 404},
		{"POST", "/v1/approvals/call_1", 400},
		{"POST", "/v1/approvals/apr_", 400},
		{"POST", "/v1/approvals/apr_..", 400},
		{"POST", "/v1/approvals/%2e%2e", 400},
		{"POST", "/v1/approvals/apr_%00", 400},
		{"POST", "/v1/approvals/apr_" + strings.Repeat("a", 300), 400},
		{"POST", "/v1/approvals/saved", 405},
		{"GET", "/v1/approvals/apr_1", 405},
		{"DELETE", "/v1/approvals/saved/apr_0.1", 204},
		{"DELETE", "/v1/approvals/saved/apr_0.2", 404},
		{"DELETE", "/v1/approvals/saved/saved", 400},
		{"DELETE", "/v1/approvals/saved/apr_", 400},
		{"DELETE", "/v1/approvals/saved/apr_1%2f..", 400},
		{"DELETE", "/v1/approvals/saved/apr_1%0a", 400},
	} {
		body := ""
		if tt.method == "POST" {
			body = `{"answer":"once"}`
		}
		if resp, text := send(t, d.socket, tt.method, tt.path, body); resp.StatusCode != tt.status {
			t.Errorf("%s %s: %d %s, want %d", tt.method, tt.path, resp.StatusCode, text, tt.status)
		}
	}
}

// TestApprovalsOfOthers: another tenant's approval, saved or pending, is answered
// like one that does not exist, byte for byte; the holder of a session's token
// may not even ask.
func TestApprovalsOfOthers(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{Token: true})
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/v1/approvals/ID", `{"answer":"once"}`},
		{"DELETE", "/v1/approvals/saved/ID", ""},
	} {
		theirs, unknown := fakeApproval, "apr_7"
		if tt.method == "DELETE" {
			theirs, unknown = fakeSaved, "apr_7.1"
		}
		ask := func(id string, header ...string) string {
			resp, text := d.do(t, tt.method, strings.Replace(tt.path, "ID", id, 1), tt.body, header...)
			return fmt.Sprint(resp.StatusCode, len(resp.Header), strings.ReplaceAll(text, id, "ID"))
		}
		if a, b := ask(theirs, "Toold-Tenant", "a"), ask(unknown, "Toold-Tenant", "a"); a != b || !strings.HasPrefix(a, "404") {
			t.Errorf("%s: foreign %q, unknown %q; want the same 404", tt.path, a, b)
		}
		for _, id := range []string{theirs, unknown} {
			if got := ask(id, "Authorization", "Bearer "+s.Token); !strings.HasPrefix(got, "403") {
				t.Errorf("%s with a session's token: %s, want 403", tt.path, got)
			}
		}
		if got := ask(theirs); strings.HasPrefix(got, "4") { // the control
			t.Errorf("%s by the tenant's user: %s", tt.path, got)
		}
	}
}

// TestAnswerBodies: an answer is strict JSON.
func TestAnswerBodies(t *testing.T) {
	d := start(t, nil)
	for _, body := range []string{
		"", "{", `"once"`, `{"answer":"once","answer":"reject"}`, `{"Answer":"once"}`, `{"answer":"once","scop":"tenant"}`, `{"answer":["once"]}`,
	} {
		if resp, text := d.do(t, "POST", "/v1/approvals/apr_1", body, "Content-Type", "application/json"); resp.StatusCode != 400 {
			t.Errorf("%s: %d %s, want 400", body, resp.StatusCode, text)
		}
	}
}

// TestExplain: everybody may ask for their own tenant, admins for any.
func TestExplain(t *testing.T) {
	d := start(t, nil)
	c, ctx := d.client(client.Options{}), t.Context()
	ask := client.PolicyExplain{Tool: "bash", Input: json.RawMessage(`{"command":"ls"}`), Profile: "plan", Session: "ses_1"}
	for _, tt := range []struct {
		acting, tenant, want string
	}{
		{"", "", auth.DefaultTenant},
		{"", "a", "a"},
		{"b", "", "b"},
		{"b", "b", "b"},
	} {
		ask.Tenant = tt.tenant
		v, err := d.client(client.Options{Tenant: tt.acting}).ExplainPolicy(ctx, ask)
		want := ask
		want.Tenant = tt.want
		if err != nil || v.Action != "allow" || !reflect.DeepEqual(d.api.filter, want) || d.api.seen().Tenant != tt.want {
			t.Errorf("%+v: %+v, %v; the session saw %+v of %q", tt, v, err, d.api.filter, d.api.seen().Tenant)
		}
	}
	ask.Tenant = "nobody"
	if _, err := c.ExplainPolicy(ctx, ask); asError(t, err).Code != client.CodeInvalidRequest {
		t.Errorf("an unknown tenant: %v", err)
	}
}

// TestExplainForeign: a tenant's user does not learn another one's rules.
func TestExplainForeign(t *testing.T) {
	needRoot(t)
	d := start(t, nil)
	ask := func(tenant string) int {
		body := fmt.Sprintf(`{"tool":"bash","input":{},"tenant":%q}`, tenant)
		return post(t, d.dialAs(t, 40001, 40001), "/v1/policy/explain", body)
	}
	if got := ask("b"); got != 403 {
		t.Errorf("about another tenant: %d, want 403", got)
	}
	if got := ask("a"); got != 200 {
		t.Errorf("about the own tenant: %d, want 200", got)
	}
	if got := post(t, d.dialAs(t, 40001, 40001), "/v1/policy/replay", `{"rules":""}`); got != 403 {
		t.Errorf("replay: %d, want 403", got)
	}
}

func TestReplayLimit(t *testing.T) {
	d := start(t, nil)
	_, err := d.client(client.Options{}).ReplayPolicy(t.Context(), client.PolicyReplay{Limit: -1})
	if e := asError(t, err); e.Code != client.CodeInvalidRequest || !strings.Contains(e.Message, "negative") {
		t.Errorf("a negative limit: %v", err)
	}
}
