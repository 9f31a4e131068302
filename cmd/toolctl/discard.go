package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newDiscardCommand(a *app) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "discard SESSION [PATH...]",
		Short: "Drop what a session has changed",
		Long: `Drop the changes of a session: its files are those of the source again. Paths are
relative to the worktree, and stand for all that is below them. Without a path all
changes go: then it asks at the terminal, and needs --yes where there is none.`,
		Example:           "  toolctl discard review build\n  toolctl discard review --yes",
		ValidArgsFunction: inOrder(a.sessions),
		RunE:              func(c *cobra.Command, args []string) error { return discard(c.Context(), a, args, yes) },
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func discard(ctx context.Context, a *app, args []string, yes bool) error {
	paths, err := treePaths(args[1:])
	if err != nil {
		return err
	}
	c := a.client()
	return a.withSession(ctx, c, args[0], func(session string) error {
		if len(paths) == 0 && !yes {
			if err := a.sureToDiscard(ctx, c, session, args[0]); err != nil {
				return err
			}
		}
		yes = true // a second time, with the id, there is nothing to ask
		progress := a.progress("discarding")
		done, err := c.Discard(ctx, session, client.DiscardRequest{Paths: paths})
		progress.stop()
		if err != nil {
			return err
		}
		if done.Uncounted == "" && done.Count+done.Left == 0 {
			if err := a.nothingAt(ctx, c, session, paths); err != nil {
				return err
			}
		}
		if done.Uncounted != "" {
			a.say("not all could be counted: %s", line(done.Uncounted))
		}
		return a.print(view{data: done, text: func(w io.Writer) {
			if done.Uncounted != "" && done.Count == 0 {
				fmt.Fprintln(w, "all changes dropped")
				return
			}
			fmt.Fprintf(w, "%s dropped\n", plural(done.Count, "change"))
		}})
	})
}

// sureToDiscard asks whether all changes are to go, and is nil where they are.
func (a *app) sureToDiscard(ctx context.Context, c *client.Client, session, name string) error {
	if !a.asks() {
		return usagef("all changes of %s would be dropped: name the paths to drop, or add --yes", line(name))
	}
	all, err := c.Changes(ctx, session, client.DiffQuery{Limit: 1})
	what := "changes, which cannot be counted,"
	if answered, ok := errors.AsType[*client.Error](err); err != nil && (!ok || answered.Code != client.CodeConflict) {
		return err
	} else if err == nil && all.Files+len(all.Incomplete) == 0 {
		return nil // which is said then
	} else if err == nil {
		what = plural(all.Files, "change")
	}
	key, err := a.askKey(ctx, fmt.Sprintf("drop all %s of %s for good? y yes, n no", what, line(name)), "yn")
	switch {
	case err != nil:
		return err
	case key == 'y':
		return nil
	}
	a.say("nothing was dropped")
	return exit(exitFailed)
}
