package mcp

import (
	"context"
	"encoding/json"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
)

// listTools gives the tools of the session as they are now, and WaitTool.
func (s *Server) listTools(ctx context.Context) (*sdk.ListToolsResult, error) {
	var defs []json.RawMessage
	err := s.patiently(ctx, func() (err error) {
		defs, err = s.cfg.Client.ToolsFormat(ctx, client.ToolQuery{Session: s.cfg.Session}, "mcp")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the tools of session %s: %w", s.cfg.Session, wordAway(err))
	}
	// The set belongs to a session and may change: it is nobody else's, and not to be kept.
	list := &sdk.ListToolsResult{Cacheable: sdk.Cacheable{CacheScope: "private"}, Tools: []*sdk.Tool{}}
	for _, def := range defs {
		t := new(sdk.Tool)
		if err := json.Unmarshal(def, t); err != nil {
			return nil, fmt.Errorf("a tool of session %s is not the JSON expected: %w", s.cfg.Session, err)
		}
		if t.Name == WaitTool {
			continue // the daemon's own would not know what an answer left running
		}
		list.Tools = append(list.Tools, t)
	}
	list.Tools = append(list.Tools, waitTool())
	return list, nil
}
