package session

import (
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
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
		v := s.mayRead(tt.profile, tt.path)
		if v.Action != tt.want || tt.why != "" && notReadable(&v) != tt.why {
			t.Errorf("profile %q, %s: %s, %q", tt.profile, tt.path, v.Action, notReadable(&v))
		}
	}
}
