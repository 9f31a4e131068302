package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newSessionBriefCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "brief SESSION",
		Short: "Describe a session, for a system prompt",
		Long: `Print what a model should know of a session: worktree, places that can be written,
network, limits, programs and tools.`,
		Example:           "  toolctl session brief review > prompt.md",
		ValidArgsFunction: inOrder(a.sessions),
		RunE: func(c *cobra.Command, args []string) error {
			return a.look(c.Context(), args[0], func(cl *client.Client, session string) error {
				text, err := cl.Brief(c.Context(), session)
				if err != nil {
					return err
				}
				brief := struct {
					Brief string `json:"brief"`
				}{text}
				return a.print(view{data: brief, text: func(w io.Writer) { _, _ = io.WriteString(w, fold(text, a.width(), "  ")) }})
			})
		},
	}
}
