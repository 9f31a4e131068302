package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/agent/inside"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// This file carries out the recipe for a tool of docs/architecture.md on one that counts
// the lines of a file.

// 1. `internal/tool/NAME.go`: its `Definition` with the schema of the input. `NAME.md` beside
// it is the description that a model reads.
func linesTool() *Definition {
	return &Definition{
		Name:        "lines",
		Description: linesDescription,
		Traits:      looks,
		Truncate:    truncateHead,
		decode:      someLines,
		paths:       []string{"file_path"},
		input:       object(required("file_path", text(1, maxPath, "The file, absolute or relative to the worktree."))),
	}
}

const linesDescription = "Counts the lines of a file."

// 2. In the same file its `Input`, which `decode` makes of the checked values. `Access` says
// what a call touches, and does no I/O.
type linesInput struct{ path string }

func someLines(v values) Input { return &linesInput{v.text("file_path")} }

func (in *linesInput) Access(*Reader) Access {
	return Access{Requests: []Request{{Permission: PermissionRead, Pattern: in.path, Path: in.path}}, Prepare: true}
}

// 3. `internal/tool/run/NAME.go`: a `run.Tool`. `Prepare` resolves the paths and has no effect;
// `Run` opens exactly those.
type lines struct{}

func (lines) Name() string { return "lines" }

func (lines) Prepare(ctx context.Context, env *run.Env, input json.RawMessage) (*run.Prepared, error) {
	var in struct {
		Path string `json:"file_path"`
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, run.Errorf(run.CodeInvalidInput, "%v", err)
	}
	if !path.IsAbs(in.Path) {
		in.Path = path.Join(env.Worktree, in.Path)
	}
	info, err := env.Root.Resolve(ctx, in.Path)
	if err != nil {
		return nil, run.Errorf(run.CodeInvalidPath, "%v", err)
	}
	prep := &run.Prepared{Targets: []run.Target{{Asked: in.Path, Path: info.Path, Exists: info.Exists, Kind: string(info.Kind)}}}
	if !info.Exists {
		prep.Result = run.Failed(info.Path, "%s does not exist", info.Path)
	}
	return prep, nil
}

func (lines) Run(ctx context.Context, env *run.Env, _ json.RawMessage, prep *run.Prepared) (*run.Result, error) {
	target := prep.Targets[0].Path
	file, err := env.Root.Open(ctx, target)
	if err != nil {
		return nil, run.Errorf(run.CodeNotRegularFile, "%v", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, 1<<20))
	if err != nil {
		return run.Failed(target, "%v", err), nil
	}
	return &run.Result{Title: target, Output: fmt.Sprintf("%d lines", bytes.Count(content, []byte("\n")))}, nil
}

// 4. A line in `tool.builtin` and one in `run.Builtin`. The name stands in no other file.
func builtinWithLines() ([]*Definition, []run.Tool) {
	return append(builtin(), linesTool()), append(run.Builtin(), lines{})
}

// exampleAgent is an agent with these tools, whose root is dir; its worktree is /w.
func exampleAgent(t *testing.T, dir string, tools []run.Tool) *agent.Conn {
	t.Helper()
	needs.OpenAt2(t)
	needs.Filter(t)
	socket, nonce := filepath.Join(dir, "socket"), bytes.Repeat([]byte{1}, 32)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	server, err := inside.NewServer(inside.ServerConfig{Listener: ln, Nonce: nonce, Tools: tools, Dir: dir, SameUser: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := agent.Connect(t.Context(), c, agent.Hello{
		Nonce: nonce, Worktree: "/w", Home: "/", Tmp: "/tmp", OutputDir: "/o", ToolUID: 1000, ToolGID: 1000, Shell: []string{"/bin/sh"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exampleSink takes nothing: the tool does not stream.
type exampleSink struct{}

func (exampleSink) Output(int64, bool, []byte) error { return nil }
func (exampleSink) Metadata(map[string]any)          {}

// 5. Tests of both halves: hostile names, links, sizes and kinds, and the text of each error.
func TestExampleTool(t *testing.T) {
	dir := testrig.TempDir(t, "toold-example-") // a socket's path is short
	err := errors.Join(os.Mkdir(dir+"/w", 0o700), os.WriteFile(dir+"/w/f", []byte("a\nb\n"), 0o600), os.Symlink("/../w/f", dir+"/w/link"))
	if err != nil {
		t.Fatal(err)
	}
	definitions, tools := builtinWithLines()
	r, conn := newRegistry(given{"ours", definitions}), exampleAgent(t, dir, tools)
	for i, tt := range []struct{ input, target, want string }{
		{`{"file_path":"f"}`, "/w/f", "2 lines"},
		{`{"filePath":"/w/link"}`, "/w/f", "2 lines"},
		{`{"file_path":"../../etc/none"}`, "/etc/none", "/etc/none does not exist"},
		{`{"file_path":"/w"}`, "/w", `not_regular_file: "/w" is not a regular file but a dir`},
		{`{"file":"f"}`, "", "invalid_input: the input of lines does not fit its schema:\n- /file is not a known key; did you mean \"file_path\"?"},
	} {
		target, got := exampleCall(t, r, conn, fmt.Sprintf("call_%d", i), tt.input)
		if target != tt.target || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: at %q %q, want at %q %q", tt.input, target, got, tt.target, tt.want)
		}
	}
}

// exampleCall takes a call through the steps that are about its tool, as the daemon does. It
// gives the path that the call is judged by, and the output or the error.
func exampleCall(t *testing.T, r *Registry, conn *agent.Conn, id, input string) (target, got string) {
	t.Helper()
	inv, err := r.Parse("lines", json.RawMessage(input))
	if err != nil {
		return "", err.Error()
	}
	access := inv.Input.Access(nil)
	if want := (Request{Permission: PermissionRead, Pattern: access.Requests[0].Path, Path: access.Requests[0].Path}); access.Requests[0] != want {
		t.Errorf("access %+v, want %+v", access.Requests[0], want)
	}
	request := agent.Request{CallID: id, Tool: inv.Tool.Name, Input: inv.JSON}
	request.Prepared, err = conn.Prepare(t.Context(), request)
	if err != nil {
		return "", err.Error()
	}
	target = request.Prepared.Targets[0].Path
	if request.Prepared.Result != nil {
		return target, request.Prepared.Result.Output
	}
	out, err := conn.Run(t.Context(), request, exampleSink{})
	switch {
	case err != nil:
		return target, err.Error()
	case out.Err != nil:
		return target, out.Err.Error()
	}
	return target, out.Result.Output
}

// TestToolsAreWhole: each tool has the other lines of the recipe.
func TestToolsAreWhole(t *testing.T) {
	doc, err := os.ReadFile("../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range NewRegistry().All() {
		if d.By == ByAgent && !slices.ContainsFunc(run.Builtin(), func(t run.Tool) bool { return t.Name() == d.Name }) {
			t.Errorf("the agent does not have %s", d.Name)
		}
		// 6. A section in `docs/tools.md`, and `NAME.example.json` beside `NAME.md`: a call that a test
		// makes. `go test ./internal/tool -run TestReference -update` writes the rest. The comment of
		// package `config` says how to add a setting.
		if !d.Hidden && !regexp.MustCompile(`(?m)^## `+d.Name+`$`).Match(doc) {
			t.Errorf("docs/tools.md has no section %s", d.Name)
		}
	}
}
