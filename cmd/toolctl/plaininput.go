package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/strictjson"
)

// toolInput makes the input of a tool from text: a JSON object as it is, and else
// the tool's main field. A command such as "{ ls; }" is no object.
func toolInput(defs []client.ToolDefinition, tool, text string) (json.RawMessage, error) {
	if strictjson.IsObject([]byte(text)) {
		return json.RawMessage(text), nil
	}
	var names []string
	for _, d := range defs {
		if d.Name == tool {
			return plainInput(d, text)
		}
		names = append(names, d.Name)
	}
	return nil, &missingError{fmt.Sprintf("there is no tool %q%s", tool, didYouMean(tool, names)), `"toolctl tools" lists them`}
}

// askedInput is toolInput with the definitions that the daemon has now.
func askedInput(ctx context.Context, c *client.Client, tool, text string) (json.RawMessage, error) {
	if strictjson.IsObject([]byte(text)) {
		return json.RawMessage(text), nil
	}
	if input, ok := policy.OutgoingInput(tool, text); ok {
		return input, nil
	}
	defs, err := c.Tools(ctx, client.ToolQuery{})
	if err != nil {
		return nil, err
	}
	return toolInput(defs, tool, text)
}

func plainInput(d client.ToolDefinition, text string) (json.RawMessage, error) {
	field, needs, err := mainField(d)
	if err != nil {
		return nil, err
	}
	if field == "" {
		return nil, usagef("%s needs more than one string: write its input as a JSON object with %s",
			line(d.Name), line(strings.Join(needs, ", ")))
	}
	return json.Marshal(map[string]string{field: text})
}

// mainField is the one string that a tool needs; of a tool that needs nothing, the
// only string that it takes. "" is none: the tool needs more, or something else.
func mainField(d client.ToolDefinition) (field string, needs []string, err error) {
	var schema struct {
		Required   []string `json:"required"`
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(d.InputSchema, &schema); err != nil {
		return "", nil, fmt.Errorf("schema of tool %s: %w", d.Name, err)
	}
	candidates := schema.Required
	if len(candidates) == 0 {
		for name, p := range schema.Properties {
			needs = append(needs, name)
			if p.Type == "string" {
				candidates = append(candidates, name)
			}
		}
	}
	if len(candidates) == 1 && schema.Properties[candidates[0]].Type == "string" {
		return candidates[0], nil, nil
	}
	needs = append(needs, schema.Required...)
	slices.Sort(needs)
	return "", needs, nil
}
