package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// tryTime bounds the start of a server, its answers and its end.
const tryTime = time.Minute

// tryServer starts an agent's server as the agent will, asks what tools it has, and ends it. Its error is what
// the server has said.
func tryServer(ctx context.Context, argv []string) (tools int, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = &said
	c := sdk.NewClient(&sdk.Implementation{Name: "toolctl", Version: ownVersion().Version}, nil)
	s, err := c.Connect(ctx, &sdk.CommandTransport{Command: cmd}, nil)
	if err == nil {
		var list *sdk.ListToolsResult
		if list, err = s.ListTools(ctx, nil); err == nil {
			tools = len(list.Tools)
		}
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		why := strings.ReplaceAll(strings.TrimSpace(said.String()), "toolctl: ", "")
		return 0, errors.New(cmp.Or(clipped(why, 2000), err.Error()))
	}
	return tools, nil
}

// try says whether what was written starts. A session with a name would stay, so it is tried without.
func (m *mcpCommand) try(ctx context.Context, argv []string) error {
	if m.tryServer == nil {
		return nil
	}
	var tried []string
	for i := 0; i < len(argv); i++ {
		if argv[i] == "--name" {
			i++
			continue
		}
		tried = append(tried, argv[i])
	}
	n, err := m.tryServer(ctx, tried)
	if err != nil {
		return fmt.Errorf("what is written does not start yet: %w\n  when that is done, try it: %s </dev/null", err, line(shellQuote(tried)))
	}
	m.say("started once, it has %s", plural(n, "tool"))
	return nil
}
