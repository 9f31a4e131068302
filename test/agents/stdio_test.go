package agents

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/shipped"
	"github.com/toold/toold/internal/testrig"
)

// TestStdio: an agent gets the tools of a session of its own, which ends with it.
func TestStdio(t *testing.T) {
	d := startDaemon(t)
	dir := worktree(t, map[string]string{"a.txt": "one\n"})
	a := toolctl(t, d.socket, "--worktree", dir)
	list, err := a.ListTools(t.Context(), nil)
	testrig.Must(t, err)
	tools := make(map[string]*mcp.Tool)
	for _, tool := range list.Tools {
		tools[tool.Name] = tool
		if tool.Description == "" || tool.InputSchema == nil || tool.OutputSchema != nil || tool.Annotations == nil {
			t.Errorf("the tool %s lacks something, or has a schema of structured output: %+v", tool.Name, tool)
		}
	}
	if tools["read"] == nil || !tools["read"].Annotations.ReadOnlyHint || tools["bash"] == nil || tools["bash"].Annotations.ReadOnlyHint || tools["wait"] == nil {
		t.Errorf("tools: %v", tools)
	}
	r, out := a.must("bash", in{"command": "cat a.txt; echo two >b.txt; exit 3"})
	testrig.Wants(t, out, "one")
	if meta := field(t, r, "metadata").(map[string]any); meta["exit_code"] != 3.0 || r.StructuredContent != nil {
		t.Errorf("for programs: %v, structured: %v", r.Meta, r.StructuredContent)
	}
	_, out = a.must("read", in{"file_path": "b.txt"})
	testrig.Wants(t, out, "two")
	live := d.sessions()
	if len(live) != 1 {
		t.Fatalf("%d sessions, want one", len(live))
	}
	testrig.Must(t, a.Close())
	if left := d.sessions(); len(left) > 0 {
		t.Errorf("the session %s outlives its agent", left[0].ID)
	}
}

// TestMistakes: what a model can mend is a result, never an error of the protocol.
func TestMistakes(t *testing.T) {
	d := startDaemon(t)
	a := toolctl(t, d.socket, "--permission", "bash:rm *:deny")
	for _, m := range []struct {
		tool  string
		input any
		code  client.Code
		want  string
	}{
		{"nosuch", in{}, client.CodeUnknownTool, "the tools are"},
		{"Bash", in{"command": 3}, client.CodeInvalidInput, "command"},
		{"bash", in{}, client.CodeInvalidInput, "command"},
		{"bash", json.RawMessage(`[1]`), client.CodeInvalidInput, "object"},
		{"bash", in{"command": "rm -rf x"}, client.CodeDenied, "denied"},
		{"read", in{"file_path": "/nowhere/x"}, "", "does not exist"},
		{"wait", in{"call_id": "call_1"}, client.CodeNotFound, "call_1"},
		{"wait", in{"call": "call_1"}, client.CodeInvalidInput, "call_id"},
	} {
		r, out := a.must(m.tool, m.input)
		code, _ := field(t, r, "code").(string)
		if !r.IsError || code != string(m.code) {
			t.Errorf("%s %v: is_error %v, code %v, want %s", m.tool, m.input, r.IsError, code, m.code)
		}
		testrig.Wants(t, out, m.want)
	}
	_, err := d.client.EndSession(t.Context(), d.sessions()[0].ID, client.EndOptions{Force: true})
	testrig.Must(t, err)
	if r, out := a.must("bash", in{"command": "true"}); !r.IsError {
		t.Errorf("a call in a session that is over: %s", out)
	}
}

// TestApproval: while a call waits for a person the agent hears what it waits for.
func TestApproval(t *testing.T) {
	d := startDaemon(t)
	a := toolctl(t, d.socket, "--permission", "bash:touch *:ask")
	log := "to answer: toolctl --socket " + d.socket + " approvals watch"
	d.asked(a, func() bool {
		return strings.Contains(a.heard.with("waiting for a person to approve bash touch x"), "approvals watch") && a.logs.with(log) != ""
	})
}

// TestCancel: a request that is cancelled aborts its call.
func TestCancel(t *testing.T) {
	d := startDaemon(t)
	a := toolctl(t, d.socket)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := a.call(ctx, "bash", in{"command": "echo begun; sleep 1000"})
		done <- err
	}()
	testrig.Eventually(t, "the command has begun", func() bool { return a.heard.with("begun") != "" })
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled request was answered")
	}
	session := d.sessions()[0].ID
	testrig.Eventually(t, "the call was aborted", func() bool {
		list, err := d.client.ListCalls(t.Context(), session, client.CallQuery{})
		return err == nil && len(list.Items) == 1 && list.Items[0].Finished() && list.Items[0].Metadata["reason"] == "aborted"
	})
}

// TestLong: a call that takes longer than an answer may is taken further by wait.
func TestLong(t *testing.T) {
	d := startDaemon(t)
	dir := worktree(t, nil)
	a := toolctl(t, d.socket, "--wait", "1s", "--worktree", dir)
	r, out := a.must("bash", in{"command": "echo begun; until [ -e go ]; do sleep 0.1; done; echo over"})
	testrig.Wants(t, out, "begun", "has not ended", `"call_id"`)
	id := field(t, r, "call_id")
	r, out = a.must("wait", in{"call_id": id, "offset": field(t, r, "next_offset"), "seconds": 1})
	if field(t, r, "status") != "running" || strings.Contains(out, "begun") {
		t.Errorf("wait repeats what was seen: %s", out)
	}
	a.must("bash", in{"command": "touch go"})
	testrig.Eventually(t, "the call has ended", func() bool {
		r, out = a.must("wait", in{"call_id": id})
		return field(t, r, "status") == "completed"
	})
	testrig.Wants(t, out, "begun\nover")
}

// TestKilledDaemon: a call lives on when its daemon dies, and so does its answer.
func TestKilledDaemon(t *testing.T) {
	d := startDaemon(t)
	dir := worktree(t, nil)
	a := toolctl(t, d.socket, "--worktree", dir)
	done := make(chan string, 1)
	go func() {
		r, err := a.call(t.Context(), "bash", in{"command": "echo begun; echo x >>runs; until [ -e go ]; do sleep 0.1; done; wc -l <runs"})
		if err != nil {
			done <- err.Error()
			return
		}
		done <- text(r)
	}()
	testrig.Eventually(t, "the command has begun", func() bool { return a.heard.with("begun") != "" })
	d.restart()
	a.must("bash", in{"command": "touch go"})
	if got := <-done; got != "begun\n1\n" {
		t.Errorf("got %q, want one run to its end", got)
	}
}

// TestResources: images are images, whole outputs and files are resources, and the rules
// for reading bind them.
func TestResources(t *testing.T) {
	d := startDaemon(t)
	png, err := base64.StdEncoding.DecodeString(shipped.Pixel)
	testrig.Must(t, err)
	dir := worktree(t, map[string]string{"a b.txt": "one\n", "secret.key": "xyzzy\n", "p.png": string(png)})
	a := toolctl(t, d.socket, "--worktree", dir, "--permission", "read:*.key:deny")

	r, _ := a.must("read", in{"file_path": "p.png"})
	var image *mcp.ImageContent
	for _, c := range r.Content {
		if i, ok := c.(*mcp.ImageContent); ok {
			image = i
		}
	}
	if image == nil || image.MIMEType != "image/png" || string(image.Data) != string(png) {
		t.Errorf("the image: %+v", r.Content)
	}

	r, out := a.must("bash", in{"command": "seq 100000"})
	link, ok := r.Content[len(r.Content)-1].(*mcp.ResourceLink)
	if !ok || strings.Contains(out, "\n50000\n") {
		t.Fatalf("no link to the whole output: %+v", r.Content)
	}
	whole := a.resource(link.URI)
	if !strings.HasSuffix(whole, "99999\n100000\n") || !strings.Contains(whole, "\n50000\n") {
		t.Errorf("the whole output has %d bytes", len(whole))
	}
	if got := a.resource("toold://worktree/a%20b.txt"); got != "one\n" {
		t.Errorf("the file: %q", got)
	}
	templates, err := a.ListResourceTemplates(t.Context(), nil)
	testrig.Must(t, err)
	if len(templates.ResourceTemplates) != 2 {
		t.Errorf("%d templates, want two", len(templates.ResourceTemplates))
	}

	other := toolctl(t, d.socket)
	other.must("bash", in{"command": "echo hidden"})
	for _, uri := range []string{
		"toold://worktree/secret.key", "toold://worktree/../etc/passwd", "toold://worktree/none",
		"toold://calls/call_1/output", "toold://calls/../sessions/output", "file:///etc/passwd", link.URI + "x",
	} {
		if got, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%s: %q", uri, got.Contents[0].Text)
		}
	}
	if _, err := other.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI}); err == nil {
		t.Error("a session reads the output of another one's call")
	}
}

func (a *agent) resource(uri string) string {
	a.t.Helper()
	r, err := a.ReadResource(a.t.Context(), &mcp.ReadResourceParams{URI: uri})
	testrig.Must(a.t, err)
	return r.Contents[0].Text
}

// TestPrivate: without a daemon there is one for as long as the agent.
func TestPrivate(t *testing.T) {
	if why != "" {
		t.Skip(why)
	}
	a := toolctl(t, "", "--worktree", worktree(t, map[string]string{"a": "one\n"}))
	_, out := a.must("bash", in{"command": "cat a"})
	testrig.Wants(t, out, "one")
	testrig.Must(t, a.Close())
	if err := a.cmd.Wait(); err == nil {
		t.Error("the command was not waited for")
	}
}

// TestNamed: a session that has a name stays, and the next agent goes on in it.
func TestNamed(t *testing.T) {
	d := startDaemon(t)
	a := toolctl(t, d.socket, "--name", "mine")
	a.must("write", in{"file_path": "f", "content": "kept\n"})
	testrig.Must(t, a.Close())
	for _, by := range []string{"--name", "--session"} {
		b := toolctl(t, d.socket, by, "mine")
		_, out := b.must("read", in{"file_path": "f"})
		testrig.Wants(t, out, "kept")
		testrig.Must(t, b.Close())
	}
}
