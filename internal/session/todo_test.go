package session

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

func todoCall(list string) client.CallCreate {
	return client.CallCreate{Tool: "todowrite", Input: json.RawMessage(`{"todos":` + list + `}`)}
}

// TestTodos: the list is the session's. It is told, shown, and there after a restart.
func TestTodos(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	show := client.CallCreate{Tool: "todoread", Input: json.RawMessage(`{}`)}
	if c := h.call(s.ID, show); c.IsError || c.Output != "The list of tasks is empty." {
		t.Errorf("before: %+v", c)
	}
	list := `[{"content":"one\nmore","status":"completed","id":"a"},{"content":"two","status":"in_progress","priority":"high"},{"content":"three","status":"in_progress"}]`
	wrote := h.call(s.ID, todoCall(list))
	want := "[x] one\uFFFDmore #a\n[>] two (high)\n[>] three\n(2 of 3 tasks open)\n(2 tasks are in_progress; better have one at a time)"
	if wrote.IsError || wrote.Output != want || wrote.Title != "2 of 3 tasks open" || wrote.Permission.Verdict != "allow" {
		t.Errorf("%+v\nwant %s", wrote, want)
	}
	h.call(s.ID, todoCall(list))
	if n := h.told(alice, client.EventTodoUpdated, wrote.ID); n != 1 {
		t.Errorf("told %d times", n)
	}
	for range 10 { // to look at it again and again is no loop
		if c := h.call(s.ID, show); c.Error != nil {
			t.Fatalf("%+v", c.Error)
		}
	}
	for _, bad := range []string{`[{"content":"","status":"pending"}]`, `[{"content":"x","status":"done"}]`, `[{"content":"` + strings.Repeat("x", 501) + `","status":"pending"}]`} {
		if c := h.call(s.ID, todoCall(bad)); c.Error == nil || c.Error.Code != client.CodeInvalidInput {
			t.Errorf("%.60s: %+v", bad, c.Error)
		}
	}
	h.kill()
	h.open()
	if c := h.call(s.ID, show); c.Output != want {
		t.Errorf("after a restart: %q", c.Output)
	}
	v, err := h.m.Get(t.Context(), alice, s.ID)
	if err != nil || len(v.Todos) != 3 || v.Todos[0].Content != "one\nmore" {
		t.Errorf("shown: %+v, %v", v, err)
	}
	if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	if v, err = h.m.Get(t.Context(), alice, s.ID); err != nil || len(v.Todos) != 3 {
		t.Errorf("of a session that is over: %+v, %v", v, err)
	}
}

// TestTodosDenied: each has a permission of its own, and a profile for parts of another
// agent's work has none.
func TestTodosDenied(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Profile: "general"})
	if c := h.call(s.ID, todoCall(`[]`)); c.Error == nil || c.Error.Code != client.CodeDenied || !strings.Contains(c.Error.Message, "the other agent's") {
		t.Errorf("%+v", c.Error)
	}
}

// TestRealTodosRestored: who goes back to a checkpoint gets the list of that time.
func TestRealTodosRestored(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, ``, map[string]string{"a": "1\n"})
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeOverlay}})
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		realCall(t, m, s.ID, "todowrite", object{"todos": []object{{"content": text, "status": "pending"}}})
	}
	trees := m.AllTrees()
	none, err := trees.Checkpoint(t.Context(), mounter, s.ID, client.CheckpointCreate{Name: "none"})
	if err != nil {
		t.Fatal(err)
	}
	write("first")
	first, err := trees.Checkpoint(t.Context(), mounter, s.ID, client.CheckpointCreate{Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	write("second")
	for _, tt := range []struct {
		to   string
		want []string
	}{{first.ID, []string{"first"}}, {none.ID, nil}, {first.ID, []string{"first"}}} {
		v, err := trees.Restore(t.Context(), mounter, s.ID, client.RestoreRequest{Checkpoint: tt.to})
		if err != nil || v.TasksKept {
			t.Fatal(v, err)
		}
		now, err := m.Get(t.Context(), mounter, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, todo := range now.Todos {
			got = append(got, todo.Content)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("restored %s: got %q, want %q", tt.to, got, tt.want)
		}
	}
}
