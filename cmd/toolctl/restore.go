package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newRestoreCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "restore SESSION CHECKPOINT",
		Short: "Bring a session's files back to a checkpoint",
		Long: `Bring all files of a session back to a checkpoint, and with them what its tools
remember of files. The state that is left is kept as a checkpoint too, so a restore
can be undone.`,
		Example:           "  toolctl restore review before-tests",
		ValidArgsFunction: firstThen(a.sessions, a.checkpoints),
		RunE: func(c *cobra.Command, args []string) error {
			return restore(c.Context(), a, args[0], args[1], 0)
		},
	}
}

func newUndoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "undo SESSION [N]",
		Short: "Take back what an agent did in its last N messages",
		Long: `Bring all files of a session back to what they were before the last N messages, or
calls, that had a checkpoint made for them (default 1). The daemon makes these by
itself where [worktrees] checkpoint of its config.toml says so.`,
		Example:           "  toolctl undo review\n  toolctl undo review 3",
		ValidArgsFunction: inOrder(a.sessions),
		RunE: func(c *cobra.Command, args []string) error {
			n := 1
			if len(args) > 1 {
				var err error
				if n, err = strconv.Atoi(args[1]); err != nil || n < 1 {
					return usagef("%q is not how many messages to take back: write a number from 1 on", line(args[1]))
				}
			}
			return restore(c.Context(), a, args[0], "", n)
		},
	}
}

// restore brings a session back to a checkpoint, or before the last undo messages.
func restore(ctx context.Context, a *app, ref, checkpoint string, undo int) error {
	c := a.client()
	progress := a.progress("restoring")
	var done *client.Restored
	err := a.withSession(ctx, c, ref, func(session string) error {
		return withCheckpoint(ctx, c, session, checkpoint, func(id string) (err error) {
			done, err = c.Restore(ctx, session, client.RestoreRequest{Checkpoint: id, Undo: undo})
			return err
		})
	})
	progress.stop()
	if err != nil {
		return err
	}
	return a.print(view{data: done, names: []string{done.Checkpoint.ID}, text: func(w io.Writer) {
		fmt.Fprintf(w, "%s is as it was at %s\n", line(ref), checkpointText(&done.Checkpoint))
		if done.Remade {
			fmt.Fprintln(w, "its sandbox was made anew: nothing runs in it, and its home and /tmp are empty")
		}
		fmt.Fprintf(w, "to go back again: toolctl restore %s %s\n", line(ref), line(done.Before.ID))
	}})
}

// checkpointText names a checkpoint for people.
func checkpointText(x *client.Checkpoint) string {
	text := line(x.ID)
	if x.Name != "" {
		text += " (" + line(x.Name) + ")"
	}
	return text + ", made " + ago(x.Created, time.Now()) + " ago"
}
