package main

import (
	"github.com/spf13/cobra"

	"github.com/toold/toold/internal/shipped"
)

// newKeepCommand is for toolctl itself: the parent of an agent that it tries.
func newKeepCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "keep-agent",
		Short:  "Start an agent for toolctl mcp --doctor, and leave nothing of it",
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return exit(shipped.Keep(a.stdin, a.stdout)) },
	}
}
