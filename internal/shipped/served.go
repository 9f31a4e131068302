package shipped

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// served is what the server gives to a client of our own: what an agent is to pass on.
type served struct {
	instructions string
	tools        []string
	descriptions string    // of all tools
	wrote        []written // for Probes
}

// servedTime bounds that: longer than a call waits for a person before it answers that it waits.
const servedTime = 2 * time.Minute

// served starts the server as the agent will, and makes the calls of the trial.
func (t *Trial) served(ctx context.Context) (s served, err error) {
	ctx, cancel := context.WithTimeout(ctx, servedTime)
	defer cancel()
	var stderr said
	cmd := exec.CommandContext(ctx, t.Server[0], t.Server[1:]...)
	cmd.Stderr = &stderr
	c := sdk.NewClient(&sdk.Implementation{Name: t.Agent.Client, Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			if strings.Contains(r.Params.Message, "approve") {
				t.Progress(r.Params.Message)
			}
		},
	})
	conn, err := c.Connect(ctx, &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		if why := strings.ReplaceAll(strings.TrimSpace(stderr.String()), "toolctl: ", ""); why != "" {
			err = errors.New(why)
		}
		return s, fmt.Errorf("the server that %s would start does not start: %w", t.Agent.Name, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	s.instructions = conn.InitializeResult().Instructions
	list, err := conn.ListTools(ctx, nil)
	if err != nil {
		return s, fmt.Errorf("ask the server for its tools: %w", err)
	}
	for _, tool := range list.Tools {
		s.tools = append(s.tools, tool.Name)
		s.descriptions += tool.Description + "\n"
	}
	for i := range Probes {
		wrote, err := Probes[i].served(ctx, conn)
		if err == nil && i == 0 && wrote.text != Text {
			err = fmt.Errorf("the trial needs the tool bash, which answers: %s\n  leave out the profile or the rules that keep it from that: \"toolctl policy explain bash ls\" says which", wrote.text)
		}
		if err != nil {
			return s, err
		}
		s.wrote = append(s.wrote, wrote)
	}
	return s, nil
}

// served makes the call, and gives its result.
func (p *Probe) served(ctx context.Context, conn *sdk.ClientSession) (w written, err error) {
	params := &sdk.CallToolParams{Name: p.Tool, Arguments: p.Input}
	params.SetProgressToken("p")
	r, err := conn.CallTool(ctx, params)
	if err != nil {
		return w, fmt.Errorf("call %s without the agent: %w", p.Tool, err)
	}
	w.failed = r.IsError
	for _, part := range r.Content {
		switch part := part.(type) {
		case *sdk.TextContent:
			w.text += part.Text
		case *sdk.ImageContent:
			w.picture = base64.StdEncoding.EncodeToString(part.Data)
		}
	}
	if p.Picture && w.picture == "" {
		err = fmt.Errorf("the trial needs the tool %s, which shows no picture, but answers: %s", p.Tool, w.text)
	}
	return w, err
}
