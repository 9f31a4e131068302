package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

type drainCommand struct {
	*app
	off     bool
	timeout string
}

func newDrainCommand(a *app) *cobra.Command {
	d := &drainCommand{app: a}
	c := &cobra.Command{
		Use:   "drain",
		Short: "Let no new sessions begin, and wait until none is left",
		Long: `Let no new sessions begin on this daemon, those in a queue included, and wait until none
is left, of all tenants. Sessions that are there go on with their calls; nothing is ended.
The daemon goes on to refuse new ones when this command has ended, and after a restart
with sessions left, until --off, or until it is stopped when none is left. For admins.

After --timeout it shows who is left and exits with 5; 0 does not wait.`,
		Example: `  toolctl drain --timeout 1h && systemctl stop toold.socket toold
  toolctl drain --timeout 0   # who is left?
  toolctl drain --off`,
		RunE: func(c *cobra.Command, _ []string) error { return d.run(c.Context()) },
	}
	c.Flags().BoolVar(&d.off, "off", false, "let new sessions begin again")
	c.Flags().StringVar(&d.timeout, "timeout", "", "wait no longer than this `duration`, such as 1h")
	return c
}

func (d *drainCommand) run(ctx context.Context) error {
	most, err := parseDurationFlag("--timeout", d.timeout)
	if err != nil {
		return err
	}
	c := d.client()
	h, err := c.Drain(ctx, d.off)
	if err != nil {
		return err
	}
	if d.off {
		return d.print(view{data: h, names: []string{h.Status}, text: func(w io.Writer) { fmt.Fprintln(w, "new sessions begin again") }})
	}
	d.say("no new sessions begin, until toolctl drain --off")
	left, err := d.wait(ctx, c, time.Duration(most))
	if err != nil {
		return err
	}
	if err := printSessions(d.app, left, "no session is left"); err != nil {
		return err
	}
	if len(left) > 0 {
		return &exitError{exitTimeout, fmt.Errorf("%s left; toolctl session rm -A --all ends all of them", plural(len(left), "session"))}
	}
	return nil
}

// wait waits until no session is left, and gives those that are.
func (d *drainCommand) wait(ctx context.Context, c *client.Client, most time.Duration) (left []client.Session, err error) {
	look := func(ctx context.Context) error {
		left, err = listSessions(ctx, c, client.SessionQuery{AllTenants: true})
		return err
	}
	if d.timeout != "" && most <= 0 {
		err = look(ctx)
		return left, err
	}
	within := ctx
	if d.timeout != "" {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, most)
		defer cancel()
	}
	progress := d.progress("waiting for the end of all sessions")
	defer progress.stop()
	werr := await(within, c, client.EventQuery{Type: "session.*", AllTenants: true}, func(*client.Event) (bool, error) {
		err := look(within)
		return err == nil && len(left) == 0, err
	})
	if within.Err() != nil && ctx.Err() == nil { // late
		werr = look(ctx)
	}
	return left, werr
}
