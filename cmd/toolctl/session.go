package main

import (
	"context"
	"errors"
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

// sessionRef checks the id or the name of a session that the user gave, so that
// no other text becomes a part of a request's path. The daemon finds sessions by
// either.
func sessionRef(ref string) (string, error) {
	if strings.Trim(ref, ".") == "" || strings.ContainsAny(ref, "/%?#") {
		return "", usagef("%q is not the id or the name of a session; \"toolctl session list\" shows them", line(ref))
	}
	return ref, nil
}

// suggestSession adds the nearest name to an error that says that there is no
// session ref. Where the session is there, something else was not found.
func suggestSession(ctx context.Context, c *client.Client, ref string, err error) error {
	var e *client.Error
	if !errors.As(err, &e) || e.Code != client.CodeNotFound || ref == "" || strings.HasPrefix(ref, "ses_") {
		return err
	}
	sessions, lerr := listSessions(ctx, c, client.SessionQuery{})
	if lerr != nil {
		return err
	}
	var names []string
	for _, s := range sessions {
		if s.Name == ref {
			return err
		}
		names = append(names, s.Name)
	}
	return &client.Error{
		Code:    client.CodeNotFound,
		Message: fmt.Sprintf("no session is named %q%s", ref, didYouMean(ref, names)),
		Hint:    `"toolctl session list" shows the sessions; ended ones have only their id`,
		Status:  e.Status,
	}
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
