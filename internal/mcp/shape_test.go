package mcp

import (
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestShaped: an error is one for every client but those that quote errors; no more of a result changes.
func TestShaped(t *testing.T) {
	for name, want := range map[string]bool{
		"": true, "test": true, "claude-code": true, "codex-mcp-client": true, "gemini": true,
		"gemini-cli-mcp-client": false, "qwen-cli-mcp-client-toold": false,
	} {
		for _, isError := range []bool{true, false} {
			r := shaped(outcome{}.result(isError, "text"), &sdk.Implementation{Name: name})
			if text, ok := r.Content[0].(*sdk.TextContent); r.IsError != (want && isError) || !ok || text.Text != "text" {
				t.Errorf("%s, error %v: %+v", name, isError, r)
			}
		}
	}
	if r := shaped(outcome{}.result(true, "text"), nil); !r.IsError {
		t.Error("a client without a name is told of no error")
	}
}
