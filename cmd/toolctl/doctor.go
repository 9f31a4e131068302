package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newDoctorCommand(a *app) *cobra.Command {
	var probe bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Show which limits and defences hold on the daemon's host",
		Long: `Show what the daemon's host supports: kernel, cgroups, runtimes, id mapping, each
limit and each defence. With --probe each is checked from inside a throw-away
session, which takes some seconds. Exits with 1 when a check fails. If no daemon
listens and none was named, a private one is started and asked.`,
		Example: "  toolctl doctor\n  toolctl doctor --probe -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := doctor(c.Context(), a, probe)
			if err != nil {
				return err
			}
			return printDoctor(a, d)
		},
	}
	c.Flags().BoolVar(&probe, "probe", false, "check from inside a throw-away session")
	return c
}

// doctor asks the daemon, or a private one where there is none.
func doctor(ctx context.Context, a *app, probe bool) (*client.Doctor, error) {
	c, stop, err := a.reach(ctx, func() error { return nil })
	if err != nil {
		return nil, err
	}
	defer stop()
	progress := a.progress("looking")
	defer progress.stop()
	return c.Doctor(ctx, probe)
}

func printDoctor(a *app, d *client.Doctor) error {
	var names []string
	failed := 0
	for _, c := range d.Checks {
		names = append(names, c.Group+"/"+c.Name)
		if c.Status == client.CheckFail {
			failed++
		}
	}
	err := a.print(view{data: d, names: names, text: func(w io.Writer) {
		t := a.newTable("the daemon looked at nothing", "GROUP", "CHECK", "STATUS", "SEEN")
		t.wraps = true
		for _, c := range d.Checks {
			seen := c.Detail
			if c.Probed {
				seen += " (probed)"
			}
			t.row(c.Group, c.Name, string(c.Status), seen)
			t.paint(2, wordColor(c.Status))
		}
		t.write(w)
	}})
	if err != nil {
		return err
	}
	for _, c := range d.Checks {
		if c.Hint != "" && (c.Status == client.CheckFail || c.Status == client.CheckWarn) {
			a.say("%s %s: %s", line(c.Group), line(c.Name), line(c.Hint))
		}
	}
	if failed > 0 {
		return exit(exitFailed)
	}
	return nil
}
