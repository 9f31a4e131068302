package client

import (
	"context"
	"encoding/json"
	"net/url"
)

// ofTools is the part of a Client that asks which tools there are.
type ofTools struct{ c *Client }

// ToolQuery selects tools: those that a profile, a session, or a model of a
// provider may see. Empty fields do not restrict.
type ToolQuery struct {
	Profile, Session, Provider, Model string
}

func (q ToolQuery) values() url.Values {
	v := url.Values{}
	setNonEmpty(v, "profile", q.Profile)
	setNonEmpty(v, "session", q.Session)
	setNonEmpty(v, "provider", q.Provider)
	setNonEmpty(v, "model", q.Model)
	return v
}

// Tools lists the definitions of tools.
func (t ofTools) Tools(ctx context.Context, q ToolQuery) ([]ToolDefinition, error) {
	return items(fetch[List[ToolDefinition]](ctx, t.c, request{method: "GET", path: "/v1/tools", query: q.values()}))
}

// ToolSet gives the tools with the revision of the set, and says which are absent and why.
func (t ofTools) ToolSet(ctx context.Context, q ToolQuery) (*ToolList, error) {
	v := q.values()
	setFlag(v, "all", true)
	return fetch[ToolList](ctx, t.c, request{method: "GET", path: "/v1/tools", query: v})
}

// ToolsFormat lists the definitions in the shape of a provider: anthropic,
// openai, openai-responses, gemini or mcp.
func (t ofTools) ToolsFormat(ctx context.Context, q ToolQuery, format string) ([]json.RawMessage, error) {
	v := q.values()
	v.Set("format", format)
	return items(fetch[List[json.RawMessage]](ctx, t.c, request{method: "GET", path: "/v1/tools", query: v}))
}

// Brief describes a session, the way its tools' descriptions do, as a text for a system prompt.
func (t ofTools) Brief(ctx context.Context, session string) (string, error) {
	text, err := t.c.text(ctx, "/v1/sessions/"+url.PathEscape(session)+"/brief")
	return string(text), err
}
