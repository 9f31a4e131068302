package session

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/testrig/difftest"
)

// TestRealFormatterDiff: with gofmt over each file that is changed, the diff of a result
// leads to the file as it is afterwards, its numbers count that, and the model goes on
// without reading the file again.
func TestRealFormatterDiff(t *testing.T) {
	h := newRealHouse(t)
	gofmt, err := exec.LookPath("gofmt")
	if err != nil || !strings.HasPrefix(gofmt, "/usr/") {
		t.Skipf("no gofmt below /usr: %q, %v", gofmt, err)
	}
	m := openReal(t, h)
	set := *m.settings.Load()
	set.Hooks = []hook.Hook{
		{On: hook.FileEdited, Command: []string{gofmt, "-w"}, Match: map[string]string{"path": "*.go"}, Timeout: time.Minute},
		{On: hook.FileEdited, Command: []string{"sed", "-i", "s/last/first/"}, Match: map[string]string{"path": "*.go"}, Timeout: time.Minute},
		{On: hook.FileEdited, Command: []string{"sh", "-c", `head -c 200000 /dev/zero | tr '\0' x >"$1"`, "sh"}, Match: map[string]string{"path": "*.long"}, Timeout: time.Minute},
	}
	m.Reload(set)
	s, err := m.Create(t.Context(), alice, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	now := map[string]string{}
	const patched = "*** Begin Patch\n*** Update File: a.go\n@@\n-var X = 1\n+var   X = 3 // last\n*** Add File: b.go\n+package b\n+var   Y=2\n*** Add File: c.txt\n+as   it is\n*** End Patch\n"
	for _, tt := range []struct {
		tool  string
		input object
		files []string
		has   string // of the first file afterwards
	}{
		{"write", object{"file_path": "a.go", "content": "package a\nfunc  f( ) {\nreturn }\nvar X=0 // last\n"}, []string{"a.go"}, "func f() {\n\treturn\n}\n\nvar X = 0 // first\n"},
		{"edit", object{"file_path": "a.go", "old_string": "var X = 0 // first", "new_string": "var X=1"}, []string{"a.go"}, "var X = 1\n"},
		{"multiedit", object{"file_path": "a.go", "edits": []object{{"old_string": "func f()", "new_string": "func  g( )"}, {"old_string": "return", "new_string": "return;"}}}, []string{"a.go"}, "func g() {\n\treturn\n}"},
		{"apply_patch", object{"patch": patched}, []string{"a.go", "b.go", "c.txt"}, "var X = 3 // first\n"},
		{"write", object{"file_path": "c.txt", "content": "as  it is\n"}, []string{"c.txt"}, "as  it is\n"},
	} {
		c := realCall(t, m, s.ID, tt.tool, tt.input)
		if c.Error != nil || c.IsError {
			t.Fatalf("%s: %v, %s", tt.tool, c.Error, c.Output)
		}
		diff, _ := c.Metadata["diff"].(string)
		added, removed := 0, 0
		for i, file := range tt.files {
			from := strings.Index(diff, "--- /workspace/"+file+"\n")
			if from < 0 {
				t.Fatalf("%s: nothing of %s in %s", tt.tool, file, diff)
			}
			part := diff[from:]
			if i+1 < len(tt.files) {
				part, _, _ = strings.Cut(part, "created: ")
			}
			text := realCall(t, m, s.ID, "bash", object{"command": "cat " + file}).Output
			got, err := difftest.Apply(now[file], part)
			if err != nil || got != text {
				t.Errorf("%s: %v: %s is %q, its diff makes %q:\n%s", tt.tool, err, file, text, got, part)
			}
			if i == 0 && !strings.Contains(text, tt.has) {
				t.Errorf("%s: no %q in %q", tt.tool, tt.has, text)
			}
			if bytes, ok := c.Metadata["bytes"]; ok && fmt.Sprint(bytes) != fmt.Sprint(len(text)) {
				t.Errorf("%s: %v bytes, want %d", tt.tool, bytes, len(text))
			}
			for line := range strings.Lines(part) {
				switch {
				case strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "--- "):
				case line[0] == '+':
					added++
				case line[0] == '-':
					removed++
				}
			}
			now[file] = text
		}
		if fmt.Sprint(c.Metadata["lines_added"], c.Metadata["lines_removed"]) != fmt.Sprint(added, removed) {
			t.Errorf("%s: %v lines added, %v removed; the diff has %d and %d:\n%s", tt.tool, c.Metadata["lines_added"], c.Metadata["lines_removed"], added, removed, diff)
		}
		if files, ok := c.Metadata["files"].([]any); ok {
			sum := 0
			for _, f := range files {
				n, _ := strconv.Atoi(fmt.Sprint(f.(map[string]any)["lines_added"]))
				sum += n
			}
			if sum != added {
				t.Errorf("%s: %v, and %d lines were added", tt.tool, files, added)
			}
		}
		if late := c.Metadata["formatted_after_diff"]; late != nil {
			t.Errorf("%s: %v", tt.tool, late)
		}
	}
	// What is too long to be compared is said, and the diff is that of the edit.
	c := realCall(t, m, s.ID, "write", object{"file_path": "a.long", "content": "short\n"})
	if late, _ := c.Metadata["formatted_after_diff"].(map[string]any); late["/workspace/a.long"] != "sh" || !strings.Contains(c.Metadata["diff"].(string), "+short\n") {
		t.Errorf("%v", c.Metadata)
	}
}
