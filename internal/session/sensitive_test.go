package session

import (
	"encoding/json"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
)

func TestSensitiveChanges(t *testing.T) {
	needs.OpenAt2(t)
	tests := []struct {
		name  string
		says  string // what the agent says
		mode  client.WorktreeMode
		calls int
		end   func(h *house, id string)
		want  client.SensitiveChanges
	}{
		{name: "nothing changed", says: "{}", calls: 1},
		{name: "no call", says: `{"sensitive": [".git/config"]}`},
		{name: "read-only", says: `{"sensitive": [".git/config"]}`, mode: client.WorktreeRO, calls: 1},
		{name: "changed", says: `{"sensitive": [".git/config"], "build": ["Makefile"]}`, calls: 1, want: client.SensitiveChanges{
			Changed: []string{".git/config"}, Build: []string{"Makefile"},
		}},
		{name: "no answer", says: "[]", calls: 1, want: client.SensitiveChanges{Unchecked: "the agent gave an invalid answer"}},
		{name: "the agent died", calls: 1, end: func(h *house, id string) { h.host.box(id).die() }, want: client.SensitiveChanges{Unchecked: "the session is lost"}},
		{name: "by force while a call ran", calls: 1, end: func(h *house, id string) {
			h.background(id, "hold")
			box := h.host.box(id)
			testrig.Eventually(h.t, "the call runs", func() bool { box.mu.Lock(); defer box.mu.Unlock(); return len(box.runs) == 2 })
			if _, err := h.m.End(h.t.Context(), alice, id, client.EndOptions{Force: true}); err != nil {
				h.t.Error(err)
			}
		}, want: client.SensitiveChanges{Unchecked: "calls were still running when the session was ended by force"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			dir := t.TempDir()
			h.set.WorktreeRoots = []string{dir}
			h.host.changes = tt.says
			h.set.Worktrees.Sensitive = []string{"*.hcl"}
			h.open()
			s, err := h.m.Create(t.Context(), auth.Principal{UID: 0, Tenant: "a", Admin: true}, client.SessionCreate{
				Worktree: client.Worktree{Source: dir, Mode: tt.mode, Sensitive: &client.SensitiveChanges{Changed: []string{"made up"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			for range tt.calls {
				h.call(s.ID, bashCall("echo x"))
			}
			if tt.end != nil {
				tt.end(h, s.ID)
			} else if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{}); err != nil {
				t.Fatal(err)
			}
			var got *client.Session
			testrig.Eventually(t, "the session is over", func() bool {
				got, err = h.m.Get(t.Context(), alice, s.ID)
				return err == nil && got.Ended != nil
			})
			if says := h.host.watched; says != "" && says != `{"more":["*.hcl"]}` {
				t.Errorf("the agent is asked %s", says)
			}
			if want := toJSON(t, tt.want); toJSON(t, got.Worktree.Sensitive) != want && (want != "{}" || got.Worktree.Sensitive != nil) {
				t.Errorf("%s, want %s", toJSON(t, got.Worktree.Sensitive), want)
			}
		})
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
