package mcp

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/internal/habit"
	"github.com/toold/toold/internal/testrig"
)

// TestShaped: an error is one for every client but those that quote errors; no more of a result changes.
func TestShaped(t *testing.T) {
	for name, want := range map[string]bool{
		"": true, "test": true, "claude-code": true, "codex-mcp-client": true, "gemini": true,
		"gemini-cli-mcp-client": false, "qwen-cli-mcp-client-toold": false,
	} {
		for _, isError := range []bool{true, false} {
			r := shaped(outcome{}.result(isError, "text"), habit.Of(name))
			if text, ok := r.Content[0].(*sdk.TextContent); r.IsError != (want && isError) || !ok || text.Text != "text" {
				t.Errorf("%s, error %v: %+v", name, isError, r)
			}
		}
	}
	if r := shaped(outcome{}.result(true, "text"), habitOf(nil)); !r.IsError {
		t.Error("a client without a name is told of no error")
	}
}

// TestShapedTools: the schemas of those that check inputs by them let the names of other systems through.
func TestShapedTools(t *testing.T) {
	for name, want := range map[string]string{
		"claude-code":               `{"additionalProperties":false,"items":[{"additionalProperties":false}],"properties":{"additionalProperties":{"type":"boolean"},"required":{"description":"Which."}},"required":["required"]}`,
		"gemini-cli-mcp-client":     `{"items":[{}],"properties":{"additionalProperties":{"type":"boolean"},"required":{"description":"Required. Which."}}}`,
		"qwen-cli-mcp-client-toold": `{"items":[{}],"properties":{"additionalProperties":{"type":"boolean"},"required":{"description":"Required. Which."}}}`,
	} {
		tool := new(sdk.Tool)
		err := json.Unmarshal([]byte(`{"inputSchema": {"additionalProperties": false, "items": [{"additionalProperties": false}], "properties": {"additionalProperties": {"type": "boolean"}, "required": {"description": "Which."}}, "required": ["required"]}}`), tool)
		shapedTools([]*sdk.Tool{tool}, habit.Of(name))
		got, _ := json.Marshal(tool.InputSchema)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}

	d := newDaemon(t)
	d.on("GET /v1/tools", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, in{"items": []in{{"name": "bash", "inputSchema": in{"type": "object", "additionalProperties": false}}}})
	})
	list, err := d.serveTo("gemini-cli-mcp-client", Config{}).ListTools(t.Context(), nil)
	testrig.Must(t, err)
	if got, _ := json.Marshal(list.Tools); !strings.Contains(string(got), `{"type":"object"}`) || strings.Contains(string(got), `"required"`) || !strings.Contains(string(got), "Required. The id of the call") {
		t.Errorf("a list has %s", got)
	}
}

// TestLongResults: Claude Code, which puts long results into files, is told how long those of a tool may be.
func TestLongResults(t *testing.T) {
	for name, want := range map[string]any{"claude-code": 100_000, "test": nil} {
		tool := new(sdk.Tool)
		shapedTools([]*sdk.Tool{tool}, habit.Of(name))
		if got := tool.Meta["anthropic/maxResultSizeChars"]; got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
