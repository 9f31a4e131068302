package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newSessionCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:     "session",
		Aliases: []string{"sessions"},
		Short:   "Create, show and end sessions",
		Example: `  toolctl session create --worktree . --name review
  toolctl session list
  toolctl session rm review`,
	}
	c.AddCommand(newSessionCreateCommand(a), newSessionListCommand(a), newSessionShowCommand(a), newSessionBriefCommand(a),
		newSessionSetCommand(a), newSessionRmCommand(a), newSessionLogsCommand(a), newSessionReportCommand(a))
	return c
}

func newSessionReportCommand(a *app) *cobra.Command {
	r := &runCommand{app: a}
	c := &cobra.Command{
		Use:   "report SESSION",
		Short: "Leave a report of a session for CI, and print its summary",
		Long: `Leave the directory that "toolctl run --report" does, of a session: result.json, junit.xml
with a case for each call, log.txt with the calls and what they gave, changes.patch (mode
overlay), summary.md and artifacts/. It works while the session lives, and after it until
its records and its changes are removed. The summary is printed, in Markdown: it is for the
page of a job ($GITHUB_STEP_SUMMARY). -o json prints result.json.

If a part is missing, result.json says which, and toolctl exits with 1.`,
		Example: `  toolctl session report review --report /tmp/r
  toolctl session report review --report r2 >> "$GITHUB_STEP_SUMMARY"`,
		ValidArgsFunction: inOrder(a.sessions),
		RunE:              func(c *cobra.Command, args []string) error { return r.reportSession(c.Context(), args[0]) },
	}
	r.ci.register(c)
	return c
}

func (r *runCommand) reportSession(ctx context.Context, ref string) error {
	if !r.ci.wanted() {
		return usagef("name the directory for the report: --report DIR")
	}
	err := r.look(ctx, ref, func(c *client.Client, ref string) error {
		s, err := c.GetSession(ctx, ref)
		if err == nil {
			err = r.takeDown(ctx, c, s)
		}
		return err
	})
	if err != nil {
		return err
	}
	failed := r.finishReport(ctx, nil, nil)
	err = r.print(view{data: &r.ci.result, names: []string{r.ci.dir}, text: func(w io.Writer) { _ = writeSummary(w, &r.ci.result) }})
	if err != nil {
		return err
	}
	return failed
}
