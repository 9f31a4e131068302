package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newGenDocsCommand is for those who package toolctl.
func newGenDocsCommand(_ *app) *cobra.Command {
	return &cobra.Command{
		Use:    "gen-docs DIR",
		Short:  "Write the man pages into a directory",
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			root := c.Root()
			root.DisableAutoGenTag = true // the same sources give the same pages
			return doc.GenManTree(root, &doc.GenManHeader{Title: "TOOLCTL", Section: "1", Source: "toold"}, args[0])
		},
	}
}
