package agents

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/shipped"
	"github.com/toold/toold/internal/tool"
)

// TestForeignCalls: what a model calls by habit of an agent's own tools is taken here, each field of it
// too, or refused with the form that works: nothing is refused as merely unknown.
func TestForeignCalls(t *testing.T) {
	t.Parallel()
	registry := tool.NewRegistry()
	taken := 0
	for _, a := range shipped.Agents {
		known := readSchemas(t, a)
		for _, name := range slices.Sorted(maps.Keys(known.Tools)) {
			schema, ok := known.Tools[name].(map[string]any)
			if !ok {
				continue // it takes a text and no fields, which no server of MCP can offer
			}
			fields, _ := schema["properties"].(map[string]any)
			whole, _ := exampleOf("", schema, true).(map[string]any)
			needed, _ := exampleOf("", schema, false).(map[string]any)
			raw, _ := json.Marshal(whole)
			if _, err := registry.Parse(name, raw); codeOf(err) == client.CodeUnknownTool {
				continue // no alias: the answer names the tools that there are
			}
			taken++
			for _, field := range append([]string{""}, slices.Sorted(maps.Keys(fields))...) {
				values := []any{whole[field]}
				if values[0] == true {
					values = append(values, false) // which may ask for more than true does
				}
				for _, v := range values {
					input := maps.Clone(needed)
					if field != "" {
						input[field] = v
					}
					raw, _ := json.Marshal(input)
					if _, err := registry.Parse(name, raw); err != nil && !helps(err) {
						t.Errorf("%s %s: %s %s: %v", a.Name, known.Version, name, raw, err)
					}
				}
			}
		}
	}
	if taken < 25 {
		t.Errorf("%d tools are aliases", taken)
	}
}

func codeOf(err error) client.Code {
	if e, ok := errors.AsType[*client.Error](err); ok {
		return e.Code
	}
	return ""
}

// helps reports whether a refusal says of each field what is wrong what to do about it: what does the same here, what is
// known, or what is needed.
func helps(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	if !ok || len(e.Violations) == 0 {
		return false
	}
	for _, v := range e.Violations {
		if !slices.ContainsFunc([]string{"leave the key out", "; known are ", "; did you mean ", "must be one of ", "is required", "; use ", "; give "}, func(way string) bool { return strings.Contains(v.Message, way) }) {
			return false
		}
	}
	return true
}

// exampleOf is a value that a schema takes: with all fields, or with those that are needed.
func exampleOf(name string, schema map[string]any, all bool) any {
	if values, ok := schema["enum"].([]any); ok {
		return values[0]
	}
	if v, ok := schema["const"]; ok {
		return v
	}
	for _, k := range []string{"anyOf", "oneOf"} {
		if ways, ok := schema[k].([]any); ok {
			first, _ := ways[0].(map[string]any)
			return exampleOf(name, first, all)
		}
	}
	kind, _ := schema["type"].(string)
	if kinds, ok := schema["type"].([]any); ok {
		kind, _ = kinds[0].(string)
	}
	switch kind {
	case "object":
		out := map[string]any{}
		fields, _ := schema["properties"].(map[string]any)
		needed, _ := schema["required"].([]any)
		for field, s := range fields {
			if s, ok := s.(map[string]any); ok && (all || slices.Contains(needed, any(field))) {
				out[field] = exampleOf(field, s, all)
			}
		}
		return out
	case "array":
		item, _ := schema["items"].(map[string]any)
		one := exampleOf(name, item, all)
		if kind, _ := item["type"].(string); kind == "number" || kind == "integer" {
			return []any{one, 2} // such as a range of lines
		}
		return []any{one}
	case "integer", "number":
		return 1
	case "boolean":
		return true
	}
	if strings.Contains(strings.ToLower(name), "path") || strings.Contains(name, "dir") {
		return "/workspace/a"
	}
	return "a"
}
