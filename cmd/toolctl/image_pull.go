package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newImagePullCommand(a *app) *cobra.Command {
	var insecure bool
	c := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Get an image from a registry",
		Long: `Get an image from a registry. The daemon gets it, so its host must reach the
registry. A name with a digest (NAME@sha256:…) gets exactly that image or nothing.`,
		Example: "  toolctl image pull debian:12\n  toolctl image pull registry.example.com/team/tools@sha256:…",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			progress := a.progress("pulling " + line(args[0]))
			made, err := a.client().PullImage(c.Context(), client.ImagePull{Ref: args[0], Insecure: insecure}, func(p client.ImageProgress) {
				progress.set(pullText(args[0], p))
			})
			progress.stop()
			if err != nil {
				return fmt.Errorf("pull %s: %w", args[0], err)
			}
			return a.printImage(made)
		},
	}
	c.Flags().BoolVar(&insecure, "insecure", false, "allow plain HTTP to a registry that is not on this host")
	return c
}

// pullText says how far a pull has come.
func pullText(ref string, p client.ImageProgress) string {
	text := "pulling " + line(ref) + ": " + line(p.Stage)
	if p.Layer > 0 {
		text += fmt.Sprintf(" layer %d of %d", p.Layer, p.Layers)
	}
	switch {
	case p.Total > 0:
		text += fmt.Sprintf(", %s of %s", bytesShort(p.Bytes), bytesShort(p.Total))
	case p.Bytes > 0:
		text += ", " + bytesShort(p.Bytes)
	}
	return text
}
