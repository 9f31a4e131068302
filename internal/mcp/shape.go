package mcp

import (
	"encoding/json"
	"maps"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/internal/habit"
)

// shaped is a result as the client's model is to have it. How long its text may be, the daemon knows
// by the name of the call's agent. The text of an error says what went wrong by itself.
func shaped(r *sdk.CallToolResult, to habit.Habit) *sdk.CallToolResult {
	r.IsError = r.IsError && !to.Quotes
	return r
}

// shapedTools are tools as the client is to have them.
func shapedTools(all []*sdk.Tool, to habit.Habit) {
	for _, t := range all {
		if to.Checks {
			t.InputSchema = open(t.InputSchema)
		}
		if to.Meta != nil {
			t.Meta = maps.Clone(to.Meta)
		}
	}
}

// open is a schema, or a part of one, whose objects may have any fields besides, and need none:
// what is lacking, or is none of them and asks for something, is refused when the call comes. A
// model reads which are needed in their descriptions.
func open(schema any) any {
	switch v := schema.(type) {
	case json.RawMessage:
		var s any
		if json.Unmarshal(v, &s) != nil {
			return v
		}
		return open(s)
	case map[string]any:
		if v["additionalProperties"] == false {
			delete(v, "additionalProperties")
		}
		if needed, ok := v["required"].([]any); ok {
			delete(v, "required")
			sayNeeded(v["properties"], needed)
		}
		for k, part := range v {
			v[k] = open(part)
		}
	case []any:
		for i, part := range v {
			v[i] = open(part)
		}
	}
	return schema
}

// sayNeeded says in the descriptions of fields that they are needed.
func sayNeeded(fields any, needed []any) {
	all, _ := fields.(map[string]any)
	for _, name := range needed {
		name, _ := name.(string)
		if field, ok := all[name].(map[string]any); ok {
			text, _ := field["description"].(string)
			if text != "" {
				text = " " + text
			}
			field["description"] = "Required." + text
		}
	}
}
