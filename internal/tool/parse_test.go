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

// TestPathsAsMeant: whatever a tool calls a path is taken as people and shells write it, and can be
// given as below another directory.
func TestPathsAsMeant(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	for _, d := range r.List() {
		for _, name := range d.input.PropertyOrder {
			if s := d.input.Properties[name]; !strings.Contains(s.Description, "relative to the worktree") {
				continue
			}
			for in, want := range map[string]string{
				"~/x/y": "/home/tool/x/y", "~": "/home/tool", "~x": "~x", "x/~": "x/~", "x~": "x~", "./~": "./~",
				"$HOME/x": "/home/tool/x", "${HOME}": "/home/tool", "$HOMES/x": "$HOMES/x", "./$HOME": "./$HOME",
				"file:///w/a%20b.txt": "/w/a b.txt", "file://localhost/w": "/w", "file:///100%": "/100%", "file:///a%00": "/a%00", "file:///%ff": "/%ff",
				"file://other/w": "file://other/w", "file://localhosts/w": "file://localhosts/w", "/src/x": "/moved/x", "/srcs": "/srcs",
			} {
				input := values{name: in}
				for _, needed := range d.input.Required {
					if needed != name {
						input[needed] = "x"
					}
				}
				if d.Name == "multiedit" {
					input["edits"] = []any{values{"old_string": "a", "new_string": "b"}}
				}
				raw, err := json.Marshal(input)
				if err != nil {
					t.Fatal(err)
				}
				inv, err := r.Parse(d.Name, raw)
				if err != nil {
					t.Fatalf("%s: %v", raw, err)
				}
				changed := inv.Rebase("/src", "/moved")
				got, _ := readStrict(inv.JSON, maxDepth)
				if at := values(got.(map[string]any)).text(name); at != want || changed != (in == "/src/x") {
					t.Errorf("%s %s=%s: %v, %q, want %q", d.Name, name, in, changed, at, want)
				}
			}
		}
	}
	const patch = `*** Begin Patch\n*** Add File:$HOME/a\n+x\n*** Delete File: file:///w/a%20b\n*** Add File: ~/c\n+*** Add File: ~/d\n*** End Patch`
	inv, err := r.Parse("apply_patch", json.RawMessage(`{"patch":"`+patch+`"}`))
	if want := strings.NewReplacer("$HOME", "/home/tool", "file:///w/a%20b", "/w/a b", ": ~/c", ": /home/tool/c").Replace(patch); err != nil || string(inv.JSON) != `{"patch":"`+want+`"}` {
		t.Errorf("%v, %s", err, inv.JSON)
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
