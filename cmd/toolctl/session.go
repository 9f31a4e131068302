package main

import (
	"context"
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

// listSessions reads all pages.
func listSessions(ctx context.Context, c *client.Client, q client.SessionQuery) ([]client.Session, error) {
	return allPages(func(after string) (*client.List[client.Session], error) {
		if after != "" {
			q.After = after
		}
		return c.ListSessions(ctx, q)
	})
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
