package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// watchFlag is -w: a look again and again.
type watchFlag struct {
	on bool
}

// watchEvery is the pause between two looks.
const watchEvery = 2 * time.Second

func (f *watchFlag) register(c *cobra.Command) {
	c.Flags().BoolVarP(&f.on, "watch", "w", false, "update every 2 seconds on a terminal, until Ctrl-C")
}

// run looks once, or again and again. What look prints is drawn over what it printed
// before.
func (f *watchFlag) run(ctx context.Context, a *app, look func(ctx context.Context) error) error {
	if !f.on {
		return look(ctx)
	}
	if !a.outTTY || a.format != formatTable {
		return usagef("--watch is for tables on a terminal; \"toolctl events --follow\" prints what changes")
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	to := a.stdout
	defer func() { a.stdout = to }()
	for {
		var seen bytes.Buffer // drawn in one write, so that it does not flicker
		a.stdout = &seen
		err := look(ctx)
		if interruption(ctx) != nil {
			return nil
		}
		if quiet := (*exitError)(nil); err != nil && (!errors.As(err, &quiet) || quiet.err != nil) {
			return err
		}
		if _, err := io.WriteString(to, clearScreen+seen.String()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// clearScreen goes to the top of an empty screen.
const clearScreen = "\x1b[H\x1b[2J"
