package tool

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestNoNUL: a text for a file with a NUL byte in it is refused, with the way to write one.
func TestNoNUL(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	for tool, in := range map[string]string{
		"write":       `{"file_path":"a","content":"x\u0000"}`,
		"edit":        `{"file_path":"a","old_string":"x","new_string":"\u0000"}`,
		"multiedit":   `{"file_path":"a","edits":[{"old_string":"x","new_string":"y"},{"old_string":"y","new_string":"\u0000"}]}`,
		"apply_patch": `{"patch":"*** Begin Patch\n*** Add File: a\n+\u0000\n*** End Patch"}`,
	} {
		if _, err := r.Parse(tool, json.RawMessage(in)); err == nil || !strings.Contains(err.Error(), "base64") {
			t.Errorf("%s: %v", tool, err)
		}
		if _, err := r.Parse(tool, json.RawMessage(strings.ReplaceAll(in, `\u0000`, "z"))); err != nil {
			t.Errorf("%s: %v", tool, err)
		}
	}
}
