package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newGCCommand(a *app) *cobra.Command {
	var r client.GCRequest
	c := &cobra.Command{
		Use:   "gc",
		Short: "Remove what ended sessions left behind",
		Long: `Find containers, cgroups, bundles, mounts and outputs that belong to no session,
and remove them. The daemon does the same when it starts.

What belongs to sessions that are not on record is kept until [worktrees] keep is over,
counted from when it was first seen: the database is damaged then, or an older copy, and
these sessions go on when the right one is put back. With --unknown it is removed now;
with --dry-run, REMOVED says until when it is kept.

With --records, the inputs and results of calls of ended sessions are removed too,
except for the first 4 KiB of results and the hashes of inputs. Without it they stay
until daemon.retention is over or their tenant needs the space.`,
		Example: "  toolctl gc --dry-run\n  toolctl gc\n  toolctl gc --records\n  toolctl gc --unknown",
		RunE: func(c *cobra.Command, _ []string) error {
			progress := a.progress("looking")
			found, err := gc(c.Context(), a, r)
			progress.stop()
			if err != nil {
				return err
			}
			return printGarbage(a, found, r)
		},
	}
	c.Flags().BoolVar(&r.DryRun, "dry-run", false, "show only, remove nothing")
	c.Flags().BoolVar(&r.Records, "records", false, "also remove inputs and results of calls of ended sessions")
	c.Flags().BoolVar(&r.Unknown, "unknown", false, "also remove what belongs to sessions that are not on record")
	return c
}

// gc lists records in any case, also where they are to stay.
func gc(ctx context.Context, a *app, r client.GCRequest) ([]client.Garbage, error) {
	c := a.client()
	if r.DryRun || r.Records {
		r.Records = true
		return c.GC(ctx, r)
	}
	found, err := c.GC(ctx, r)
	if err != nil {
		return nil, err
	}
	rest, err := c.GC(ctx, client.GCRequest{DryRun: true, Records: true})
	for _, g := range rest {
		if g.Kind == client.GarbageRecords {
			found = append(found, g)
		}
	}
	return found, err
}

func printGarbage(a *app, found []client.Garbage, r client.GCRequest) error {
	stuck, kept, records := 0, 0, int64(0)
	for _, g := range found {
		switch {
		case g.KeptUntil != nil:
			kept++
		case g.Removed || r.DryRun:
		case g.Kind == client.GarbageRecords && !r.Records:
			records += g.Bytes
		default:
			stuck++
		}
	}
	t := a.newTable("nothing left behind", "KIND", "NAME", "SESSION", "SIZE", "REMOVED", "ERROR")
	t.ids, t.ends, t.wraps = []int{2}, []int{1}, true
	err := printList(a, found, func(x *client.Garbage) string { return x.Name }, t, func(g *client.Garbage) {
		size := ""
		if g.Bytes > 0 {
			size = bytesShort(g.Bytes)
		}
		t.row(g.Kind, g.Name, g.Session, size, removed(g), g.Error)
	})
	if records > 0 {
		a.say("records of sessions that are over stay: toolctl gc --records frees %s of them", bytesShort(records))
	}
	if kept > 0 {
		a.say("%d of sessions that are not on record stay: put the right database back, or remove them with toolctl gc --unknown", kept)
	}
	if err == nil && stuck > 0 {
		err = fmt.Errorf("%d could not be removed", stuck)
	}
	return err
}

// removed is until when something is kept that is not.
func removed(g *client.Garbage) string {
	if g.KeptUntil != nil {
		return "kept until " + g.KeptUntil.Local().Format(time.DateTime)
	}
	return yesNo(g.Removed)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
