package tool

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzParse: no input makes Parse panic, and what it gives it takes again as it is.
func FuzzParse(f *testing.F) {
	r := NewRegistry()
	for _, seed := range []string{
		`{"command":"ls"}`, `{"filePath":"a","limit":"3"}`, `{"ignore":"[\"a\"]"}`, `"{\"pattern\":\"x\"}"`,
		`{"file_path":"a","oldString":"","new_string":"b","replaceAll":"true"}`, `{"pattern":"x","context":null}`,
	} {
		f.Add(uint8(len(seed)), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		d := r.tools[int(which)%len(r.tools)]
		inv, err := r.ParseHidden(d.Name, text)
		if err != nil {
			return
		}
		again, err := r.ParseHidden(d.Name, inv.JSON)
		if err != nil || again.Lenient != 0 || !bytes.Equal(again.JSON, inv.JSON) {
			t.Fatalf("%s of %q: %q is then %+v, %v", d.Name, text, inv.JSON, again, err)
		}
		inv.Input.Access(nil)
	})
}

// TestRebase: whatever a tool calls a path can be given as below another directory.
func TestRebase(t *testing.T) {
	for _, d := range NewRegistry().List() {
		for _, name := range d.input.PropertyOrder {
			if s := d.input.Properties[name]; !strings.Contains(s.Description, "relative to the worktree") {
				continue
			}
			for in, want := range map[string]string{"~/x/y": "/home/tool/x/y", "~": "/home/tool", "~x": "", "x/~": "", "x~": ""} {
				i := &Invocation{Tool: d, JSON: json.RawMessage(`{"` + name + `":"` + in + `"}`)}
				if changed := i.Rebase("~", "/home/tool"); changed != (want != "") || changed && string(i.JSON) != `{"`+name+`":"`+want+`"}` {
					t.Errorf("%s %s=%s: %v, %s", d.Name, name, in, changed, i.JSON)
				}
			}
		}
	}
}

func BenchmarkParse(b *testing.B) {
	r := NewRegistry()
	for name, in := range map[string]struct{ tool, input string }{
		"bash": {"bash", `{"command":"git status --short","description":"Show what changed","timeout":5000}`},
		"grep": {"grep", `{"pattern":"func \\w+","path":"internal","include":"*.go","output_mode":"files","limit":"20","ignoreCase":true}`},
		"edit": {"edit", `{"filePath":"/workspace/a.go","oldString":"a := 1\n\tb := 2\n","newString":"a, b := 1, 2\n"}`},
		"1MiB": {"write", `{"file_path":"x","content":"` + strings.Repeat("some text\\n", 100000) + `"}`},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Parse(in.tool, json.RawMessage(in.input)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
