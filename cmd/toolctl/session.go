package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newSessionCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:     "session",
		Aliases: []string{"sessions"},
		Short:   "Create, show and end sessions",
		Example: `  toolctl session create --worktree . --name review
  toolctl session list
  toolctl session rm review`,
	}
	c.AddCommand(newSessionCreateCommand(a), newSessionListCommand(a), newSessionShowCommand(a),
		newSessionRmCommand(a), newSessionLogsCommand(a))
	return c
}

// sessionID finds the session that ref names, by its id or by its name. Names
// are looked up in the list, so that no text of the user's becomes a path.
func (a *app) sessionID(ctx context.Context, c *client.Client, ref string) (string, error) {
	if strings.HasPrefix(ref, "ses_") {
		return ref, nil
	}
	sessions, err := listSessions(ctx, c, client.SessionQuery{})
	if err != nil {
		return "", err
	}
	var found, names []string
	for _, s := range sessions {
		if s.Name != "" {
			names = append(names, s.Name)
		}
		if s.Name == ref {
			found = append(found, s.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", &client.Error{
			Code:    client.CodeNotFound,
			Message: fmt.Sprintf("no session is named %q%s", ref, didYouMean(ref, names)),
			Hint:    `"toolctl session list" shows the sessions; ended ones have only their id`,
		}
	case 1:
		return found[0], nil
	}
	return "", usagef("%d sessions are named %q: use an id (%s)", len(found), ref, strings.Join(found, ", "))
}

// listSessions reads all pages.
func listSessions(ctx context.Context, c *client.Client, q client.SessionQuery) ([]client.Session, error) {
	all := []client.Session{}
	for {
		page, err := c.ListSessions(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" || len(page.Items) == 0 {
			return all, nil
		}
		q.After = page.Next
	}
}

// parseLabels reads K=V pairs.
func parseLabels(flags []string) (map[string]string, error) {
	labels := make(map[string]string)
	for _, kv := range flags {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, usagef("--label %q: write K=V", kv)
		}
		labels[k] = v
	}
	return labels, nil
}

func formatLabels(labels map[string]string) string {
	return strings.Join(sortedPairs(labels), ",")
}
