package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newApprovalsSavedCommand(a *app) *cobra.Command {
	list := func(c *cobra.Command, _ []string) error { return a.listSavedApprovals(c.Context()) }
	c := &cobra.Command{
		Use:   "saved",
		Short: "List and revoke what was approved for always",
		Long: `List and revoke what was approved for always. Such a rule only ever turns an
"ask" into an "allow"; what is denied stays denied. Without a subcommand it lists.`,
		Example: "  toolctl approvals saved\n  toolctl approvals saved rm apr_0….1",
		RunE:    list,
	}
	c.AddCommand(
		&cobra.Command{
			Use: "list", Aliases: []string{"ls"}, Short: "List what was approved for always",
			Example: "  toolctl approvals saved list -o json", Args: cobra.NoArgs, RunE: list,
		},
		&cobra.Command{
			Use: "rm ID...", Short: "Revoke what was approved for always",
			Long:    "Revoke what was approved for always. Calls that wait are judged again.",
			Example: "  toolctl approvals saved rm apr_0….1", Args: cobra.MinimumNArgs(1),
			ValidArgsFunction: a.completeSaved,
			RunE:              func(c *cobra.Command, args []string) error { return a.revokeApprovals(c.Context(), args) },
		},
	)
	return c
}

func (a *app) listSavedApprovals(ctx context.Context) error {
	saved, err := savedApprovals(ctx, a.client())
	if err != nil {
		return err
	}
	names := make([]string, len(saved))
	for i := range saved {
		names[i] = saved[i].ID
	}
	return a.print(view{data: client.List[client.SavedApproval]{Items: saved}, names: names, text: func(w io.Writer) {
		t := a.newTable("ID", "SCOPE", "ALLOWS", "BY", "AGE", "EXPIRES")
		t.ids = []int{0}
		for i := range saved {
			s := &saved[i]
			t.row(s.ID, scopeText(s), clipped(visibleLine(s.Permission+" "+s.Pattern), maxShort), s.By, ago(s.Created, time.Now()), timeText(s.Expires))
		}
		t.write(w)
	}})
}

// scopeText says where a saved approval holds.
func scopeText(s *client.SavedApproval) string {
	switch s.Scope {
	case client.ScopeSession:
		return "session " + s.SessionID
	case client.ScopeProfile:
		return "profile " + s.Profile
	}
	return string(s.Scope)
}

func savedApprovals(ctx context.Context, c *client.Client) ([]client.SavedApproval, error) {
	return allPages(func(after string) (*client.List[client.SavedApproval], error) {
		return c.ListSavedApprovals(ctx, client.ApprovalQuery{After: after})
	})
}

// revokeApprovals goes on after a failure; the last one decides the exit code.
func (a *app) revokeApprovals(ctx context.Context, ids []string) error {
	c := a.client()
	list := func() ([]string, error) {
		saved, err := savedApprovals(ctx, c)
		ids := make([]string, len(saved))
		for i := range saved {
			ids[i] = saved[i].ID
		}
		return ids, err
	}
	var failures []error
	for _, ref := range ids {
		if _, err := approvalRef(ref); err != nil {
			failures = append(failures, err)
			continue
		}
		id := ref
		err := withID(ref, "apr_", list, func(found string) error {
			id = found
			return c.RevokeApproval(ctx, id)
		})
		if err != nil {
			failures = append(failures, fmt.Errorf("revoke %s: %w", ref, err))
		} else if _, err := fmt.Fprintf(a.stdout, "%s is revoked\n", line(id)); err != nil {
			return err
		}
	}
	return a.complainAll(failures)
}
