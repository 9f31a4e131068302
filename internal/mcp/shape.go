package mcp

import (
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// shapes are the agents whose models read a result otherwise than it is written, or that send other
// calls than their models make, by how the name
// begins that their clients say of themselves. test/agents sees what their models receive.
var shapes = []struct {
	client string
	shape  func(*sdk.CallToolResult) // nil where results are given as they are
	tool   func(*sdk.Tool)           // nil where tools are given as they are
}{
	// Of a result that is an error these give the model the whole JSON of the protocol as one
	// text, so that tabs, quotes and line breaks are escaped, some twice. The text says what
	// went wrong by itself.
	// And they check an input by the schema before they send it: a field by another system's name,
	// which is taken here, would be refused there.
	{"gemini-cli-", noError, anyField},
	{"qwen-", noError, anyField},
	// It puts a long result into a file, which its model would read with a tool of its own.
	{"claude-code", nil, longResult},
}

// maxResultChars is more than any text of toold's for a model: outputs are cut at 50 KiB.
const maxResultChars = 100_000

func longResult(t *sdk.Tool) { t.Meta = sdk.Meta{"anthropic/maxResultSizeChars": maxResultChars} }

func noError(r *sdk.CallToolResult) { r.IsError = false }

// shaped is a result as the client's model is to have it.
func shaped(r *sdk.CallToolResult, to *sdk.Implementation) *sdk.CallToolResult {
	if to == nil {
		return r
	}
	for _, s := range shapes {
		if s.shape != nil && strings.HasPrefix(to.Name, s.client) {
			s.shape(r)
		}
	}
	return r
}

// anyField takes from a schema that there are no other fields: what is none of them, and asks for
// something, is refused when the call comes.
func anyField(t *sdk.Tool) { t.InputSchema = open(t.InputSchema) }

// open is a schema, or a part of one, whose objects may have any fields besides.
func open(schema any) any {
	switch v := schema.(type) {
	case map[string]any:
		if v["additionalProperties"] == false {
			delete(v, "additionalProperties")
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

// shapedTools are tools as the client is to have them.
func shapedTools(all []*sdk.Tool, to *sdk.Implementation) {
	for _, s := range shapes {
		if to == nil || s.tool == nil || !strings.HasPrefix(to.Name, s.client) {
			continue
		}
		for _, t := range all {
			s.tool(t)
		}
	}
}
