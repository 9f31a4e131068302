package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newApprovalsSavedCommand(a *app) *cobra.Command {
	list := func(c *cobra.Command, _ []string) error { return listSavedApprovals(c.Context(), a) }
	c := &cobra.Command{
		Use:   "saved",
		Short: "List and revoke saved approvals",
		Long: `List and revoke saved approvals ("always"). A saved approval turns "ask" into
"allow" and never overrides a "deny". Without a subcommand it lists them.`,
		Example: "  toolctl approvals saved\n  toolctl approvals saved rm apr_0….1",
		RunE:    list,
	}
	l := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List saved approvals",
		Example: "  toolctl approvals saved list -o json", RunE: list,
	}
	a.allTenantsFlag(c, "list those of all tenants")
	a.allTenantsFlag(l, "list those of all tenants")
	c.AddCommand(
		l,
		&cobra.Command{
			Use: "rm SAVED...", Aliases: []string{"revoke"}, Short: "Revoke saved approvals",
			Long:              "Revoke saved approvals. Waiting calls are judged again.",
			Example:           "  toolctl approvals saved rm apr_0….1",
			ValidArgsFunction: always(a.saved),
			RunE:              func(c *cobra.Command, args []string) error { return revokeApprovals(c.Context(), a, args) },
		},
	)
	return c
}

func listSavedApprovals(ctx context.Context, a *app) error {
	cl := a.client()
	tenant := func(s *client.SavedApproval) string { return s.Tenant }
	saved, err := ofTenants(a, func(all bool) ([]client.SavedApproval, error) {
		return savedApprovals(ctx, cl, client.ApprovalQuery{AllTenants: all})
	}, tenant, "saved approval")
	if err != nil {
		return err
	}
	t := a.newTable("no approval is saved; save one with: toolctl approvals answer ID always", "ID", "SCOPE", "ALLOWS", "BY", "AGE", "EXPIRES")
	t.ids = []int{0}
	return printTenants(a, saved, func(x *client.SavedApproval) string { return x.ID }, tenant, t, func(s *client.SavedApproval) {
		t.row(s.ID, scopeText(s), clipped(visibleLine(s.Permission+" "+s.Pattern), maxShort), s.By, ago(s.Created, time.Now()), timeText(s.Expires))
	})
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

func revokeApprovals(ctx context.Context, a *app, ids []string) error {
	c := a.client()
	list := func() ([]string, error) {
		saved, err := savedApprovals(ctx, c, client.ApprovalQuery{})
		return namesOf(saved, func(x *client.SavedApproval) string { return x.ID }), err
	}
	return a.forEach(ids, func(ref string) error {
		id, err := approvalRef(ref)
		if err != nil {
			return err
		}
		err = withID(ref, "apr_", list, func(found string) error {
			id = found
			return c.RevokeApproval(ctx, id)
		})
		err = whose(a, err, "saved approval", id, func() ([]client.SavedApproval, error) {
			return savedApprovals(ctx, c, client.ApprovalQuery{AllTenants: true})
		}, func(x *client.SavedApproval) (string, string) { return x.ID, x.Tenant })
		if err != nil {
			return fmt.Errorf("revoke %s: %w", ref, err)
		}
		return a.done(id, "revoked")
	})
}
