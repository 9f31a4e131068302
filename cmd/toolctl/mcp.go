package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/mcp"
)

const mcpLong = `Serve the tools of a session to an agent, by the Model Context Protocol on standard
input and output. Agents start this command by themselves, as a line of their configuration.

With --session the tools are those of a session that is there. Otherwise toolctl makes a
session, which ends with the agent, unless it has a --name: then it stays, and the next
agent that is started with this name goes on in it. What a session of --mode overlay has
changed stays with the daemon (toolctl diff, apply, discard), unless --apply, --discard or
--patch say what is to become of it when the agent ends. --report DIR leaves what "toolctl session report"
does when the agent has ended.

If no daemon listens and none was named with --socket or TOOLD_SOCKET, a private one runs
for as long as the agent.

--print-config prints the lines for an agent's configuration, with the other flags of this
command in them and the settings that turn the agent's own tools off; --install writes them,
keeps the rest of its files as it is, and starts the server once, to say what is missing yet.

--doctor starts the agent that is installed here with a model of toolctl's own on loopback and
with what --install writes, in a home of its own: nothing of yours is changed. Its model calls a
few tools, and what it receives is shown: which tools it is offered, whether what toold writes
arrives once and whole, and what to do where it does not. Exits with 1 when a check fails.

Where a rule asks, the call waits, and the agent hears what it waits for; a person answers
with "toolctl approvals watch" in another terminal. A call that takes longer than --wait
answers with the output so far, and the agent's tool "wait" takes it further.`

const mcpExample = `  toolctl mcp --worktree .
  toolctl mcp --worktree . --mode overlay --profile build
  toolctl mcp --session review
  toolctl mcp --worktree . --mode overlay --print-config zed
  toolctl mcp --install opencode
  toolctl mcp --doctor codex`

// mcpCommand is run whose command is an agent that asks.
type mcpCommand struct {
	runCommand
	ref                  string // of a session that is there
	wait                 string
	printFor, installFor string // an agent
	trial                agentTrial
	speaking             bool // the agent has a server
}

func newMCPCommand(a *app) *cobra.Command {
	m := &mcpCommand{runCommand: runCommand{app: a, quiet: true, ci: ciReport{failed: exitFailed}}}
	c := &cobra.Command{
		Use:     "mcp [flags]",
		Short:   "Serve the tools of a session to an agent, by MCP",
		Long:    mcpLong,
		Example: mcpExample,
		RunE:    func(c *cobra.Command, _ []string) error { return m.run(c) },
	}
	m.session.register(a, c)
	m.tree.register(c)
	m.ci.register(c)
	f := c.Flags()
	f.StringVar(&m.ref, "session", "", "a session that is there, by its id or name")
	f.StringVar(&m.name, "name", "", "name of the session, which then stays when the agent ends")
	f.StringArrayVar(&m.labels, "label", nil, "label `K=V` of the session (repeatable)")
	f.StringVar(&m.wait, "wait", "", "how long an answer waits for its call, a `duration` (default as the daemon is configured, mostly 50s)")
	f.Var(choice[string]{&m.printFor, agentNames(false), "agent"}, "print-config", "print what belongs in the configuration of "+strings.Join(agentNames(false), ", "))
	f.Var(choice[string]{&m.installFor, agentNames(true), "agent"}, "install", "write it into the configuration of "+strings.Join(agentNames(true), ", ")+"; shows what changes")
	m.trial.register(c)
	_ = c.RegisterFlagCompletionFunc("session", always(a.sessions))
	_ = c.RegisterFlagCompletionFunc("print-config", cobra.FixedCompletions(agentNames(false), cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("install", cobra.FixedCompletions(agentNames(true), cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (m *mcpCommand) run(c *cobra.Command) error {
	trial, err := m.trial.wanted(c)
	if err != nil {
		return err
	}
	if trial != nil {
		return m.doctor(c, trial)
	}
	if m.printFor == "" && m.installFor == "" {
		return m.serve(c.Context())
	}
	if _, _, err := m.wants(); err != nil {
		return err // the agent would be told it later
	}
	if m.ci.wanted() {
		return usagef("--report is for one start of the server, into a new directory: leave it out of a configuration, which starts it again and again")
	}
	return m.configure(c)
}

func (m *mcpCommand) serve(ctx context.Context) error {
	m.again = "then have the agent start this server again"
	err := m.offer(ctx)
	if err != nil && !m.speaking && !m.inTTY && interruption(ctx) == nil {
		m.decline(ctx, err)
	}
	return err
}

// declineTime bounds the wait for an agent's first request, which it sends at once.
const declineTime = 5 * time.Second

// decline tells the agent why there is no server. Many show its user nothing of what one prints that ends.
func (m *mcpCommand) decline(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(ctx, declineTime)
	defer cancel()
	in := piped(m.stdin)
	defer context.AfterFunc(ctx, func() { _ = in.Close() })()
	_ = mcp.Decline(ctx, in, kept{m.stdout}, "toold's tools cannot be used. Tell the user: "+words(m.app, err)) // who asks nothing hears nothing
}

// words are what complain prints about err, in one line.
func words(a *app, err error) string {
	var said strings.Builder
	b := *a
	b.stderr, b.errTTY = &said, false
	b.complain(err)
	var all []string
	for l := range strings.Lines(said.String()) {
		all = append(all, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(l), "toolctl:")))
	}
	return strings.Join(all, "; ")
}

// offer serves the session that the flags name.
func (m *mcpCommand) offer(ctx context.Context) error {
	req, wait, err := m.wants()
	if err != nil {
		return err
	}
	if m.ref == "" {
		if err := m.ci.open(req.Worktree); err != nil {
			return err
		}
	}
	return m.finishReport(ctx, nil, m.connected(ctx, req, wait))
}

func (m *mcpCommand) connected(ctx context.Context, req client.SessionCreate, wait time.Duration) (err error) {
	m.awaitDaemon(ctx)
	c := m.client()
	if m.ref == "" {
		var stop func()
		if c, stop, err = m.reach(ctx, m.unfit); err != nil {
			return err
		}
		defer stop()
	}
	if v, verr := c.Version(ctx); wait == 0 && verr == nil {
		wait = time.Duration(v.MCPWait)
	}
	return m.attach(ctx, c, req, wait)
}

// awaitDaemon waits for a daemon that restarts, as a call does: agents start their servers at any time.
// What is wrong after that, the requests that follow say.
func (m *mcpCommand) awaitDaemon(ctx context.Context) {
	c, told := m.client(), false
	_ = mcp.Patiently(ctx, func() error {
		h, err := c.Ready(ctx)
		switch {
		case err == nil && (h.Status == "starting" || h.Status == "draining"):
			err = mcp.ErrNotReady
		case errors.Is(err, fs.ErrNotExist) && m.ref == "" && !m.socketChosen():
			return nil // there is none, and one of our own will do
		}
		if mcp.Away(err) && !told {
			told = true
			m.say("toold takes no calls at %s; waiting for it, as it may be restarting", line(c.Socket()))
		}
		return err
	})
}

// wants reads the flags. Errors are of usage.
func (m *mcpCommand) wants() (req client.SessionCreate, wait time.Duration, err error) {
	d, err := parseDurationFlag("--wait", m.wait)
	if err == nil && d < 0 {
		err = usagef("--wait %s: write a time such as 50s", m.wait)
	}
	if err != nil || m.ref != "" {
		return req, time.Duration(d), err
	}
	if req, err = m.session.request(m.app, m.tree.given()); err != nil {
		return req, 0, err
	}
	if req.Labels, err = parseLabels(m.labels); err != nil {
		return req, 0, err
	}
	// With a token, calls are not the user's own: the user may approve them.
	req.Name, req.Token = m.name, true
	if m.name == "" {
		req.LeasePID, req.IdleTimeout = os.Getpid(), -1
	}
	return req, time.Duration(d), cmp.Or(m.tree.check(req.Worktree.Mode), m.tree.open())
}

// unfit says why a daemon that ends with the agent will not do.
func (m *mcpCommand) unfit() error {
	if m.session.mode == string(client.WorktreeOverlay) && !m.tree.given() && !m.ci.wanted() {
		return usagef("no toold listens at %s, and one that ends with the agent keeps no changes: add --apply, --discard, --patch FILE or --report DIR", m.socketPath())
	}
	return nil
}

// attach finds or makes the session, serves it, and ends it.
func (m *mcpCommand) attach(ctx context.Context, c *client.Client, req client.SessionCreate, wait time.Duration) error {
	if m.ref != "" {
		s, err := m.existing(ctx, c, m.ref)
		if err == nil {
			err = m.ci.open(s.Worktree)
		}
		if err != nil {
			return err
		}
		return cmp.Or(m.speak(ctx, c, s.ID, wait), m.takeDown(ctx, c, s))
	}
	if m.name != "" {
		if s, err := c.GetSession(ctx, m.name); err == nil && !over(s) {
			if err := m.ci.apart(s.Worktree); err != nil { // of another one than the flags name
				return err
			}
			return cmp.Or(m.speak(ctx, c, s.ID, wait), m.takeDown(ctx, c, s))
		}
	}
	s, err := m.session.create(ctx, m.app, c, req, !m.private || m.tree.given() || m.ci.wanted())
	if err != nil {
		return err
	}
	if err := m.tree.check(s.Worktree.Mode); err != nil { // a project file's mode was left out
		m.end(ctx, c, s)
		return err
	}
	err = m.speak(ctx, client.New(client.Options{Socket: c.Socket(), Token: s.Token}), s.ID, wait)
	err = cmp.Or(err, m.takeDown(ctx, c, s))
	if m.name != "" && !m.private {
		return err
	}
	if s.Worktree.Mode == client.WorktreeOverlay {
		err = m.settle(ctx, c, s, err)
	}
	m.end(ctx, c, s)
	return err
}

// existing is a session that is there. The holder of a token knows no other.
func (m *mcpCommand) existing(ctx context.Context, c *client.Client, ref string) (*client.Session, error) {
	s, err := m.app.session(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	if over(s) {
		return nil, fmt.Errorf("session %s is over: name one of \"toolctl session list\", or leave --session out", line(ref))
	}
	return s, nil
}

// speak serves the session until the agent has closed our standard input.
func (m *mcpCommand) speak(ctx context.Context, c *client.Client, session string, wait time.Duration) error {
	server := mcp.New(mcp.Config{
		Client: c, Session: session, Version: ownVersion().Version, Wait: wait, Socket: c.Socket(),
		Log: slog.New(slog.NewTextHandler(m.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	m.speaking = true
	err := server.Serve(ctx, piped(m.stdin), kept{m.stdout})
	if cause := interruption(ctx); cause != nil {
		return cause
	}
	return err
}

// piped is standard input as a pipe of our own, which can be closed while the agent is silent.
func piped(stdin io.Reader) io.ReadCloser {
	in, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, stdin)
		feed.CloseWithError(err)
	}()
	return in
}

// kept is a writer that others may not close.
type kept struct{ io.Writer }

// Close implements io.Closer.
func (kept) Close() error { return nil }
