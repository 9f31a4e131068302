package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/hook"
)

// TestRealHooks runs formatters where they belong, in a real sandbox: as the
// tool user, over files with names of every kind, with the end that each has.
func TestRealHooks(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	set := *m.settings.Load()
	format := func(path string, open bool, command ...string) hook.Hook {
		return hook.Hook{On: hook.FileEdited, Command: command, Match: map[string]string{"path": path}, FailOpen: open, Timeout: 30 * time.Second}
	}
	set.Hooks = []hook.Hook{
		format("*.up", false, "sed", "-i", "s/a/A/g"),
		format("*.same", false, "true"),
		format("*.who", false, "sh", "-c", `id -u > "$1"; pwd >> "$1"`, "sh"),
		format("*.bad", false, "sh", "-c", "echo line 3: oops >&2; exit 2"),
		format("*.open", true, "no-such-formatter"),
		format("*.slow", false, "sh", "-c", "sleep 100"),
		format("*.loud", false, "cat", "/dev/zero", "{file}"),
		{On: hook.CallBefore, Command: []string{program(t, `case $(cat) in *forbidden*) echo '{"action":"deny","reason":"it is forbidden"}';; *) echo '{"action":"allow"}';; esac`)}, Timeout: time.Minute},
	}
	set.Hooks[5].Timeout = time.Second
	m.Reload(set)
	s, err := m.Create(t.Context(), alice, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		file, content string // content after the hook
		isError       bool
		note          string
	}{
		{file: "x.up", content: "A b A\n", note: "[hook sed changed /workspace/x.up after this edit"},
		{file: "it's $(touch pwned) `x`\n-rf.up", content: "A b A\n", note: "[hook sed changed"},
		{file: "x.same", content: "a b a\n"},
		{file: "x.who", content: "1000\n/workspace\n", note: "changed"},
		{file: "x.bad", content: "a b a\n", isError: true, note: "was written, but hook sh failed with exit code 2: line 3: oops]"},
		{file: "x.open", content: "a b a\n", note: "hook no-such-formatter failed with exit code 127"},
		{file: "x.slow", content: "a b a\n", isError: true, note: "was ended (timeout)"},
		{file: "x.loud", content: "a b a\n", isError: true, note: "was ended (output_limit)]"},
		{file: "x.none", content: "a b a\n"},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(filepath.Ext(tt.file), ".", ""), func(t *testing.T) {
			c := realCall(t, m, s.ID, "write", object{"file_path": tt.file, "content": "a b a\n"})
			if c.Error != nil || c.IsError != tt.isError || !strings.Contains(c.Output, tt.note) || tt.note == "" && strings.Contains(c.Output, "hook") {
				t.Fatalf("is_error %t, %v: %q", c.IsError, c.Error, c.Output)
			}
			if d := realCall(t, m, s.ID, "bash", object{"command": "cat -- *" + filepath.Ext(tt.file)}); !strings.HasSuffix(d.Output, tt.content) {
				t.Errorf("the file has %q, want %q", d.Output, tt.content)
			}
		})
	}
	if c := realCall(t, m, s.ID, "bash", object{"command": "test ! -e pwned; echo $?; pgrep -c sleep"}); !strings.HasPrefix(c.Output, "0\n0\n") {
		t.Errorf("left: %q", c.Output)
	}
	if c := realCall(t, m, s.ID, "bash", object{"command": "echo forbidden > ran"}); c.Error == nil || c.Error.Code != client.CodeDenied || !strings.Contains(c.Error.Message, "it is forbidden") {
		t.Errorf("%+v", c)
	}
	if c := realCall(t, m, s.ID, "bash", object{"command": "test ! -e ran"}); c.IsError {
		t.Error("the denied call ran")
	}
	// An edit is formatted like a write.
	r := realCall(t, m, s.ID, "edit", object{"file_path": "x.up", "old_string": "A b", "new_string": "c a"})
	if r.IsError || !strings.Contains(r.Output, "changed") {
		t.Errorf("edit: %q", r.Output)
	}
	if c := realCall(t, m, s.ID, "read", object{"file_path": "x.up"}); !strings.Contains(c.Output, "c A A") {
		t.Errorf("after the edit: %q", c.Output)
	}
	if _, err := os.Stat("/pwned"); err == nil {
		t.Error("something ran on the host")
	}
}
