package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/testrig"
)

// TestTitleWhileItRuns: a call says what it is about before it has a result, on every
// way to see it, and after a restart.
func TestTitleWhileItRuns(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	c := h.call(s.ID, client.CallCreate{Tool: "bash", Input: json.RawMessage(`{"command":"hold","description":"wait\u001b[31m"}`), WaitMillis: new(int64)})
	const want = "wait [31m"
	titles := func(when string) {
		t.Helper()
		testrig.Eventually(t, "it holds", func() bool { return h.host.box(s.ID).holding.Load() == 1 })
		got, err := h.m.calls.GetCall(t.Context(), alice, c.ID)
		if err != nil || got.Status != client.CallRunning || got.Title != want {
			t.Errorf("%s: %+v, %v", when, got, err)
		}
		list, err := h.m.calls.ListCalls(t.Context(), alice, s.ID, client.CallQuery{})
		if err != nil || len(list.Items) != 1 || list.Items[0].Title != want {
			t.Errorf("%s, in the list: %+v, %v", when, list, err)
		}
	}
	titles("running")
	h.stop()
	h.open()
	titles("after a restart")
	h.host.box(s.ID).release()
	h.finished(c.ID)
	events, err := h.m.Events.Events(t.Context(), alice, event.Filter{Session: s.ID, Type: "call.running", Stored: true})
	if err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if e.Type != client.EventEnd && !strings.Contains(string(e.Data), `"title":"wait [31m"`) {
			t.Errorf("%s: %s", e.Type, e.Data)
		}
	}
	// One that failed without a result keeps it.
	r := bashCall("hold")
	r.WaitMillis = new(int64)
	lost := h.call(s.ID, r)
	testrig.Eventually(t, "it holds", func() bool { return h.host.box(s.ID).holding.Load() == 1 })
	h.host.box(s.ID).die()
	if got := h.finished(lost.ID); got.Status != client.CallError || got.Title != "hold" {
		t.Errorf("lost: %+v", got)
	}
}

// TestRealTitles: the title of a running call is the one that its result has.
func TestRealTitles(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, ``, map[string]string{"src/a.go": "package a\n", " odd\n": "x\n"})
	if err := os.Symlink("src", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ü", 100)
	for _, tt := range []struct {
		tool  string
		input object
		want  string
	}{
		{"bash", object{"command": "\n  echo a\necho b"}, "echo a"},
		{"bash", object{"command": "echo a", "description": "Print a"}, "Print a"},
		{"bash", object{"command": "cat", "stdin": "x", "workdir": "src"}, "cat"},
		{"bash", object{"command": "echo " + long}, ""},
		{"bash", object{"command": "true", "description": long + long + long}, ""},
		{"read", object{"file_path": "src/a.go"}, "src/a.go"},
		{"read", object{"file_path": "/workspace/./src/../src/a.go"}, "src/a.go"},
		{"read", object{"file_path": "link/a.go"}, "src/a.go"},
		{"read", object{"file_path": " odd\n"}, `" odd\n"`},
		{"read", object{"file_path": "/etc/passwd"}, "/etc/passwd"},
		{"read", object{"file_path": "."}, "/workspace"},
		{"read", object{"file_path": "none"}, "none"},
		{"write", object{"file_path": "new/b.txt", "content": "x"}, "new/b.txt"},
		{"edit", object{"file_path": "link/a.go", "old_string": "package", "new_string": "// a\npackage"}, "src/a.go"},
		{"edit", object{"file_path": "src/a.go", "old_string": "nowhere", "new_string": "x"}, "src/a.go"},
		{"glob", object{"pattern": "**/*.go"}, "**/*.go"},
		{"glob", object{"pattern": "*\n", "path": "src"}, `"*\n"`},
		{"grep", object{"pattern": "pack age"}, "pack age"},
		{"grep", object{"pattern": "(", "path": "src"}, "("},
		{"list", object{}, "/workspace"},
		{"list", object{"path": "src"}, "src"},
	} {
		input, err := json.Marshal(tt.input)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		running := map[string]string{}
		c, err := m.calls.Call(t.Context(), alice, s.ID, client.CallCreate{Tool: tt.tool, Input: input}, call.Options{OnEvent: func(e client.Event) {
			var v client.Call
			if e.Type == "running" && json.Unmarshal(e.Data, &v) == nil {
				mu.Lock()
				running[e.Call] = v.Title
				mu.Unlock()
			}
		}})
		if err != nil || c.Error != nil {
			t.Fatalf("%s %s: %+v, %v", tt.tool, input, c, err)
		}
		mu.Lock()
		got, ran := running[c.ID]
		mu.Unlock()
		if c.Title == "" || ran && got != c.Title || tt.want != "" && c.Title != tt.want {
			t.Errorf("%s %s: running (%t) it was %q, then %q, want %q", tt.tool, input, ran, got, c.Title, tt.want)
		}
	}
}
