package run

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tool/run/root"
)

// BenchmarkFileTools is the sandbox's own part of a small read, write and edit:
// Prepare and Run on a file of 100 lines.
func BenchmarkFileTools(b *testing.B) {
	dir := b.TempDir()
	text := strings.Repeat("some line of text\n", 99) + "the end\n"
	if err := os.WriteFile(dir+"/f", []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	r, err := root.New(root.Config{Dir: dir, UID: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	env := &Env{Root: r, Worktree: "/", Seen: &Seen{}}
	written, err := json.Marshal(object{"file_path": "/f", "content": text})
	if err != nil {
		b.Fatal(err)
	}
	calls := map[string][]struct {
		tool  Tool
		input string
	}{
		"read":  {{Read{}, `{"file_path":"/f"}`}},
		"write": {{Write{}, string(written)}},
		"edit": {
			{Edit{}, `{"file_path":"/f","old_string":"the end","new_string":"the END"}`},
			{Edit{}, `{"file_path":"/f","old_string":"the END","new_string":"the end"}`},
		},
	}
	for _, name := range []string{"read", "write", "edit"} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				c := calls[name][i%len(calls[name])]
				prep, err := c.tool.Prepare(b.Context(), env, json.RawMessage(c.input))
				if err != nil {
					b.Fatal(err)
				}
				if res, err := c.tool.Run(b.Context(), env, json.RawMessage(c.input), prep); err != nil || res.IsError {
					b.Fatal(res, err)
				}
			}
		})
	}
}
