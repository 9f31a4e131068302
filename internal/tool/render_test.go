package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toold/toold/client"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The descriptions stand in their own files and would only repeat them here.
var descriptionLine = regexp.MustCompile(`("description": ")(?:[^"\\]|\\.)*\\n(?:[^"\\]|\\.)*"`)

func TestRenderGolden(t *testing.T) {
	r := NewRegistry()
	for format := range formats {
		name := format
		if name == "" {
			name = "toold"
		}
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			for _, d := range r.List() {
				raw, err := Render(d, format)
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Indent(&got, raw, "", "  "); err != nil {
					t.Fatal(err)
				}
				got.WriteByte('\n')
			}
			text := descriptionLine.ReplaceAllString(got.String(), `${1}(the Markdown file)"`)
			golden := filepath.Join("testdata", "render", name+".json")
			if *update {
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if text != string(want) {
				t.Errorf("%s differs from what is rendered now; look at the change and run the test with -update\n%s", golden, text)
			}
		})
	}
}

func TestRenderUnknownFormat(t *testing.T) {
	d, _ := NewRegistry().Get("bash")
	_, err := Render(d, "cohere")
	var e *client.Error
	if !errors.As(err, &e) || e.Code != client.CodeInvalidRequest || !strings.Contains(e.Hint, "anthropic") {
		t.Errorf("got %v", err)
	}
}

func TestRenderUnions(t *testing.T) {
	d := &Definition{Name: "x", input: object(
		required("n", &jsonschema.Schema{Type: "integer", Enum: []any{1, 2}}),
		optional("o", &jsonschema.Schema{Types: []string{"string", "null"}}),
		optional("a", listOf(choice("", "p", "q"), 3, "some")),
	)}
	if err := d.compile(); err != nil {
		t.Fatal(err)
	}
	got, err := Render(d, "gemini")
	want := `{"name":"x","description":"","parameters":{"type":"object","properties":{` +
		`"a":{"type":"array","description":"some","items":{"type":"string","enum":["p","q"]},"maxItems":3},` +
		`"n":{"type":"string","enum":["1","2"]},"o":{"type":"string","nullable":true}},` +
		`"propertyOrdering":["n","o","a"],"required":["n"]}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}

// Whatever a provider's model fills in by the schema that it was given, Parse takes.
func TestRenderStrictIsParsed(t *testing.T) {
	r := NewRegistry()
	for _, d := range r.List() {
		s := strictSchema(d.input)
		if len(s.Required) != len(s.Properties) {
			t.Errorf("%s: %d of %d properties are required", d.Name, len(s.Required), len(s.Properties))
		}
		raw, _ := json.Marshal(filled(d.input))
		if _, err := r.Parse(d.Name, raw); err != nil && d.check == nil { // which wants more than a schema can say
			t.Errorf("%s: %v", d.Name, err)
		}
	}
}

// filled is the least that a strict mode writes for s: null for what may be left out.
func filled(s *jsonschema.Schema) any {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case free(s):
		return `{"a":1}`
	}
	switch s.Type {
	case "array":
		return []any{filled(s.Items)}
	case "object":
		in := map[string]any{}
		for name, field := range s.Properties {
			if in[name] = nil; slices.Contains(s.Required, name) {
				in[name] = filled(field)
			}
		}
		return in
	}
	return "x"
}

// A hint in a description must name a tool that there is.
func TestDescriptions(t *testing.T) {
	r := NewRegistry()
	known := map[string]bool{"content": true, "files": true, "count": true}
	for _, d := range r.List() {
		known[d.Name] = true
		for name := range d.input.Properties {
			known[name] = true
		}
	}
	word := regexp.MustCompile("`([a-z_]+)`")
	shell := map[string]bool{
		"cd": true, "head": true, "tail": true, "nohup": true, "setsid": true, "node_modules": true,
		"vendor": true, "dist": true, "build": true, "target": true, "__pycache__": true,
	}
	for _, d := range r.List() {
		if len(d.Description) < 200 {
			t.Errorf("%s: no description to speak of", d.Name)
		}
		for _, m := range word.FindAllStringSubmatch(d.Description, -1) {
			if !known[m[1]] && !shell[m[1]] {
				t.Errorf("%s: the description speaks of %q, which is neither a tool nor a field", d.Name, m[1])
			}
		}
		for name, field := range d.input.Properties {
			if field.Description == "" {
				t.Errorf("%s: field %s has no description", d.Name, name)
			}
		}
	}
}
