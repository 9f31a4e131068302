package session

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/testrig"
)

func TestHookFormats(t *testing.T) {
	write := client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"it's; exit 3 a.go","content":"x"}`)}
	plain := client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"a.go","content":"x"}`)}
	tests := []struct {
		name    string
		command []string
		match   map[string]string
		open    bool
		call    client.CallCreate
		ran     string // the command line; "" = none
		isError bool
		note    string
	}{
		{name: "at the end", command: []string{"gofmt", "-w"}, call: plain, ran: "exec 'gofmt' '-w' '/workspace/a.go' </dev/null", note: "[hook gofmt changed /workspace/a.go after this edit"},
		{name: "in the middle", command: []string{"fmt", "--in={file}", "-q"}, call: plain, ran: "exec 'fmt' '--in=/workspace/a.go' '-q' </dev/null"},
		{name: "other files", command: []string{"gofmt"}, match: map[string]string{"path": "*.py"}, call: plain},
		{name: "a quote in the name", command: []string{"gofmt"}, call: write, ran: `exec 'gofmt' '/workspace/it'\''s; exit 3 a.go' </dev/null`, isError: true, note: "was written, but hook gofmt failed with exit code 3"},
		{name: "fails", command: []string{"x; echo oops; exit 2;"}, call: plain, isError: true, ran: "exec 'x; echo oops; exit 2;' '/workspace/a.go' </dev/null", note: "[/workspace/a.go was written, but hook x; echo oops; exit 2; failed with exit code 2: oops]"},
		{name: "fails, open", command: []string{"x; exit 2;"}, open: true, call: plain, ran: "exec 'x; exit 2;' '/workspace/a.go' </dev/null", note: "failed with exit code 2"},
		{name: "killed", command: []string{"x; signal SIGSEGV;"}, call: plain, isError: true, ran: "exec 'x; signal SIGSEGV;' '/workspace/a.go' </dev/null", note: "was ended (signal)"},
		{name: "no command", call: plain, isError: true, note: "no command is configured"},
		{name: "nothing was written", command: []string{"gofmt"}, call: readCall("a.go")},
		{name: "the edit failed", command: []string{"gofmt"}, call: client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"missing.go","content":"x"}`)}, isError: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, o, id := hooked(t, hook.Hook{On: hook.FileEdited, Command: tt.command, Match: tt.match, FailOpen: tt.open, Timeout: 5 * time.Second})
			var lines []string
			h.host.box(id).ran = func(r string) { lines = append(lines, r) }
			c := h.call(id, tt.call)
			if c.Error != nil || c.IsError != tt.isError {
				t.Fatalf("is_error %t, %v: %s", c.IsError, c.Error, c.Output)
			}
			if got := strings.Join(lines, "\n"); got != tt.ran {
				t.Errorf("ran %q, want %q", got, tt.ran)
			}
			if !strings.Contains(c.Output, tt.note) {
				t.Errorf("output %q, want %q", c.Output, tt.note)
			}
			if tt.ran == "" && tt.command != nil && !o.of() {
				t.Errorf("hooks: %q", o.hooks)
			}
			box := h.host.box(id)
			testrig.Eventually(t, "the agent has forgotten all", func() bool {
				box.mu.Lock()
				defer box.mu.Unlock()
				return len(box.calls) == 0
			})
		})
	}
}

func TestHookWhoseConnectionBreaks(t *testing.T) {
	h, _, id := hooked(t, hook.Hook{On: hook.FileEdited, Command: []string{"x; hold;"}, Timeout: 5 * time.Second})
	box := h.host.box(id)
	r := client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"a.go","content":"x"}`), WaitMillis: new(int64)}
	c := h.call(id, r)
	testrig.Eventually(t, "the formatter runs", func() bool { return box.holding.Load() == 1 })
	box.sever(errors.New("gone"))
	if c = h.finished(c.ID); !c.IsError || !strings.Contains(c.Output, "could not be run in the sandbox") {
		t.Errorf("%+v", c)
	}
}

// The files that a call has changed are formatted and told of also where another daemon
// takes up its end.
func TestFormatsAfterADaemonsDeath(t *testing.T) {
	h, o, id := hooked(t, hook.Hook{On: hook.FileEdited, Command: []string{"gofmt"}, Timeout: 5 * time.Second})
	c := h.background(id, "hold; echo x >a.go")
	box := h.host.box(id)
	testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
	h.kill()
	h.openAudited(o)
	ran := make(chan string, 10)
	box.mu.Lock()
	box.ran = func(command string) { ran <- command }
	box.mu.Unlock()
	box.release()
	done := h.finished(c.ID)
	if !strings.Contains(done.Output, "[hook gofmt changed /workspace/a.go after this edit") {
		t.Errorf("output %q", done.Output)
	}
	select {
	case got := <-ran:
		if got != "exec 'gofmt' '/workspace/a.go' </dev/null" {
			t.Errorf("ran %q", got)
		}
	default:
		t.Error("no formatter ran")
	}
	events, err := h.m.Events.Events(t.Context(), alice, event.Filter{Stored: true, Type: client.EventFileEdited})
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for e := range events {
		files = append(files, string(e.Data))
	}
	if len(files) != 2 || !strings.Contains(files[0], `"path":"/workspace/a.go"`) { // and the end of the stream
		t.Errorf("events %q", files)
	}
}

// formats are the calls of formatters, oldest first.
func (h *house) formats(session string) []client.Call {
	h.t.Helper()
	list, err := h.m.calls.ListCalls(h.t.Context(), alice, session, client.CallQuery{Tool: "file_format"})
	if err != nil {
		h.t.Fatal(err)
	}
	return list.Items
}

// A formatter is a call: with a record, judged, in the audit log, and in the slot of the call
// that has changed the file.
func TestFormattersAreCalls(t *testing.T) {
	h, o, _ := hooked(t,
		hook.Hook{On: hook.FileEdited, Command: []string{"gofmt", "-w"}, Timeout: 5 * time.Second},
		scripted(t, hook.CallBefore, `grep -q file_format && exit 1; echo '{"action":"allow"}'`)) // no hook hears of another
	h.reload(func(set *Settings) { set.Limits.Calls = 1 })
	id := h.create(alice, client.SessionCreate{}).ID
	write := client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"a.go","content":"x"}`), MessageID: "m1"}
	c := h.call(id, write)
	all := h.formats(id)
	if len(all) != 1 || !strings.Contains(c.Output, "[hook gofmt changed /workspace/a.go") {
		t.Fatalf("%+v, %q", all, c.Output)
	}
	f := all[0]
	if want := `{"call":"` + c.ID + `","command":["gofmt","-w"],"file_path":"/workspace/a.go","timeout":5000}`; string(f.Input) != want {
		t.Errorf("input %s, want %s", f.Input, want)
	}
	if f.Status != client.CallCompleted || f.IsError || f.MessageID != "m1" || f.Metadata["changed"] != true || f.Permission == nil || f.Permission.Verdict != "allow" {
		t.Errorf("%+v, %+v", f, f.Permission)
	}
	if missing := h.isOnRecord(o, &f); missing != nil {
		t.Errorf("there is no %q", missing)
	}
	for _, u := range []string{c.ID, f.ID} {
		if n := h.told(alice, client.EventFileEdited, u); n != map[string]int{c.ID: 1}[u] {
			t.Errorf("%d files are told to be edited by %s", n, u)
		}
	}
}

// What a person has approved for the call that edits, its formatter may do. A rule that denies
// the edit by then stops the formatter.
func TestFormattersAreJudged(t *testing.T) {
	h, _, _ := hooked(t, hook.Hook{On: hook.FileEdited, Command: []string{"gofmt"}, Timeout: 5 * time.Second})
	h.reload(func(set *Settings) { set.Policy = rules(t, `permission = { edit = "ask" }`) })
	id := h.create(alice, client.SessionCreate{}).ID
	write := client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"a.go","content":"x"}`)}
	c, a := h.waitingFor(alice, id, write)
	h.answer(a, once)
	c = h.finished(c.ID)
	if all := h.formats(id); len(all) != 1 || all[0].IsError || all[0].Permission.Rule != "call "+c.ID {
		t.Errorf("after an approval: %+v", all)
	}
	if list := h.pending(); len(list) != 0 {
		t.Errorf("somebody is asked: %+v", list)
	}
	h.reload(func(set *Settings) { set.Policy = rules(t, `permission = { bash = "allow" }`) })
	c = h.background(id, "hold; echo x >b.go")
	box := h.host.box(id)
	testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
	h.reload(func(set *Settings) { set.Policy = rules(t, `permission = { edit = "deny" }`) })
	box.release()
	if c = h.finished(c.ID); !c.IsError || !strings.Contains(c.Output, `but hook gofmt denied: edit "/workspace/b.go"`) {
		t.Errorf("%q", c.Output)
	}
}

// A formatter's call ends with its daemon, once; the next daemon makes another one.
func TestFormatterOfADaemonThatDies(t *testing.T) {
	h, o, id := hooked(t, hook.Hook{On: hook.FileEdited, Command: []string{"x; hold;"}, Timeout: time.Minute})
	r := client.CallCreate{Tool: "write", Input: json.RawMessage(`{"file_path":"a.go","content":"x"}`), WaitMillis: new(int64)}
	c := h.call(id, r)
	box := h.host.box(id)
	testrig.Eventually(t, "the formatter runs", func() bool { return box.holding.Load() == 1 })
	h.kill()
	h.openAudited(o)
	testrig.Eventually(t, "the next formatter runs", func() bool { return len(h.formats(id)) == 2 && box.holding.Load() == 1 })
	box.release()
	c = h.finished(c.ID)
	all := h.formats(id)
	if len(all) != 2 || all[1].Status != client.CallCompleted || !strings.Contains(c.Output, "[hook x; hold; changed /workspace/a.go") {
		t.Fatalf("%+v, %q", all, c.Output)
	}
	h.lostOnce(all[0].ID)
	h.stop()
	h.openAudited(o)
	if now := h.formats(id); len(now) != 2 || h.told(alice, client.EventCallError, all[0].ID) != 1 {
		t.Errorf("after another restart: %+v", now)
	}
}
