package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// benchMCP times `bash -c true` by toolctl mcp beside the same by package client, and the
// way from nothing to a first result beside toolctl run, both without a daemon.
func benchMCP(ctx context.Context, l *lab) []row {
	id := get(l.session(ctx))
	defer l.end(ctx, id)
	a := get(startAgent(ctx, "--socket", l.socket, "--session", id))
	defer a.Close()
	rows := l.latencies("mcp", []subject{
		{name: "toold bash (Go client)", op: timed(func() error { return l.bash(ctx, id, "true") })},
		{name: "toold bash (MCP, stdio)", op: timed(func() error { return a.call(ctx, "true") })},
	}, map[string]string{"toold bash (MCP, stdio)": "≤ 1.5 ×"})
	m := manner{name: "cold", n: l.n(20), run: 1}
	got := get(inTurns(m, []subject{
		{name: "toolctl run", op: timed(func() error { return alone(ctx, "run", "-q", "--", "true").Run() })},
		{name: "toolctl mcp, first result", op: coldAgent(ctx)},
	}))
	cold := row{Group: "mcp", Name: "toolctl mcp, first result", Manner: m.name, Unit: "µs", stats: got["toolctl mcp, first result"], Target: "≤ 2.5 ×"}
	return append(rows, cold.against("toolctl run", got["toolctl run"]))
}

// alone is toolctl where no daemon is named.
func alone(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "toolctl"), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "TOOLD_") })
	return cmd
}

// coldAgent times an agent from its start to its first result, and not its end.
func coldAgent(ctx context.Context) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		start := time.Now()
		a, err := startAgent(ctx)
		if err != nil {
			return 0, err
		}
		err = a.call(ctx, "true")
		took := time.Since(start)
		_ = a.Close()
		return took, err
	}
}

// mcpAgent speaks MCP with a toolctl of its own.
type mcpAgent struct{ *mcp.ClientSession }

func startAgent(ctx context.Context, args ...string) (*mcpAgent, error) {
	cmd := alone(ctx, append([]string{"mcp"}, args...)...)
	cmd.Stderr = os.Stderr
	session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	return &mcpAgent{session}, err
}

func (a *mcpAgent) call(ctx context.Context, command string) error {
	got, err := a.CallTool(ctx, &mcp.CallToolParams{Name: "bash", Arguments: map[string]any{"command": command}})
	if err == nil && got.IsError {
		err = fmt.Errorf("toolctl mcp: %v", got.Content)
	}
	return err
}
