package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newAbortCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "abort SESSION [CALL]",
		Short: "Abort the calls of a session",
		Long: `Abort CALL, or without CALL all unfinished calls of the session, and wait until they
have finished. A command gets three seconds to stop by itself. The session goes on.
"toolctl session logs SESSION CALL" shows the output of an aborted call.`,
		Example: `  toolctl abort review call_0123
  toolctl abort review`,
		ValidArgsFunction: inOrder(a.sessions, a.calls),
		RunE:              func(c *cobra.Command, args []string) error { return abort(c.Context(), a, args) },
	}
}

func abort(ctx context.Context, a *app, args []string) error {
	c := a.client()
	s, err := a.session(ctx, c, args[0])
	if err != nil {
		return err
	}
	var calls []client.Call
	if len(args) == 1 {
		calls, err = unfinished(ctx, c, s.ID)
	} else {
		err = withCall(ctx, c, s.ID, args[1], func(id string) error {
			call, err := c.GetCall(ctx, id)
			if err != nil {
				return err
			}
			if call.SessionID != s.ID {
				return usagef("%s is a call of session %s", line(call.ID), line(call.SessionID))
			}
			calls = []client.Call{*call}
			return nil
		})
	}
	if err != nil {
		return err
	}
	ended, failed := abortAll(ctx, c, calls)
	if len(calls) == 0 {
		a.say("no call of %s runs or waits", line(s.ID))
	}
	return errors.Join(failed, a.print(listView(ended, func(x *client.Call) string { return x.ID }, func(w io.Writer) {
		for i := range ended {
			fmt.Fprintf(w, "%s %s\n", line(ended[i].ID), howAborted(&ended[i]))
		}
	})))
}

// abortAll aborts calls, and gives those that it could ask for as they have ended.
func abortAll(ctx context.Context, c *client.Client, calls []client.Call) (ended []client.Call, failed error) {
	ended = []client.Call{}
	for i := range calls {
		call, err := c.AbortCall(ctx, calls[i].ID)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		ended = append(ended, *call)
	}
	return ended, failed
}

// howAborted says what became of a call that was to be aborted.
func howAborted(c *client.Call) string {
	switch reason, _ := c.Metadata["reason"].(string); {
	case reason == "aborted" || c.Error != nil && c.Error.Code == client.CodeAborted:
		return "aborted"
	case !c.Finished():
		return "will end: the daemon is stopping"
	}
	return "had ended"
}
