package session

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/hook"
)

func TestHookSessionCreated(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name, script string
		open         bool
		message      string // "" = it is created
	}{
		{name: "says nothing", script: "cat > " + dir + "/event"},
		{name: "allows", script: `echo '{"action":"allow"}'`},
		{name: "denies", script: `echo '{"action":"deny","reason":"no more today"}'`, message: "the session was refused by hook hook.sh: no more today"},
		{name: "fails", script: "exit 1", message: "the session was refused by hook hook.sh: hook.sh failed: exit status 1"},
		{name: "fails, open", script: "exit 1", open: true},
		{name: "wants an input", script: `echo '{"action":"allow","input":{}}'`, message: `key "input" does not belong`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			hk := scripted(t, hook.SessionCreated, tt.script)
			hk.FailOpen = tt.open
			h.set.Hooks = []hook.Hook{hk}
			h.open()
			s, err := h.m.Create(t.Context(), alice, client.SessionCreate{Name: "n", Token: true})
			if tt.message == "" {
				if err != nil || s.State != client.SessionReady {
					t.Fatalf("%+v, %v", s, err)
				}
				return
			}
			if codeOfErr(err) != client.CodeDenied || !strings.Contains(err.Error(), tt.message) {
				t.Fatalf("got %v", err)
			}
			list, err := h.m.List(t.Context(), alice, client.SessionQuery{})
			if err != nil || len(list.Items) != 0 || len(h.host.boxes) != 0 {
				t.Errorf("left: %+v, %d sandboxes, %v", list.Items, len(h.host.boxes), err)
			}
		})
	}
	var e hook.Event
	text, err := os.ReadFile(dir + "/event")
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil || e.Event != hook.SessionCreated || e.Session.Name != "n" || e.Session.State != client.SessionCreating || e.Call != nil || strings.Contains(string(text), auth.TokenPrefix) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestHookSessionEnded(t *testing.T) {
	dir := t.TempDir()
	h, o, id := hooked(t, scripted(t, hook.SessionEnded, "cat > "+dir+"/event; exit 1"))
	if _, err := h.m.End(t.Context(), alice, id, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	var e hook.Event
	text, err := os.ReadFile(dir + "/event")
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil || e.Event != hook.SessionEnded || e.Session.State != client.SessionEnded || e.Session.Reason == "" {
		t.Errorf("%v: %s", err, text)
	}
	if !o.of("session.ended failed") {
		t.Errorf("hooks: %q", o.hooks)
	}
}
