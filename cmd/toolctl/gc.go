package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newGCCommand(a *app) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:   "gc",
		Short: "Remove what sessions left behind without an owner",
		Long: `Find containers, cgroups, bundles, mounts and outputs that belong to no session,
and remove them. The daemon does the same when it starts; this is for looking.`,
		Example: "  toolctl gc --dry-run\n  toolctl gc",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			progress := a.progress("looking")
			found, err := a.client().GC(c.Context(), dryRun)
			progress.stop()
			if err != nil {
				return err
			}
			return a.printGarbage(found, dryRun)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show only, remove nothing")
	return c
}

func (a *app) printGarbage(found []client.Garbage, dryRun bool) error {
	names := make([]string, len(found))
	stuck := 0
	for i, g := range found {
		names[i] = g.Name
		if !g.Removed && !dryRun {
			stuck++
		}
	}
	err := a.print(view{data: client.List[client.Garbage]{Items: found}, names: names, text: func(w io.Writer) {
		if len(found) == 0 {
			fmt.Fprintln(w, "nothing left behind")
			return
		}
		t := a.newTable("KIND", "NAME", "SESSION", "REMOVED", "ERROR")
		for _, g := range found {
			t.row(g.Kind, g.Name, g.Session, yesNo(g.Removed), g.Error)
		}
		t.write(w)
	}})
	if err == nil && stuck > 0 {
		err = fmt.Errorf("%d could not be removed", stuck)
	}
	return err
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
