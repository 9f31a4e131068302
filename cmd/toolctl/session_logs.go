package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

type sessionLogsCommand struct {
	*app
	tool, since   string
	tail          int
	short, follow bool
}

func newSessionLogsCommand(a *app) *cobra.Command {
	s := &sessionLogsCommand{app: a}
	c := &cobra.Command{
		Use:   "logs SESSION [CALL]",
		Short: "Show the calls of a session and their output",
		Long: `Show the calls of a session, oldest first, each with the output that its caller
got. With CALL, show the whole saved output of that call. Both also work after the
session has ended, until the daemon removes its records (daemon.retention).

With --follow, show running and new calls until the session ends, or until CALL
finishes. When calls run at the same time, each line of output begins with the id of
its call. With -o json it prints each call when it has finished, one per line.`,
		Example: `  toolctl session logs review
  toolctl session logs review --tail 5
  toolctl session logs review --short
  toolctl session logs -f review
  toolctl session logs review call_0123 > whole-output`,
		ValidArgsFunction: inOrder(a.sessions, a.calls),
		RunE:              func(c *cobra.Command, args []string) error { return s.run(c.Context(), args) },
	}
	c.Flags().StringVar(&s.tool, "tool", "", "only calls of this tool")
	c.Flags().StringVar(&s.since, "since", "", `only calls since then: a `+"`duration`"+` ago ("10m", "2d") or a time ("2026-01-31T12:00:00Z")`)
	c.Flags().IntVar(&s.tail, "tail", 0, "only the last `N` calls")
	c.Flags().BoolVar(&s.short, "short", false, "one line per call, without the output")
	c.Flags().BoolVarP(&s.follow, "follow", "f", false, "go on until the session ends or CALL finishes")
	_ = c.RegisterFlagCompletionFunc("tool", always(a.tools))
	return c
}

func (s *sessionLogsCommand) run(ctx context.Context, args []string) error {
	since, err := moment(s.since, time.Now())
	if err != nil {
		return usagef("--since %w", err)
	}
	chosen := s.since != "" || s.tail != 0
	switch {
	case s.tail < 0:
		return usagef("--tail %d: give how many calls, 1 or more", s.tail)
	case chosen && (len(args) == 2 || s.follow):
		return usagef("--since and --tail choose among the calls that there are: leave CALL and --follow out")
	}
	if len(args) == 2 {
		return s.look(ctx, args[0], func(c *client.Client, ref string) error { return s.one(ctx, c, ref, args[1]) })
	}
	if s.follow {
		return s.look(ctx, args[0], func(c *client.Client, ref string) error { return s.followAll(ctx, c, ref) })
	}
	var calls []client.Call
	err = s.look(ctx, args[0], func(c *client.Client, ref string) (err error) {
		calls, err = listCalls(ctx, c, ref, client.CallQuery{Tool: s.tool})
		return err
	})
	if err != nil {
		return err
	}
	all := len(calls)
	calls = slices.DeleteFunc(calls, func(c client.Call) bool { return c.Time.Queued.Before(since) })
	if s.tail > 0 {
		calls = calls[max(0, len(calls)-s.tail):]
	}
	text := s.log
	if s.short {
		text = s.table
	}
	if len(calls) < all {
		s.say("%s before these; toolctl session logs %s shows all", plural(all-len(calls), "call"), line(args[0]))
	} else if len(calls) == 0 && s.tool != "" {
		s.say("session %s has no calls of %s; toolctl session logs %[1]s shows all", line(args[0]), line(s.tool))
	} else if len(calls) == 0 {
		s.say("session %s has no calls yet; make one with: toolctl exec %[1]s -- COMMAND", line(args[0]))
	}
	return s.print(listView(calls, func(x *client.Call) string { return x.ID }, func(w io.Writer) { text(w, calls) }))
}

// one shows one call: its whole output, or for programs its record.
func (s *sessionLogsCommand) one(ctx context.Context, c *client.Client, ref, id string) error {
	session, err := c.GetSession(ctx, ref)
	if err != nil {
		return err
	}
	var call *client.Call
	err = withCall(ctx, c, session.ID, id, func(id string) (err error) {
		call, err = c.GetCall(ctx, id)
		return err
	})
	if err != nil {
		return err
	}
	if call.SessionID != session.ID {
		return &missingError{what: fmt.Sprintf("%s is not a call of session %s; it belongs to %s", call.ID, ref, call.SessionID)}
	}
	if s.format != formatTable {
		return s.print(view{data: call, names: []string{call.ID}})
	}
	return s.output(ctx, c, call.ID)
}

// output copies the whole output of one call.
func (s *sessionLogsCommand) output(ctx context.Context, c *client.Client, id string) error {
	r, err := c.CallOutput(ctx, id, client.OutputQuery{Follow: s.follow})
	if err != nil {
		return err
	}
	defer r.Close()
	w := sandboxOut(s.stdout, s.outTTY)
	if _, err := io.Copy(w, r); err != nil {
		return fmt.Errorf("output of %s: %w", id, err)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	call, err := c.GetCall(ctx, id) // it may have ended meanwhile
	if err != nil {
		return err
	}
	sayRemarks(s.app, call)
	if call.Error != nil {
		s.say("%s", lines(call.Error.Text()))
	}
	return nil
}

func (s *sessionLogsCommand) table(w io.Writer, calls []client.Call) {
	t := s.newTable("", "ID", "TIME", "TOOL", "RESULT", "TOOK", "TITLE")
	t.ids = []int{0}
	for _, c := range calls {
		result, color := callResult(&c)
		t.row(c.ID, c.Time.Queued.Local().Format(time.TimeOnly), c.Tool, result, callTook(&c), c.Title)
		t.paint(3, color)
	}
	t.write(w)
}

// log prints a head line and the output of each call. The output is indented,
// so that no output can look like a head line.
func (s *sessionLogsCommand) log(w io.Writer, calls []client.Call) {
	for _, c := range calls {
		result, _ := callResult(&c)
		head := fmt.Sprintf("%s %s %s: %s %s %s", c.Time.Queued.Local().Format(time.DateTime), line(c.ID),
			line(c.Tool), result, callTook(&c), line(c.Title))
		fmt.Fprintln(w, fold(head, s.width(), "  "))
		for l := range strings.Lines(lines(c.Output)) {
			fmt.Fprintf(w, "    %s\n", strings.TrimSuffix(l, "\n"))
		}
		if n, ok := c.Metadata["not_kept_bytes"].(float64); ok {
			fmt.Fprintf(w, "    [%.0f bytes more of its result are not kept]\n", n)
		}
		if c.InputNotKept != nil {
			fmt.Fprintf(w, "    [input of %s]\n", line(c.InputNotKept.String()))
		}
	}
}

// callResult says in a word how a call stands, and in which colour.
func callResult(c *client.Call) (string, int) {
	switch {
	case !c.Finished():
		return line(string(c.Status)), colorYellow
	case c.Status == client.CallError && c.Error != nil:
		return line(string(c.Error.Code)), colorRed
	case c.Status == client.CallError:
		return "error", colorRed
	case c.IsError:
		return "failed", colorRed
	}
	return "ok", colorGreen
}

func callTook(c *client.Call) string {
	if c.Time.Started == nil || c.Time.Ended == nil {
		return ""
	}
	return seconds(c.Time.Ended.Sub(*c.Time.Started).Milliseconds())
}
