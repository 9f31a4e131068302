package mcp

import (
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// shapes are the agents whose models read a result otherwise than it is written, by how the name
// begins that their clients say of themselves. test/agents sees what their models receive.
var shapes = []struct {
	client string
	shape  func(*sdk.CallToolResult)
}{
	// Of a result that is an error these give the model the whole JSON of the protocol as one
	// text, so that tabs, quotes and line breaks are escaped, some twice. The text says what
	// went wrong by itself.
	{"gemini-cli-", noError},
	{"qwen-", noError},
}

func noError(r *sdk.CallToolResult) { r.IsError = false }

// shaped is a result as the client's model is to have it.
func shaped(r *sdk.CallToolResult, to *sdk.Implementation) *sdk.CallToolResult {
	if to == nil {
		return r
	}
	for _, s := range shapes {
		if strings.HasPrefix(to.Name, s.client) {
			s.shape(r)
		}
	}
	return r
}
