package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newSessionListCommand(a *app) *cobra.Command {
	var watch watchFlag
	var labels []string
	var state string
	var all bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List sessions",
		Example: `  toolctl session list
  toolctl session list --all --label job=42
  toolctl session list -w
  toolctl session list -o name | xargs -n1 toolctl session rm`,
		RunE: func(c *cobra.Command, _ []string) error {
			want, err := parseLabels(labels)
			if err != nil {
				return err
			}
			q := client.SessionQuery{State: client.SessionState(state), Labels: want, All: all}
			return watch.run(c.Context(), a, func(ctx context.Context) error {
				sessions, err := a.tenantSessions(ctx, q)
				if err != nil {
					return err
				}
				if a.format == formatTable && len(labels) == 0 {
					sessions = withoutHelpers(a, sessions)
				}
				empty := noSessions
				if len(labels) > 0 || state != "" {
					empty = "no session is like that; toolctl session list --all lists all that are known"
				}
				return printSessions(a, sessions, empty)
			})
		},
	}
	watch.register(c)
	c.Flags().StringArrayVar(&labels, "label", nil, "only those with this label `K=V` (repeatable)")
	c.Flags().StringVar(&state, "state", "", "only those in this state")
	c.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended")
	a.allTenantsFlag(c, "list those of all tenants")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(
		[]string{"creating", "ready", "ending", "ended", "lost"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// noSessions is what a person reads who has none.
const noSessions = "no sessions; make one with: toolctl session create --worktree DIR"

func printSessions(a *app, sessions []client.Session, empty string) error {
	t := a.newTable(empty, "ID", "NAME", "STATE", "WORKTREE", "AGE", "LABELS")
	t.ids, t.ends = []int{0}, []int{3}
	return printTenants(a, sessions, func(x *client.Session) string { return x.ID }, sessionTenant, t, func(s *client.Session) {
		t.row(s.ID, s.Name, string(s.State), worktreeShort(s.Worktree), ago(s.Created, time.Now()), formatLabels(s.Labels))
		t.paint(2, wordColor(s.State))
	})
}

// helperLabel is of sessions in which the daemon itself looked at the changes of another one.
const helperLabel = "toold/for"

// withoutHelpers leaves out those of them that are over, of which there are as many as looks.
func withoutHelpers(a *app, sessions []client.Session) []client.Session {
	all := len(sessions)
	sessions = slices.DeleteFunc(sessions, func(s client.Session) bool { return over(&s) && s.Labels[helperLabel] != "" })
	if n := all - len(sessions); n > 0 {
		a.say("%s of the daemon's own left out, in which it looked at changes; --label %s=SESSION lists them", plural(n, "session"), helperLabel)
	}
	return sessions
}
