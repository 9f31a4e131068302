package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/habit"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/shell"
)

// DefaultWait is how long an answer waits for its call. Clients give up after a minute.
const DefaultWait = 50 * time.Second

// Config is what a Server needs. Fields with a default say so; the others are required.
type Config struct {
	// Client makes the calls, with the rights of whoever is served.
	Client *client.Client
	// Session is the id of the session whose tools are served.
	Session string
	// Version is that of this program.
	Version string
	// Wait bounds how long an answer waits for its call; 0 = DefaultWait.
	Wait time.Duration
	// Socket is that of the daemon, for the commands that people are told; "" = the one at
	// which toolctl looks by itself.
	Socket string
	// Log gets what goes wrong between server and client; nil for nowhere.
	Log *slog.Logger

	// carrier is the context of the one HTTP request that is served, nil where the client
	// has a connection; stopping is the cause with which it ends when the server stops.
	carrier  context.Context
	stopping error

	// client is the name of a client that says it in no request, "" where it is not known.
	client string

	away time.Duration // see awayTime, which 0 is
}

// Server serves one session's tools. Make one with New; its methods may be called from any
// goroutine, and it has nothing to close.
type Server struct {
	cfg Config
	sdk *sdk.Server
	log *slog.Logger
}

const instructions = `These tools work in a sandbox with a worktree. Use them for all files and commands.
A call that takes long answers with the output so far and a call id; the tool wait takes it further.`

// watchCommand is the command by which a person sees and answers approvals.
func (c *Config) watchCommand() string {
	if c.Socket == "" || c.Socket == client.DefaultSocket {
		return "toolctl approvals watch"
	}
	return shell.FromWords([]string{"toolctl", "--socket", c.Socket, "approvals", "watch"})
}

// New makes a Server.
func New(cfg Config) *Server {
	cfg.Wait, cfg.away = cmp.Or(cfg.Wait, DefaultWait), cmp.Or(cfg.away, awayTime)
	s := &Server{cfg: cfg, log: cfg.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.sdk = sdk.NewServer(
		&sdk.Implementation{Name: "toold", Title: "toold: tools in a sandbox", Version: cfg.Version},
		&sdk.ServerOptions{
			Instructions: instructions,
			Logger:       s.log,
			Capabilities: &sdk.ServerCapabilities{
				Logging:   &sdk.LoggingCapabilities{}, //nolint:staticcheck // older clients have it, and newer ones do not ask
				Resources: &sdk.ResourceCapabilities{},
				Tools:     &sdk.ToolCapabilities{},
			},
		})
	s.sdk.AddReceivingMiddleware(s.middleware)
	s.sdk.AddTool(&sdk.Tool{Name: anyTool, InputSchema: json.RawMessage(`{"type": "object"}`)},
		func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return shaped(s.callTool(ctx, req), habit.Of(s.agentOf(req.ClientInfo()))), nil
		})
	s.addResources()
	return s
}

// briefTime bounds the look at the session for instructions: an agent waits for them.
const briefTime = 5 * time.Second

// instructions are what an agent tells its model before its first call: which path the worktree has
// outside, as a person may name it, and what holds in this session. Some agents cut what is long.
func (s *Server) instructions(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, briefTime)
	defer cancel()
	text := instructions
	brief, err := s.cfg.Client.Brief(ctx, s.cfg.Session)
	if err != nil {
		s.log.Warn("ask for the brief of the session", "session", s.cfg.Session, "error", err)
		return text
	}
	text += "\n\n" + strings.TrimSpace(brief)
	if row, err := s.cfg.Client.GetSession(ctx, s.cfg.Session); err == nil && row.Worktree.Source != "" && row.Worktree.Source != row.Worktree.Target {
		text = fmt.Sprintf("On the host the worktree is `%s`: paths below that mean files of `%s`.\n", plain.Name(row.Worktree.Source), row.Worktree.Target) + text
	}
	return text
}

// anyTool is the one tool that the SDK knows of: whatever a client calls is its call.
const anyTool = "any"

// toolName is the key of a context's name of the tool that a client calls.
type toolName struct{}

// middleware answers what is about tools: their set is the session's own, and may change
// between two requests.
func (s *Server) middleware(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch r := req.(type) {
		case *sdk.ListToolsRequest:
			list, err := s.listTools(ctx)
			if err == nil {
				shapedTools(list.Tools, habit.Of(s.agentOf(r.ClientInfo())))
			}
			return list, err
		case *sdk.CallToolRequest:
			params := *r.Params
			ctx, params.Name = context.WithValue(ctx, toolName{}, params.Name), anyTool
			req = &sdk.CallToolRequest{Session: r.Session, Params: &params, Extra: r.Extra}
		}
		result, err := next(ctx, method, req)
		switch r := result.(type) {
		case *sdk.InitializeResult:
			r.Instructions = s.instructions(ctx)
		case *sdk.DiscoverResult:
			r.Instructions = s.instructions(ctx)
		}
		return result, err
	}
}

// Serve speaks to one client, in lines of JSON, until it has closed in or ctx ends. Calls
// that run by then are aborted.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return s.sdk.Run(ctx, newLines(in, out))
}
