package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// lowered are schemas that tools of other sources have, and the formats that cannot say them:
// "all" is those of providers but mcp, which takes any object.
var lowered = []struct{ name, schema, cannot string }{
	{"nothing", `{"type":"object"}`, ""},
	{"plain", `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a"]}`, ""},
	{"closed", `{"type":"object","properties":{"a":{"type":"boolean"}},"additionalProperties":false}`, ""},
	{"ref", `{"type":"object","properties":{"a":{"$ref":"#/$defs/p"}},"$defs":{"p":{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}}}`, ""},
	{"ref with words", `{"type":"object","properties":{"a":{"$ref":"#/$defs/p","description":"mine"}},"$defs":{"p":{"type":"string","description":"theirs"}}}`, ""},
	{"old ref", `{"type":"object","properties":{"a":{"$ref":"#/definitions/p"}},"definitions":{"p":{"type":"string"}}}`, ""},
	{"ref to a ref", `{"type":"object","properties":{"a":{"$ref":"#/$defs/p"}},"$defs":{"p":{"$ref":"#/$defs/q"},"q":{"type":"string"}}}`, ""},
	{"ref to itself", `{"type":"object","properties":{"a":{"$ref":"#/$defs/p"}},"$defs":{"p":{"type":"object","properties":{"p":{"$ref":"#/$defs/p"}}}}}`, "openai openai-responses gemini"},
	{"ref to nothing", `{"type":"object","properties":{"a":{"$ref":"#/$defs/p"}},"$defs":{"q":{}}}`, "compile"},
	{"oneOf", `{"type":"object","properties":{"a":{"oneOf":[{"type":"string"},{"type":"integer"}]}}}`, ""},
	{"anyOf", `{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["a"]}`, ""},
	{"oneOf at the top", `{"oneOf":[{"type":"object","properties":{"a":{"type":"string"}}},{"type":"object","properties":{"b":{"type":"string"}}}]}`, "all mcp"},
	{"allOf", `{"type":"object","allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"type":"object","properties":{"b":{"type":"string"}}}]}`, ""},
	{"allOf twice", `{"type":"object","allOf":[{"type":"object","properties":{"a":{"type":"string"}}},{"type":"object","properties":{"a":{"maxLength":3}}}]}`, "all"},
	{"tuple", `{"type":"object","properties":{"a":{"type":"array","prefixItems":[{"type":"number"},{"type":"number"}]}}}`, ""},
	{"mixed tuple", `{"type":"object","properties":{"a":{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"description":"both."}}}`, ""},
	{"list of anything", `{"type":"object","properties":{"a":{"type":"array"}}}`, ""},
	{"formats", `{"type":"object","properties":{"a":{"type":"string","format":"uri"},"b":{"type":"string","format":"date-time","description":"When."}}}`, ""},
	{"pattern", `{"type":"object","properties":{"a":{"type":"string","pattern":"^x+$","minLength":1}}}`, ""},
	{"const", `{"type":"object","properties":{"a":{"const":"x"},"b":{"const":3}}}`, ""},
	{"enum of numbers", `{"type":"object","properties":{"a":{"type":"integer","enum":[1,2]}}}`, ""},
	{"enum with null", `{"type":"object","properties":{"a":{"type":["string","null"],"enum":["x",null]}}}`, ""},
	{"union", `{"type":"object","properties":{"a":{"type":["string","integer","null"],"minimum":1}}}`, ""},
	{"map", `{"type":"object","properties":{"a":{"type":"object","additionalProperties":{"type":"string"},"description":"By name."}}}`, ""},
	{"anything", `{"type":"object","properties":{"a":{}}}`, ""},
	{"map beside fields", `{"type":"object","properties":{"a":{"type":"object","properties":{"x":{"type":"string"}},"additionalProperties":{"type":"string"}}}}`, "openai openai-responses gemini"},
	{"not", `{"type":"object","properties":{"a":{"not":{"type":"string"}}}}`, "openai openai-responses gemini"},
	{"if", `{"type":"object","properties":{"a":{"type":"string"}},"if":{"required":["a"]},"then":{"required":["a"]}}`, "openai openai-responses gemini"},
	{"deep", `{"type":"object","properties":{"a":` + strings.Repeat(`{"type":"array","items":`, 12) + `{"type":"string"}` + strings.Repeat(`}`, 12) + `}}`, "openai openai-responses gemini"},
	{"no object", `{"type":"array","items":{"type":"string"}}`, "all mcp"},
	{"a long name " + strings.Repeat("x", 60), `{"type":"object"}`, "all mcp"},
}

// TestLowered: each schema in each format is what the format takes, or left out with a reason.
func TestLowered(t *testing.T) {
	var golden bytes.Buffer
	for _, tt := range lowered {
		s := &jsonschema.Schema{}
		if err := json.Unmarshal([]byte(tt.schema), s); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		name := "x"
		if strings.HasPrefix(tt.name, "a long name") {
			name = strings.ReplaceAll(tt.name, " ", "_")
		}
		d := aTool(name, s)
		if err := d.compile(); err != nil {
			if tt.cannot != "compile" {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		cannot := strings.Fields(strings.ReplaceAll(tt.cannot, "all", "anthropic openai openai-responses gemini"))
		for _, format := range []string{"anthropic", "openai", "openai-responses", "gemini", "mcp"} {
			raw, err := Render(d, format)
			if le, ok := err.(*LoweringError); err != nil && (!ok || le.Why == "" || !slices.Contains(cannot, format)) || err == nil && slices.Contains(cannot, format) { //nolint:errorlint // what Render promises
				t.Errorf("%s as %s: %s, %v", tt.name, format, raw, err)
			}
			if err != nil {
				fmt.Fprintf(&golden, "%.20s, %s: %v\n", tt.name, format, err)
				continue
			}
			fmt.Fprintf(&golden, "%.20s, %s: %s\n", tt.name, format, raw)
			var v map[string]any
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			if f, ok := v["function"].(map[string]any); ok {
				v = f
			}
			switch input, _ := v["parameters"].(map[string]any); format {
			case "openai", "openai-responses":
				isStrict(t, tt.name, input)
			case "gemini":
				isGemini(t, tt.name, input)
			}
		}
	}
	const file = "testdata/lowered.txt"
	if *update {
		if err := os.WriteFile(file, golden.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(want, golden.Bytes()) {
		t.Errorf("%s differs from what is rendered now (%v); look at the change and run the test with -update\n%s", file, err, golden.Bytes())
	}
}

// isStrict checks what strict mode documents: its keywords alone, all fields required, no
// others, and a type or a choice everywhere.
func isStrict(t *testing.T, name string, s map[string]any) {
	t.Helper()
	walk(t, name, s, []string{"type", "description", "enum", "properties", "required", "additionalProperties", "items", "anyOf"}, func(s map[string]any) {
		if s["type"] != "object" {
			return
		}
		fields, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		if s["additionalProperties"] != false || len(required) != len(fields) || fields == nil && s["properties"] != nil {
			t.Errorf("%s: an object of strict mode is %v", name, s)
		}
	})
}

// isGemini checks that it has keywords of a function declaration alone, one type, and enums
// of texts.
func isGemini(t *testing.T, name string, s map[string]any) {
	t.Helper()
	known := []string{"type", "nullable", "description", "enum", "items", "properties", "propertyOrdering", "required", "minimum", "maximum", "maxItems", "anyOf"}
	walk(t, name, s, known, func(s map[string]any) {
		if _, one := s["type"].(string); !one && s["anyOf"] == nil {
			t.Errorf("%s: a type of gemini is %v", name, s)
		}
		values, _ := s["enum"].([]any)
		for _, v := range values {
			if _, ok := v.(string); !ok {
				t.Errorf("%s: an enum of gemini has %v", name, v)
			}
		}
		if s["type"] == "array" && s["items"] == nil {
			t.Errorf("%s: a list of gemini without items", name)
		}
	})
}

// walk visits a schema and all in it.
func walk(t *testing.T, name string, s map[string]any, known []string, visit func(map[string]any)) {
	t.Helper()
	for k := range s {
		if !slices.Contains(known, k) {
			t.Errorf("%s: the keyword %s", name, k)
		}
	}
	visit(s)
	fields, _ := s["properties"].(map[string]any)
	for _, f := range fields {
		walk(t, name, f.(map[string]any), known, visit)
	}
	if items, ok := s["items"].(map[string]any); ok {
		walk(t, name, items, known, visit)
	}
	either, _ := s["anyOf"].([]any)
	for _, e := range either {
		walk(t, name, e.(map[string]any), known, visit)
	}
}
