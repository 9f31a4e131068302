package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/hook"
)

// TestRealFormattersShowTheirWork: what a formatter has made of a file is in the answer,
// and the file can be edited without reading it again; where it is not shown, the
// answer says why, and an edit wants a read.
func TestRealFormattersShowTheirWork(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	set := *m.settings.Load()
	format := func(path, script string) hook.Hook {
		return hook.Hook{On: hook.FileEdited, Command: []string{"sh", "-c", script, "sh"}, Match: map[string]string{"path": path}, Timeout: 30 * time.Second}
	}
	set.Hooks = []hook.Hook{
		format("*.up", `sed -i s/a/A/ "$1"`),
		format("*.two", `sed -i s/a/A/ "$1"`),
		format("*.two", `sed -i s/b/B/ "$1"`),
		format("*.env", `sed -i s/a/A/ "$1"`),
		format("*.long", `seq 5000 > "$1"`),
		format("*.huge", `seq 50000 > "$1"`),
		format("*.bin", `printf '\0\1\2' > "$1"`),
		format("*.link", `ln -sf x.env "$1"`),
		format("*.gone", `rm "$1"`),
		format("*.same", `sed -i s/none/x/ "$1"`),
	}
	set.Policy = rules(t, "[permission.read]\n\"*\" = \"allow\"\n\"*.env\" = \"deny\"\n[permission.edit]\n\"*\" = \"allow\"\n")
	set.ToolSettings = map[string][]byte{"edit": []byte(`{"require_read":true}`)}
	m.Reload(set)
	s, err := m.Create(t.Context(), alice, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file   string
		notes  []string // in this order
		not    string
		edit   string // what an edit looks for afterwards; "" for none
		unread bool   // the edit wants a read first
	}{
		{file: "x.up", notes: []string{"[hook sh changed /workspace/x.up after this edit, as the diff below says", "-a b\n", "+A b"}, not: "read it again before", edit: "A b"},
		{file: "it's\n.up", notes: []string{"as the diff below says", `--- "/workspace/it's\n.up"`, "+A b"}, edit: "A b"},
		{file: "x.two", notes: []string{"-a b\n", "+A b", "[hook sh changed", "-A b\n", "+A B"}, edit: "A B"},
		{file: "x.env", notes: []string{"read it again before you edit it; no diff is shown: reading it is denied by config.toml:3"}, not: "A b"},
		{file: "x.long", notes: []string{"no diff is shown: the diff is long"}, edit: "4999\n", unread: true},
		{file: "x.huge", notes: []string{"no diff is shown: the file is long"}, edit: "49999\n", unread: true},
		{file: "x.bin", notes: []string{"no diff is shown: it is not text now"}},
		{file: "x.link", notes: []string{"no diff is shown: it could not be compared"}, not: "A b"},
		{file: "x.gone", notes: []string{"no diff is shown: it could not be compared"}},
		{file: "x.same", not: "hook"},
	} {
		t.Run(strings.Trim(fmt.Sprintf("%q", tt.file), `"`), func(t *testing.T) {
			c := realCall(t, m, s.ID, "write", object{"file_path": tt.file, "content": "a b\n"})
			if c.Error != nil || c.IsError {
				t.Fatalf("%+v: %s", c.Error, c.Output)
			}
			rest := c.Output
			if i := strings.Index(rest, "[hook"); i >= 0 {
				rest = rest[i:]
			}
			if tt.not != "" && strings.Contains(rest, tt.not) {
				t.Errorf("the answer has %q:\n%s", tt.not, c.Output)
			}
			for _, note := range tt.notes {
				_, after, ok := strings.Cut(rest, note)
				if !ok {
					t.Fatalf("%q is missing, or not in its place:\n%s", note, c.Output)
				}
				rest = after
			}
			if tt.edit == "" {
				return
			}
			e := realCall(t, m, s.ID, "edit", object{"file_path": tt.file, "old_string": tt.edit, "new_string": "c"})
			if wants := strings.Contains(e.Output, "read it first"); wants != tt.unread || !wants && e.IsError {
				t.Errorf("an edit without a read: %s", e.Output)
			}
		})
	}
}
