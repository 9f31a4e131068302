package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

func approval(id, command string) client.Approval {
	return client.Approval{
		ID: id, Tenant: "default", SessionID: fakeSession, CallID: "call_" + strings.TrimPrefix(id, "apr_"), Profile: "build", Tool: "bash",
		Requests: []client.ApprovalRequest{{Permission: "bash", Pattern: command, Rule: "config.toml:3", Reason: "who pushes?", Save: "git push *"}},
		Metadata: map[string]any{"command": command, "workdir": "/workspace"}, SHA256: "5ha-" + id,
		Created: time.Now(), Expires: time.Now().Add(10*time.Minute + 30*time.Second),
	}
}

func TestApprovalsList(t *testing.T) {
	hostile := approval("apr_2", "git push\x1b[2K\u202e\nx")
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions": answerWith(client.List[client.Session]{}),
		"GET /v1/approvals": func(w http.ResponseWriter, r *http.Request) {
			switch q := r.URL.Query(); {
			case q.Get("session") == "nobody":
				answerProblem(w, 404, client.CodeNotFound, "no such session")
			case q.Get("after") == "":
				answer(w, 200, client.List[client.Approval]{Items: []client.Approval{approval("apr_1", "git push")}, Next: "apr_1"})
			default:
				answer(w, 200, client.List[client.Approval]{Items: []client.Approval{hostile}})
			}
		},
	})
	for _, args := range [][]string{{"approvals"}, {"approvals", "list", "--session", "review"}, {"approval", "ls"}} {
		r := d.ctl(args...)
		r.want(t, 0, "apr_1  ses_0123  bash  git push ", "")
		r.want(t, 0, `git push\u{1b}[2K\u{202e}\nx`, "")
		r.want(t, 0, "expires in 10m", "")
	}
	if q := d.asked("GET", "/approvals")[2].query; q != "session=review&tenant=%2A" {
		t.Errorf("query %q", q)
	}
	d.ctl("approvals", "-o", "name").want(t, 0, "apr_1\napr_2\n", "")
	var l client.List[client.Approval]
	decode(t, []byte(d.ctl("approvals", "-o", "json").stdout), &l)
	if len(l.Items) != 2 || l.Items[1].Metadata["command"] != hostile.Metadata["command"] {
		t.Errorf("json %+v", l)
	}
	d.ctl("approvals", "list", "--session", "nobody").want(t, 4, "", "no session is named")
	d.ctl("approvals", "lst").want(t, 2, "", `did you mean "list"`)
}

func TestApprovalsAnswer(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{
		"POST /v1/approvals/{id}": func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("id") == "apr_9" {
				answerProblem(w, 403, client.CodeForbidden, "you made the call")
				return
			}
			a := approval("apr_1", "git push")
			a.Reply = &client.ApprovalReply{ID: "apr_1", Saved: []client.SavedApproval{{ID: "apr_1.1", Permission: "bash", Pattern: "rm -rf ./tmp"}}}
			answer(w, 200, a)
		},
	})
	for _, tt := range []struct {
		args []string
		body string
		says string
	}{
		{[]string{"once"}, `{"answer":"once"}`, "apr_1: call_1 is allowed, once\n"},
		{
			[]string{"always"},
			`{"answer":"always"}`,
			"is allowed, always in this session\n  from now on allowed: bash rm -rf ./tmp (to take it back: toolctl approvals saved rm apr_1.1)\n",
		},
		{
			[]string{"always", "--scope", "tenant", "--expires", "12h", "--sha256", "ab"},
			`{"answer":"always","scope":"tenant","expires":"12h","sha256":"ab"}`, "always in this tenant for 12h\n",
		},
		{[]string{"reject", "--message", "use\nthe queue"}, `{"answer":"reject","message":"use\nthe queue"}`, "is rejected\n"},
	} {
		d.ctl(append([]string{"approvals", "answer", "apr_1"}, tt.args...)...).want(t, 0, tt.says, "")
		all := d.asked("POST", "/approvals/apr_1")
		if got := string(all[len(all)-1].body); got != tt.body {
			t.Errorf("%v: sent %s, want %s", tt.args, got, tt.body)
		}
	}
	d.ctl("approvals", "answer", "apr_9", "once").want(t, 3, "", "you made the call")
	before := len(d.asked("POST", ""))
	for _, tt := range []struct{ args, stderr string }{
		{"apr_1 onse", `did you mean "once"`},
		{"apr_1 once --scope tenant", "are of always"},
		{"apr_1 once --expires 1h", "are of always"},
		{"apr_1 always --message x", "is of reject"},
		{"apr_1 always --scope tennant", `did you mean "tenant"`},
		{"apr_1 always --expires soon", "not a duration"},
		{"apr_1 always --expires -1h", "in the future"},
		{"apr_1", "write one of once, always, reject"},
		{"call_1 once", "is not the id of an approval"},
		{"apr_/../x once", "is not the id of an approval"},
		{"apr_.. once", "is not the id of an approval"},
	} {
		d.ctl(append([]string{"approvals", "answer"}, strings.Fields(tt.args)...)...).want(t, 2, "", tt.stderr)
	}
	if after := len(d.asked("POST", "")); after != before {
		t.Errorf("%d requests were sent for what is refused here", after-before)
	}
}

func TestApprovalsSaved(t *testing.T) {
	until := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	saved := []client.SavedApproval{
		{ID: "apr_1.1", Scope: client.ScopeSession, SessionID: fakeSession, Permission: "bash", Pattern: "git *\x1b", By: "uid 0"},
		{ID: "apr_2.1", Scope: client.ScopeProfile, Profile: "plan", Permission: "edit", Pattern: "*.go", By: "uid 0", Expires: &until},
		{ID: "apr_3.1", Scope: client.ScopeTenant, Permission: "read", Pattern: ".env", By: "uid 7"},
	}
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/approvals/saved": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("after") == "" {
				answer(w, 200, client.List[client.SavedApproval]{Items: saved[:1], Next: "apr_1.1"})
				return
			}
			answer(w, 200, client.List[client.SavedApproval]{Items: saved[1:]})
		},
		"DELETE /v1/approvals/saved/{id}": func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("id") == "apr_9.1" {
				answerProblem(w, 404, client.CodeNotFound, "nothing of that id is saved")
				return
			}
			w.WriteHeader(http.StatusNoContent)
		},
	})
	for _, args := range [][]string{{"approvals", "saved"}, {"approvals", "saved", "list"}} {
		r := d.ctl(args...)
		r.want(t, 0, `apr_1.1  session ses_0123  bash git *\u{1b}  uid 0`, "")
		r.want(t, 0, "profile plan", "")
		r.want(t, 0, "2030-01-02T", "")
	}
	d.ctl("approvals", "saved", "-o", "name").want(t, 0, "apr_1.1\napr_2.1\napr_3.1\n", "")
	d.ctl("approvals", "saved", "rm", "apr_1.1").want(t, 0, "apr_1.1 is revoked\n", "")
	d.ctl("approvals", "saved", "rm", "apr_9.1", "apr_2.1").want(t, 4, "apr_2.1 is revoked\n", "revoke apr_9.1: nothing of that id is saved")
	d.ctl("approvals", "saved", "rm", "x").want(t, 2, "", "is not the id of an approval")
}

// TestCallWaits: who waits for a call hears that somebody must allow it.
func TestCallWaits(t *testing.T) {
	denied := client.Call{ID: fakeCall, SessionID: fakeSession, Tool: "bash", Status: client.CallError, Error: &client.Error{Code: client.CodeDenied, Message: "rejected by uid 0"}}
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions": answerWith(client.List[client.Session]{Items: []client.Session{session()}}),
		"POST /v1/sessions/{id}/calls": func(w http.ResponseWriter, r *http.Request) {
			final := denied
			var req client.CallCreate
			if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
				t.Error(err)
			}
			final.Tool = req.Tool
			if req.WaitMillis != nil {
				final.Status, final.Permission = client.CallPending, &client.CallPermission{Verdict: "ask", Rule: "config.toml:3", ApprovalID: "apr_1"}
				answer(w, 202, final)
				return
			}
			sendEvent(w, "pending", client.Call{ID: final.ID, SessionID: final.SessionID, Status: client.CallPending})
			sendEvent(w, client.EventApprovalAsked, approval("apr_1", "git push"))
			sendEvent(w, client.EventApprovalReplied, client.ApprovalReply{ID: "apr_1", Answer: "reject", By: "uid 0", Message: "no\x1b[2J"})
			sendEvent(w, string(final.Status), final)
		},
	})
	const asks = "; Ctrl-C aborts the call\ntoolctl: approval apr_1: reject by uid 0: no\\x1b[2J\ntoolctl: rejected by uid 0\n"
	for _, tt := range []struct {
		args string
		code int
	}{
		{"bash", 126},
		{"bash --stream", 126},
		{"bash --stream -o json", 126},
		{"edit", 3},
	} {
		r := d.ctl(append([]string{"call", "review"}, strings.Fields(tt.args)...)...)
		r.want(t, tt.code, "", asks)
	}
	d.ctl("call", "review", "bash", "--wait", "1s").want(t, 5, "", "call_0123 waits for approval apr_1 (asked by config.toml:3)")
}

// TestApprovalCompletions: the tab key knows what can be answered and revoked.
func TestApprovalCompletions(t *testing.T) {
	edit := approval("apr_2", "x")
	edit.Tool, edit.Metadata = "edit", map[string]any{"path": "a\tb", "diff": "+x"}
	other := approval("apr_3", "x")
	other.Tool, other.Metadata = "grep", map[string]any{}
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/approvals":       answerWith(client.List[client.Approval]{Items: []client.Approval{approval("apr_1", "git push"), edit, other}}),
		"GET /v1/approvals/saved": answerWith(client.List[client.SavedApproval]{Items: []client.SavedApproval{{ID: "apr_1.1", Permission: "bash", Pattern: "git *"}}}),
		"GET /v1/tools":           answerWith(client.List[client.ToolDefinition]{Items: policyTools}),
	})
	for _, tt := range []struct{ args, want string }{
		{"approvals answer |", "apr_1\tbash git push\napr_2\tedit a\\tb\napr_3\tgrep bash x\n"},
		{"approvals answer apr_1 |", "once\nalways\nreject\n"},
		{"approvals answer apr_1 once |", ":4\n"},
		{"approvals answer apr_1 always --scope |", "session\nprofile\ntenant\n"},
		{"approvals saved rm |", "apr_1.1\tbash git *\n"},
		{"policy explain |", "bash\nedit\n"},
		{"policy explain bash |", ":4\n"},
		{"run --profile |", "plan\t"},
	} {
		args := strings.Fields("__complete " + tt.args)
		args[len(args)-1] = ""
		d.ctl(args...).want(t, 0, tt.want, "")
	}
	for _, args := range []string{"approvals answer |", "approvals saved rm |"} {
		args := strings.Fields("__complete " + args)
		args[len(args)-1] = ""
		ctl(t, t.Context(), "", append(args[:1:1], append([]string{"--socket", "/nonexistent"}, args[1:]...)...)...).want(t, 0, ":4\n", "")
	}
}
