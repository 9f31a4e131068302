package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

const approvalsLong = `List, watch and answer the calls that wait for approval.

A call waits when a rule says "ask". The tenant's users and admins may answer it,
but not the caller: a session's token can never answer, and users cannot answer
calls that they made without one.

Without a subcommand it lists the pending approvals.`

func newApprovalsCommand(a *app) *cobra.Command {
	var session string
	all := "list those of all tenants"
	list := func(c *cobra.Command, _ []string) error { return listApprovals(c.Context(), a, session) }
	c := &cobra.Command{
		Use:     "approvals",
		Aliases: []string{"approval"},
		Short:   "List, watch and answer calls that wait for approval",
		Long:    approvalsLong,
		Example: `  toolctl approvals
  toolctl approvals watch
  toolctl approvals answer apr_0… once
  toolctl approvals answer apr_0… reject --message 'use the merge queue'
  toolctl approvals saved`,
		RunE: list,
	}
	l := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List pending approvals",
		Example: "  toolctl approvals list\n  toolctl approvals list --session review -o json",
		RunE:    list,
	}
	l.Flags().StringVar(&session, "session", "", "only approvals of this session")
	_ = l.RegisterFlagCompletionFunc("session", always(a.sessions))
	a.allTenantsFlag(c, all)
	a.allTenantsFlag(l, all)
	c.AddCommand(l, newApprovalsWatchCommand(a), newApprovalsAnswerCommand(a), newApprovalsSavedCommand(a))
	return c
}

func listApprovals(ctx context.Context, a *app, session string) error {
	var pending []client.Approval
	err := a.look(ctx, session, func(c *client.Client, session string) (err error) {
		pending, err = ofTenants(a, func(all bool) ([]client.Approval, error) {
			return pendingApprovals(ctx, c, client.ApprovalQuery{Session: session, AllTenants: all})
		}, approvalTenant, "approval")
		return err
	})
	if err != nil {
		return err
	}
	t := a.newTable("no call waits for approval; toolctl approvals watch waits for one", "ID", "SESSION", "TOOL", "WHAT", "AGE", "EXPIRES")
	t.ids = []int{0, 1}
	return printTenants(a, pending, func(x *client.Approval) string { return x.ID }, approvalTenant, t, func(p *client.Approval) {
		t.row(p.ID, p.SessionID, p.Tool, clipped(approvalShort(p), maxShort), ago(p.Created, time.Now()), expiresIn(p, time.Now()))
	})
}
