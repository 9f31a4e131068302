package cli

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/api"
	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// Of two canaries one is in files that read denies, and one in the name of such a file.
const (
	canaryText = "canary-5d1f0a"
	canaryName = "canary-77c2be"
)

// agentTools are inputs of each tool by which an agent could come to see more than read allows. What runs in the sandbox
// (bash) may read what its user may: no line for read is about that.
var agentTools = map[string][]string{
	"bash": nil, "todoread": {`{}`}, "todowrite": {`{"todos":[]}`},
	"read": {`{"file_path":"."}`, `{"file_path":"secret"}`, `{"file_path":"link"}`, `{"file_path":"secreet"}`, `{"file_path":"names"}`, `{"file_path":"names/canary"}`, `{"file_path":".claude/skills/hidden/SKILL.md"}`},
	"list": {`{}`, `{"path":"names"}`, `{"path":".claude"}`},
	"glob": {`{"pattern":"**"}`, `{"pattern":"**/canary*"}`, `{"pattern":"*","path":"names"}`},
	"grep": {`{"pattern":"canary"}`, `{"pattern":"canary","path":"secret"}`, `{"pattern":"canary","path":"link","context":5}`, `{"pattern":"canary","output_mode":"files_with_matches"}`},
	"edit": {
		`{"file_path":"secret","old_string":"nosuch","new_string":"x"}`, `{"file_path":"secret","old_string":"canary","new_string":"canary"}`, `{"file_path":"secret","old_string":"a","new_string":"b"}`,
		`{"file_path":"link","old_string":"canaro","new_string":"x"}`,
	},
	"multiedit":   {`{"file_path":"secret","edits":[{"old_string":"canary","new_string":"x"},{"old_string":"nosuch","new_string":"y"}]}`},
	"write":       {`{"file_path":"secret2","content":"mine\n"}`, `{"file_path":"names","content":"mine\n"}`},
	"apply_patch": {`{"patch":"*** Begin Patch\n*** Update File: secret\n@@\n-nosuch\n+x\n*** End Patch"}`, `{"patch":"*** Begin Patch\n*** Update File: secret3\n*** Move to: open\n*** End Patch"}`, `{"patch":"*** Begin Patch\n*** Delete File: secret4\n*** End Patch"}`},
	"skill":       {`{"name":"hidden"}`, `{"name":"hiden"}`},
	"batch":       {`{"calls":[{"tool":"read","input":{"file_path":"secret"}},{"tool":"glob","input":{"pattern":"**"}},{"tool":"grep","input":{"pattern":"canary"}}]}`},
}

// TestTokenShowsNoCanary has an agent, which has no more than a session's token, make a request of every route, with the
// calls of a person beside its own: what read denies is in no answer.
func TestTokenShowsNoCanary(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.toml")
	testrig.Must(t, os.WriteFile(config, []byte(`
[skills]
worktree = true
[permission]
read = { "*" = "allow", "**/secret*" = "deny", "**/hidden/*" = "deny", "**/canary*" = "deny" }
doom_loop = "allow"
`), 0o600))
	r := newDaemon(t, "--config", config)
	tree := filepath.Join(r.dir, "tree")
	for _, dir := range []string{tree, filepath.Join(tree, "names"), filepath.Join(tree, ".claude"), filepath.Join(tree, ".claude/skills"), filepath.Join(tree, ".claude/skills/hidden")} {
		testrig.Must(t, os.Mkdir(dir, 0o755))
	}
	skill := "---\nname: hidden\ndescription: " + canaryText + "\n---\n" + canaryText + "\n"
	for name, text := range map[string]string{"names/" + canaryName: "x\n", ".claude/skills/hidden/SKILL.md": skill, "secret2": canaryText, "secret3": canaryText, "secret4": canaryText} {
		testrig.Must(t, os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644))
	}
	testrig.Must(t, os.Symlink("secret", filepath.Join(tree, "link")))

	person := client.New(client.Options{Socket: r.socket})
	defer person.Close()
	s, err := person.CreateSession(t.Context(), client.SessionCreate{Worktree: client.Worktree{Source: tree}, Token: true})
	testrig.Must(t, err)
	var calls []string
	for tool, input := range map[string]string{
		"write": `{"file_path":"secret","content":"` + canaryText + `\n"}`, "edit": `{"file_path":"names/` + canaryName + `","old_string":"x","new_string":"` + canaryText + `"}`,
		"read": `{"file_path":"secret"}`, "batch": `{"calls":[{"tool":"read","input":{"file_path":"secret2"}},{"tool":"write","input":{"file_path":"secret6","content":"` + canaryText + `"}}]}`,
		"apply_patch": `{"patch":"*** Begin Patch\n*** Update File: secret2\n@@\n-` + canaryText + `\n+` + canaryText + ` too\n*** End Patch"}`,
	} {
		c, err := person.CreateCall(t.Context(), s.ID, client.CallCreate{Tool: tool, Input: json.RawMessage(input), Key: "of-" + tool, Typed: true}, client.CallOptions{})
		testrig.Must(t, err)
		calls = append(calls, c.ID)
	}
	put, err := person.PutFile(t.Context(), s.ID, "secret5", 0o600, strings.NewReader(canaryText))
	testrig.Must(t, err)
	calls = append(calls, put.ID)

	h := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.socket)
	}}}
	defer h.CloseIdleConnections()
	// ask makes a request as the agent. No canary may be in the answer.
	ask := func(method, path, accept, body string) (status int, answer string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://toold"+path, strings.NewReader(body))
		testrig.Must(t, err)
		req.Header.Set("Authorization", "Bearer "+s.Token)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		req.Header.Set("Accept", accept)
		resp, err := h.Do(req)
		testrig.Must(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		testrig.Must(t, err)
		for _, canary := range []string{canaryText, canaryName} {
			if strings.Contains(string(b), canary) {
				t.Errorf("%s %s %s shows %s:\n%s", method, path, body, canary, b)
			}
		}
		return resp.StatusCode, string(b)
	}
	const jsonOnly, events = "application/json", "text/event-stream"
	mcp := func(method, params string) string {
		_, answer := ask("POST", "/v1/sessions/"+s.ID+"/mcp", jsonOnly+", "+events, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
		return answer
	}
	of := func(route string) string { return "/v1/sessions/" + s.ID + route }

	// What else than the plain request an agent can make of a route; no route for agents is missing here.
	ways := map[string]func(){
		"Version": nil, "Health": nil, "Ready": nil, "OpenAPI": nil, "GetSession": nil, "Brief": nil, "SessionNetwork": nil, "GetCall": nil, "AbortCall": nil,
		"Tools": func() {
			for _, query := range []string{"", "&all=1", "&format=openai", "&format=mcp&all=1"} {
				if status, answer := ask("GET", "/v1/tools?session="+s.ID+query, jsonOnly, ""); status != http.StatusOK {
					t.Errorf("tools: %d %s", status, answer)
				}
			}
		},
		"CreateCall": func() {
			_, answer := ask("GET", "/v1/tools?session="+s.ID, jsonOnly, "")
			var list client.ToolList
			testrig.Must(t, json.Unmarshal([]byte(answer), &list))
			for _, d := range list.Items {
				inputs, known := agentTools[d.Name]
				if !known {
					t.Errorf("%s has no row in agentTools: by which of its inputs could an agent see what read denies?", d.Name)
				}
				for _, input := range inputs {
					call := `{"tool":"` + d.Name + `","input":` + input + `}`
					ask("POST", of("/calls"), jsonOnly, call)
					ask("POST", of("/calls"), events, call)
					mcp("tools/call", `{"name":"`+d.Name+`","arguments":`+input+`}`)
				}
			}
			for _, tool := range []string{"file_get", "file_put"} {
				ask("POST", of("/calls"), jsonOnly, `{"tool":"`+tool+`","input":{"path":"secret"}}`)
			}
			// A call of a person by its key.
			ask("POST", of("/calls"), jsonOnly, `{"tool":"read","input":{"file_path":"secret"},"key":"of-read"}`)
		},
		"MCP": func() {
			mcp("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`)
			for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list"} {
				mcp(method, `{}`)
			}
			uris := []string{"toold://worktree/secret", "toold://worktree/link", "toold://worktree/names", "toold://worktree/names/canary", "toold://worktree/.claude/skills/hidden/SKILL.md"}
			for _, id := range calls {
				uris = append(uris, "toold://calls/"+id+"/output")
			}
			for _, uri := range uris {
				if answer := mcp("resources/read", `{"uri":"`+uri+`"}`); !strings.Contains(answer, `"error"`) || strings.Contains(answer, "Resource not found") {
					t.Errorf("%s: %s", uri, answer)
				}
			}
		},
		"ListCalls": func() {
			for _, query := range []string{"?tool=read", "?limit=1", "?status=completed"} {
				ask("GET", of("/calls"+query), jsonOnly, "")
			}
		},
		"CallOutput": func() {
			for _, id := range calls {
				for _, query := range []string{"?stream=stderr", "?follow=1", "?offset=1"} {
					ask("GET", "/v1/calls/"+id+"/output"+query, jsonOnly, "")
				}
			}
		},
		"GetFile": func() {
			for _, file := range []string{"secret", "link", "names", "names/canary", "/workspace/secret2", "../workspace/secret5", ".", "/proc/self/root/workspace/secret2", ".claude/skills/hidden/SKILL.md"} {
				for _, more := range []string{"", "&archive=tar"} {
					if status, _ := ask("GET", of("/files?path="+url.QueryEscape(file)+more), "*/*", ""); status < 400 {
						t.Errorf("%s%s: %d", file, more, status)
					}
				}
			}
		},
	}
	var spec struct {
		Paths map[string]map[string]struct {
			ID   string `json:"operationId"`
			Role string `json:"x-toold-role"`
			Auth []any  `json:"security"`
		}
	}
	testrig.Must(t, json.Unmarshal(api.OpenAPI, &spec))
	for _, name := range []string{"CreateCall", "MCP"} { // of which others show what there was
		ways[name]()
		ways[name] = nil
	}
	for path, methods := range spec.Paths {
		for method, op := range methods {
			more, known := ways[op.ID]
			delete(ways, op.ID)
			if forAgents := len(op.Auth) > 0; forAgents != known {
				t.Errorf("%s is for agents: %v; here: %v", op.ID, forAgents, known)
			}
			ids := []string{s.ID}
			if strings.HasPrefix(path, "/v1/calls/") {
				ids = calls
			}
			for _, id := range ids {
				status, answer := ask(strings.ToUpper(method), strings.NewReplacer("{id}", id, "{cache}", "c", "{checkpoint}", "1").Replace(path), jsonOnly, map[bool]string{true: "{}"}[method != "get" && method != "delete"])
				if !known && status != http.StatusForbidden && status != http.StatusUnauthorized {
					t.Errorf("%s, which is not for agents: %d %s", op.ID, status, answer)
				}
			}
			if more != nil {
				more()
			}
		}
	}
	if len(ways) > 0 {
		t.Errorf("no routes: %v", slices.Sorted(maps.Keys(ways)))
	}
	// The canaries are there.
	if c, err := person.CreateCall(t.Context(), s.ID, client.CallCreate{Tool: "bash", Input: json.RawMessage(`{"command":"cat secret; ls names"}`)}, client.CallOptions{}); err != nil || !strings.Contains(c.Output, canaryText) || !strings.Contains(c.Output, canaryName) {
		t.Errorf("control: %+v, %v", c, err)
	}
}
