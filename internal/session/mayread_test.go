package session

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool/run/readrule"
)

func TestMayRead(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, `
[permission]
edit = "allow"
[permission.read]
"*" = "allow"
"secret/*" = { action = "deny", reason = "keys of customers" }
"**/.env" = "ask"
[profile.blind.permission]
read = "deny"
`)
	h.open()
	plain := h.create(alice, client.SessionCreate{Permission: []client.RuleOf{{Permission: "read", Pattern: "own", Action: "deny"}}})
	s, err := h.m.find(alice, plain.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		profile, path string
		want          policy.Action
		why           string
	}{
		{"", "/workspace/a", policy.Allow, ""},
		{"", "/workspace/secret/key", policy.Deny, `reading it is denied by config.toml:6 (read "secret/*"): keys of customers`},
		{"", "/elsewhere/secret/key", policy.Allow, ""},
		{"", "/workspace/sub/.env", policy.Ask, `reading it would need an approval by config.toml:7 (read "**/.env")`},
		{"", "/workspace/own", policy.Deny, `reading it is denied by session rule 1 (read "own")`},
		{"blind", "/workspace/a", policy.Deny, `reading it is denied by config.toml:9 (read "*")`},
		{"gone", "/workspace/a", policy.Deny, ""},
	} {
		v := s.judge.MayRead(tt.profile, tt.path)
		if v.Action != tt.want || tt.why != "" && judge.NotReadable(&v) != tt.why {
			t.Errorf("profile %q, %s: %s, %q", tt.profile, tt.path, v.Action, judge.NotReadable(&v))
		}
	}
}

// TestToolsAreGivenTheRules: tools that show many files get the rules of the session
// and its profile, where these leave anything out, and what these say is what mayRead
// says.
func TestToolsAreGivenTheRules(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, `
[permission]
edit = "allow"
bash = "allow"
[profile.ci.permission]
edit = "allow"
bash = "allow"
[profile.strict.permission]
edit = "allow"
bash = "allow"
read = { "secret/*" = "deny" }
`)
	h.open()
	inputs := map[string]string{
		"grep": `{"pattern":"x"}`, "glob": `{"pattern":"x"}`, "list": `{"path":"/workspace"}`, "read": `{"file_path":"x"}`,
		"edit": `{"file_path":"x","old_string":"","new_string":"y"}`, "write": `{"file_path":"x","content":""}`, "bash": `{"command":"true"}`,
	}
	for _, tt := range []struct{ profile, tools string }{
		{"", "grep"}, // by default .env is asked about, whose name may be shown
		{"ci", "grep glob list read edit write bash"}, // all may name what is like a path that is not there
		{"strict", "grep glob list read edit write bash"},
	} {
		s := h.create(alice, client.SessionCreate{Profile: tt.profile})
		live, err := h.m.find(alice, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range []string{"grep", "glob", "list", "read", "edit", "write", "bash"} {
			c := h.call(s.ID, client.CallCreate{Tool: name, Input: json.RawMessage(inputs[name])})
			asked := h.host.box(s.ID).lastRequest()
			if asked.CallID != c.ID {
				t.Fatalf("profile %q: %s did not run: %v", tt.profile, name, c.Error)
			}
			raw := asked.Settings
			if raw == nil {
				continue
			}
			got = append(got, name)
			var settings struct {
				Rules readrule.Rules `json:"read_rules"`
			}
			if err := json.Unmarshal(raw, &settings); err != nil {
				t.Fatal(err)
			}
			settings.Rules.Compile()
			for _, path := range []string{"/workspace/a", "/workspace/.env", "/workspace/x/.env", "/workspace/secret/a", "/etc/.env.example"} {
				v := live.judge.MayRead(tt.profile, path)
				if action, source := settings.Rules.Judge(path); action != string(v.Action) || source != v.Rule {
					t.Errorf("profile %q, %s: the sandbox is told %s by %s, mayRead says %s by %s", tt.profile, path, action, source, v.Action, v.Rule)
				}
			}
		}
		if strings.Join(got, " ") != tt.tools {
			t.Errorf("profile %q: %q are given rules, want %q", tt.profile, got, tt.tools)
		}
	}
}
