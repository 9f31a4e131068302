package mcp

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
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
	if r := shaped(outcome{}.result(true, "text"), habit.Of(new(Server).agentOf(nil))); !r.IsError {
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

// TestLongResults: Claude Code, which puts long results into files and has its model search for tools, is told how long
// those of a tool may be, and that each is to be there.
func TestLongResults(t *testing.T) {
	for name, want := range map[string]sdk.Meta{"claude-code": {"anthropic/maxResultSizeChars": 100_000, "anthropic/alwaysLoad": true}, "test": {}} {
		for range 2 { // one and another
			tool := new(sdk.Tool)
			shapedTools([]*sdk.Tool{tool}, habit.Of(name))
			if !maps.Equal(tool.Meta, want) {
				t.Errorf("%s: %v", name, tool.Meta)
			}
		}
	}
}

// TestShapedOverHTTP: clients of older protocols say who they are once, and what they ask for later, in
// requests of their own, is shaped for them by the id that they were given.
func TestShapedOverHTTP(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	agents := make(chan string, 1)
	d.on("GET /v1/tools", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, in{"items": []in{}}) })
	d.on("POST /v1/sessions/ses_1/calls", func(w http.ResponseWriter, r *http.Request) {
		var c client.CallCreate
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			t.Error(err)
		}
		agents <- c.Agent
		reply(w, 400, problem(400, client.CodeInvalidInput, "no"))
	})
	endpoint, _, _ := d.http()
	ask := func(id, body string) (string, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(body))
		testrig.Must(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if id != "" {
			r.Header.Set("Mcp-Session-Id", id)
			r.Header.Set("Mcp-Protocol-Version", "2025-06-18")
		}
		resp, err := http.DefaultClient.Do(r)
		testrig.Must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		testrig.Must(t, err)
		return resp.Header.Get("Mcp-Session-Id"), string(text)
	}
	for _, tt := range []struct {
		name, agent     string
		shaped, isError bool
	}{
		{"gemini-cli-mcp-client", "gemini-cli-mcp-client", true, false},
		{"other", "other", false, true},
		{"", "mcp", false, true},
		{strings.Repeat("n", maxAgent+1), "mcp", false, true},
	} {
		id, _ := ask("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"`+tt.name+`","version":"1"}}}`)
		if (id == "") != (tt.agent == "mcp") {
			t.Fatalf("%s has the id %q", tt.name, id)
		}
		if id == "" {
			id = "x" // of some other server
		}
		if _, list := ask(id, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); strings.Contains(list, `"required"`) == tt.shaped || !strings.Contains(list, `"wait"`) {
			t.Errorf("%s is given %s", tt.name, list)
		}
		_, got := ask(id, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"bash","arguments":{}}}`)
		if agent := <-agents; agent != tt.agent || strings.Contains(got, `"isError":true`) != tt.isError {
			t.Errorf("%s calls as %q, and is given %s", tt.name, agent, got)
		}
	}
	for _, id := range []string{"client-", "client-?", "client-" + base64.RawURLEncoding.EncodeToString([]byte("a\nb"))} {
		if _, list := ask(id, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); !strings.Contains(list, `"required"`) {
			t.Errorf("with the id %q: %s", id, list)
		}
	}
}

// TestCallsAreOfAnAgent: whatever a client of MCP calls itself, and whether it does, its calls are an agent's, so that no
// person at a terminal may answer them.
func TestCallsAreOfAnAgent(t *testing.T) {
	t.Parallel()
	for _, client := range []*sdk.Implementation{nil, {}, {Name: "claude-code"}, {Name: "a\x00b"}, {Name: strings.Repeat("x", 10_000)}} {
		if agent := new(Server).agentOf(client); agent == "" {
			t.Errorf("%+v: no agent", client)
		}
	}
}
