package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newWaitCommand(a *app) *cobra.Command {
	var timeout string
	c := &cobra.Command{
		Use:   "wait SESSION [CALL]",
		Short: "Wait until a session ends or a call finishes",
		Long: `Wait until a session has ended, or with CALL until that call has finished.

With CALL it prints the call's output and exits as "toolctl call" does. Without
CALL it exits with 0 when the session has ended and with 1 when it was lost. After
--timeout it exits with 5; the session and the call go on.`,
		Example: `  toolctl call review bash 'make' --id build-1 --wait 0
  toolctl wait review call_0123
  toolctl wait review --timeout 1h`,
		ValidArgsFunction: inOrder(a.sessions, a.calls),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			ms, err := millis("--timeout", timeout)
			if err != nil {
				return err
			}
			if ms > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(ms)*time.Millisecond,
					&exitError{exitTimeout, fmt.Errorf("it has not ended within %s; it goes on", timeout)})
				defer cancel()
			}
			return wait(ctx, a, args)
		},
	}
	c.Flags().StringVar(&timeout, "timeout", "", "wait no longer than this `duration`, such as 10m")
	return c
}

func wait(ctx context.Context, a *app, args []string) error {
	return a.look(ctx, args[0], func(cl *client.Client, ref string) error {
		if len(args) == 1 {
			return waitSession(ctx, a, cl, ref)
		}
		return withCall(ctx, cl, ref, args[1], func(id string) error { return waitCall(ctx, a, cl, id) })
	})
}

func waitSession(ctx context.Context, a *app, c *client.Client, ref string) error {
	s, err := c.GetSession(ctx, ref)
	if err != nil {
		return err
	}
	id := s.ID // its name is free when it has ended
	progress := a.progress("waiting for the end of " + line(ref))
	err = await(ctx, c, client.EventQuery{Session: id, Type: "session.*"}, func(*client.Event) (bool, error) {
		var err error
		s, err = c.GetSession(ctx, id)
		return err == nil && over(s), err
	})
	progress.stop()
	if err != nil {
		return err
	}
	if err := a.print(view{data: s, names: []string{s.ID}, text: func(w io.Writer) {
		text := string(s.State)
		if s.Reason != "" {
			text += ": " + s.Reason
		}
		fmt.Fprintf(w, "%s %s\n", line(s.ID), line(text))
	}}); err != nil {
		return err
	}
	if s.State == client.SessionLost {
		return exit(exitFailed)
	}
	return nil
}

func waitCall(ctx context.Context, a *app, c *client.Client, id string) error {
	call, err := c.GetCall(ctx, id)
	if err != nil {
		return err
	}
	progress := a.progress("waiting for " + line(id))
	err = await(ctx, c, client.EventQuery{Session: call.SessionID, Type: "call.*"}, func(*client.Event) (bool, error) {
		var err error
		call, err = c.GetCall(ctx, id)
		return err == nil && call.Finished(), err
	})
	progress.stop()
	if err != nil {
		return err
	}
	shown := &callCommand{app: a}
	if err := shown.printCall(ctx, c, call); err != nil {
		return err
	}
	return shown.result(ctx, call)
}

// daemonAway is how long a daemon may be away while something is waited for.
const daemonAway = 30 * time.Second

// await looks until done says that it is so: when a stream of events has begun, so
// that nothing is missed, and after each event. A daemon that restarts does not end it.
func await(ctx context.Context, c *client.Client, q client.EventQuery, done func(e *client.Event) (bool, error)) error {
	for seen := time.Now(); ; {
		is, err := awaitOnce(ctx, c, q, func(e *client.Event) (bool, error) {
			is, err := done(e)
			if err == nil {
				seen = time.Now()
			}
			return is, err
		})
		switch {
		case is:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !isUnreachable(err) || time.Since(seen) > daemonAway:
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// awaitOnce does so until the stream of events breaks.
func awaitOnce(ctx context.Context, c *client.Client, q client.EventQuery, done func(e *client.Event) (bool, error)) (is bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	q.Opened = func() {
		if is, err = done(nil); is || err != nil {
			stop()
		}
	}
	for e, serr := range c.Events(ctx, q) {
		if is || err != nil {
			return is, err
		}
		if serr != nil {
			return false, serr
		}
		if is, err = done(&e); is || err != nil {
			return is, err
		}
	}
	return is, err
}
