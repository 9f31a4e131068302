package session

import (
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
)

// inWorktree makes a session whose worktree has this rules file.
func (h *house) inWorktree(rules string) (*client.Session, error) {
	dir := h.t.TempDir()
	h.reload(func(set *Settings) { set.WorktreeRoots = []string{dir} })
	h.host.mu.Lock()
	h.host.rules = rules
	h.host.mu.Unlock()
	p := auth.Principal{UID: 0, Tenant: "a", Admin: true}
	return h.m.Create(h.t.Context(), p, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
}

func TestWorktreeRules(t *testing.T) {
	needs.OpenAt2(t)
	h := newHouse(t)
	h.set.Policy = rules(t, `permission = { bash = { "*" = "allow", "rm *" = "deny" } }`)
	h.open()
	s, err := h.inWorktree("[permission.bash]\n\"rm *\" = \"allow\"\n\"curl *\" = \"deny\"\n")
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		for command, want := range map[string]string{"echo x": "", "rm x": "config.toml:1", "curl x": "/workspace/.toold/policy.toml:3"} {
			c := h.call(s.ID, bashCall(command))
			if want == "" != (c.Error == nil) || c.Error != nil && !strings.Contains(c.Error.Message, want) {
				t.Errorf("%s: %+v", command, c.Error)
			}
		}
	}
	check()
	// What calls make of the file has no effect, also for another daemon.
	h.host.rules = "permission = \"deny\""
	h.stop()
	h.open()
	check()
	box := h.host.box(s.ID)
	testrig.Eventually(t, "the agent holds no call", func() bool {
		box.mu.Lock()
		defer box.mu.Unlock()
		return len(box.calls) == 0
	})
}

// Who asks for the rules of a session that is being made does not fix them
// before the worktree's are known.
func TestWorktreeRulesAskedForEarly(t *testing.T) {
	needs.OpenAt2(t)
	h := newHouse(t)
	h.open()
	p := auth.Principal{UID: 0, Tenant: "a", Admin: true}
	asked := 0
	h.host.onRules = func() {
		all, err := h.m.List(t.Context(), p, client.SessionQuery{})
		if err != nil || len(all.Items) != 1 {
			t.Errorf("sessions %+v, %v", all.Items, err)
			return
		}
		asked++
		if _, err := h.m.Policy.Explain(t.Context(), p, client.PolicyExplain{Session: all.Items[0].ID, Tool: "bash", Input: bashCall("curl x").Input}); err != nil {
			t.Error(err)
		}
	}
	s, err := h.inWorktree("[permission.bash]\n\"curl *\" = \"deny\"\n")
	if err != nil || asked == 0 {
		t.Fatalf("asked %d times, %v", asked, err)
	}
	if c := h.call(s.ID, bashCall("curl x")); c.Error == nil || c.Error.Code != client.CodeDenied {
		t.Errorf("the worktree's rule is lost: %+v", c.Error)
	}
}

func TestBadWorktreeRules(t *testing.T) {
	needs.OpenAt2(t)
	h := newHouse(t)
	h.open()
	for _, tt := range []struct {
		name, rules string
		says        string
	}{
		{"no TOML", "permission = [", "policy.toml"},
		{"another section", "[daemon]\nsocket = \"x\"\n", "daemon"},
		{"a bad action", "permission = { bash = \"perhaps\" }", "perhaps"},
		{"too long", strings.Repeat("# long\n", 20000), "65536"},
		{"a link out", "link:/etc/passwd", "out of the worktree"},
		{"no file", "fail:it is a fifo", "fifo"},
		{"unreadable", "result:permission denied", "permission denied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := h.inWorktree(tt.rules)
			if codeOfErr(err) != client.CodeInvalidRequest || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), ".toold/policy.toml") {
				t.Errorf("got %v", err)
			}
		})
	}
	if n := len(h.host.boxes); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	if _, err := h.inWorktree(""); err != nil {
		t.Errorf("no rules: %v", err)
	}
}

func TestRulesOfASession(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, "[tenant.a]\nuids = [1000]\nprofiles = [\"build\", \"explore\"]\n[tenant.a.permission]\nedit = { \"secret*\" = \"deny\" }\n")
	h.open()
	for _, tt := range []struct {
		r    client.SessionCreate
		says string
	}{
		{client.SessionCreate{Profile: "plan"}, "build, explore"},
		{client.SessionCreate{Profile: "nonsense"}, "nonsense"},
		{client.SessionCreate{Permission: []client.RuleOf{{Permission: "bash", Pattern: "*", Action: "perhaps"}}}, "perhaps"},
	} {
		if _, err := h.m.Create(t.Context(), alice, tt.r); codeOfErr(err) != client.CodeInvalidRequest || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v", tt.r, err)
		}
	}
	if n := len(h.host.boxes); n != 0 {
		t.Errorf("%d sandboxes", n)
	}
	s := h.create(alice, client.SessionCreate{Permission: []client.RuleOf{{Permission: "bash", Pattern: "*", Action: "deny"}}})
	tools := func(f client.ToolQuery) string {
		t.Helper()
		all, err := h.m.Tools.Tools(t.Context(), alice, f)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range all.Tools {
			names = append(names, d.Name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if got := tools(client.ToolQuery{Session: s.ID}); strings.Contains(got, "bash") || !strings.Contains(got, "read") {
		t.Errorf("of the session: %s", got)
	}
	if got := tools(client.ToolQuery{Profile: "explore"}); strings.Contains(got, "edit") || !strings.Contains(got, "bash") {
		t.Errorf("of explore: %s", got)
	}
	if got := tools(client.ToolQuery{Session: s.ID, Profile: "explore"}); strings.Contains(got, "bash") || strings.Contains(got, "edit") {
		t.Errorf("of both: %s", got)
	}
	if _, err := h.m.Tools.Tools(t.Context(), alice, client.ToolQuery{Profile: "plan"}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("a profile that is not the tenant's: %v", err)
	}
	explore, plan := "explore", "plan"
	if _, err := h.m.Patch(t.Context(), alice, s.ID, client.SessionPatch{Profile: &plan}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("patch: %v", err)
	}
	if c := h.call(s.ID, writeCall("secret.txt")); c.Error == nil || !strings.Contains(c.Error.Message, "config.toml:5") {
		t.Errorf("the tenant's rule: %+v", c.Error)
	}
	if c := h.call(s.ID, writeCall("x")); c.Error != nil {
		t.Errorf("before the patch: %+v", c.Error)
	}
	if _, err := h.m.Patch(t.Context(), alice, s.ID, client.SessionPatch{Profile: &explore}); err != nil {
		t.Error(err)
	}
	if c := h.call(s.ID, writeCall("x")); c.Error == nil || !strings.Contains(c.Error.Message, "explore") {
		t.Errorf("after the patch: %+v", c.Error)
	}
}

// TestDoubtsAreNotes: rules of a session or its worktree that cannot do what they say are notes of one
// that has a network, a few of them.
func TestDoubtsAreNotes(t *testing.T) {
	t.Parallel()
	row := &store.Session{WorktreeRules: "[permission.http]\n\"* http://h.example//x*\" = \"deny\"\n"}
	row.Worktree.Target = "/workspace"
	row.Request.Permission = []client.RuleOf{{Permission: "http", Pattern: "* https://h.example/*", Action: "deny"}}
	if got := doubtsOf(row); got != nil {
		t.Errorf("without a network: %q", got)
	}
	row.Network.Mode = client.NetworkRules
	got := doubtsOf(row)
	if len(got) != 2 || !strings.HasPrefix(got[0], "session rule 1: ") || !strings.HasPrefix(got[1], "/workspace/.toold/policy.toml:2: ") {
		t.Errorf("%q", got)
	}
	for range 10 {
		row.Request.Permission = append(row.Request.Permission, row.Request.Permission[0])
	}
	if got = doubtsOf(row); len(got) != maxDoubts+1 || !strings.HasPrefix(got[maxDoubts], "and 7 more") {
		t.Errorf("%q", got)
	}
}
