package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

const checkpointLong = `Make a checkpoint of a session: a state of all files of its worktree to which it can
come back with "toolctl restore", and from which "toolctl fork" can begin. A
checkpoint is made at once, however large the worktree is. It goes with the session.

The worktree must be of mode "overlay".`

func newCheckpointCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "checkpoint SESSION [NAME]",
		Short: "Make a state to which a session can come back",
		Long:  checkpointLong,
		Example: `  toolctl checkpoint review before-tests
  toolctl checkpoint ls review
  toolctl checkpoint rm review before-tests`,
		ValidArgsFunction: inOrder(a.sessions),
		RunE:              func(c *cobra.Command, args []string) error { return makeCheckpoint(c.Context(), a, args) },
	}
	c.AddCommand(
		&cobra.Command{
			Use: "ls SESSION", Aliases: []string{"list"}, Short: "List the checkpoints of a session",
			Example: "  toolctl checkpoint ls review", ValidArgsFunction: inOrder(a.sessions),
			RunE: func(c *cobra.Command, args []string) error { return printCheckpoints(c.Context(), a, args[0]) },
		},
		&cobra.Command{
			Use: "rm SESSION CHECKPOINT...", Short: "Remove checkpoints of a session",
			Long:              "Remove checkpoints of a session. The files of the session stay as they are.",
			Example:           "  toolctl checkpoint rm review before-tests",
			ValidArgsFunction: firstThen(a.sessions, a.checkpoints),
			RunE:              func(c *cobra.Command, args []string) error { return dropCheckpoints(c.Context(), a, args[0], args[1:]) },
		},
	)
	return c
}

func makeCheckpoint(ctx context.Context, a *app, args []string) error {
	c := a.client()
	return a.withSession(ctx, c, args[0], func(session string) error {
		made, err := c.Checkpoint(ctx, session, client.CheckpointCreate{Name: strings.Join(args[1:], "")})
		if err != nil {
			return err
		}
		return a.print(view{data: made, names: []string{made.ID}, text: func(w io.Writer) { fmt.Fprintln(w, line(made.ID)) }})
	})
}

func printCheckpoints(ctx context.Context, a *app, ref string) error {
	return a.look(ctx, ref, func(c *client.Client, session string) error {
		l, err := c.Checkpoints(ctx, session)
		if err != nil {
			return err
		}
		t := a.newTable("no checkpoints; make one with: toolctl checkpoint "+line(ref), "ID", "NAME", "MADE FOR", "AGE", "SIZE")
		t.ids = []int{0}
		return printList(a, l.Items, func(x *client.Checkpoint) string { return x.ID }, t, func(x *client.Checkpoint) {
			t.row(x.ID, x.Name, causeText(x), ago(x.Created, time.Now()), bytesShort(x.Bytes))
		})
	})
}

// causeText says what a checkpoint was made for.
func causeText(x *client.Checkpoint) string {
	switch {
	case x.Message != "":
		return x.Cause + " " + x.Message
	case x.Call != "":
		return x.Cause + " " + x.Call
	}
	return x.Cause
}

func dropCheckpoints(ctx context.Context, a *app, session string, refs []string) error {
	c := a.client()
	return a.withSession(ctx, c, session, func(session string) error {
		if _, err := c.Checkpoints(ctx, session); err != nil {
			return err
		}
		return a.forEach(refs, func(ref string) error {
			dropped := ref
			err := withCheckpoint(ctx, c, session, ref, func(id string) error {
				dropped = id
				return c.DropCheckpoint(ctx, session, id)
			})
			if err != nil {
				return fmt.Errorf("remove %s: %w", ref, err)
			}
			return a.done(dropped, "removed")
		})
	})
}

// withCheckpoint is withID of the checkpoints of a session. An empty ref is passed on.
func withCheckpoint(ctx context.Context, c *client.Client, session, ref string, do func(id string) error) error {
	if ref == "" {
		return do("")
	}
	if strings.Trim(ref, ".") == "" || strings.ContainsAny(ref, "/%?#") {
		return usagef("%q is not the id or the name of a checkpoint; \"toolctl checkpoint ls %s\" shows them", line(ref), line(session))
	}
	list := func() ([]string, error) {
		l, err := c.Checkpoints(ctx, session)
		if err != nil {
			return nil, err
		}
		return namesOf(l.Items, func(x *client.Checkpoint) string { return x.ID }), nil
	}
	return withID(ref, "cp_", list, do)
}
