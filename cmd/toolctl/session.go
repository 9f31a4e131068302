package main

import (
	"github.com/spf13/cobra"
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
	c.AddCommand(newSessionCreateCommand(a), newSessionListCommand(a), newSessionShowCommand(a), newSessionBriefCommand(a),
		newSessionSetCommand(a), newSessionRmCommand(a), newSessionLogsCommand(a))
	return c
}
