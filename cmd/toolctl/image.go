package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

func newImageCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "Get, list and remove the images that sessions run",
		Long: `Get, list and remove the images that sessions run. An image is a root filesystem
from a registry or an archive; "session create --image" and "run --image" name one.
Users who are not admins can only list them.`,
		Example: "  toolctl image pull debian:12\n  toolctl run --image debian:12 -- cat /etc/os-release",
	}
	c.AddCommand(newImageListCommand(a), newImagePullCommand(a), newImageImportCommand(a), newImageRmCommand(a))
	return c
}

func newImageListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List images",
		Example: "  toolctl image list\n  toolctl image list -o name",
		RunE: func(c *cobra.Command, _ []string) error {
			page, err := a.client().ListImages(c.Context())
			if err != nil {
				return err
			}
			return printImages(a, page.Items)
		},
	}
}

func printImages(a *app, images []client.Image) error {
	t := a.newTable("no images; get one with: toolctl image pull NAME, or toolctl image import FILE",
		"NAME", "DIGEST", "SIZE", "FILES", "ADDED")
	return printList(a, images, imageName, t, func(img *client.Image) {
		t.row(strings.Join(img.Names, " "), shortDigest(img.Digest), bytesShort(int64(img.Size)), fmt.Sprint(img.Files), added(img))
	})
}

func added(i *client.Image) string {
	if i.Added == nil {
		return ""
	}
	return ago(*i.Added, time.Now())
}

// imageName is what a session can ask for an image by.
func imageName(i *client.Image) string {
	if len(i.Names) > 0 {
		return i.Names[0]
	}
	return i.Digest
}

// printImage shows an image that was just made.
func printImage(a *app, i *client.Image) error {
	return a.print(view{data: i, names: []string{imageName(i)}, text: func(w io.Writer) {
		fmt.Fprintf(w, "%s is here: %s, %s, %s\n", line(imageName(i)), bytesShort(int64(i.Size)), plain.Count(i.Files, "file", "files"), line(i.Digest))
	}})
}

func newImageRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images",
		Long: `Remove a name of an image. Removing its last name, or naming it by digest, removes the
image itself, unless a session runs it.`,
		Example:           "  toolctl image rm debian:12",
		ValidArgsFunction: always(a.images),
		RunE: func(c *cobra.Command, args []string) error {
			return a.forEach(args, func(ref string) error {
				if err := a.client().RemoveImage(c.Context(), ref); err != nil {
					return fmt.Errorf("remove %s: %w", ref, err)
				}
				return a.done(ref, "removed")
			})
		},
	}
}

func newImagePullCommand(a *app) *cobra.Command {
	var insecure bool
	c := &cobra.Command{
		Use:   "pull NAME",
		Short: "Get an image from a registry",
		Long: `Get an image from a registry. The daemon downloads it, so its host must reach the
registry. A name with a digest (NAME@sha256:…) gets exactly that image or nothing.`,
		Example: "  toolctl image pull debian:12\n  toolctl image pull registry.example.com/team/tools@sha256:…",
		RunE: func(c *cobra.Command, args []string) error {
			progress := a.progress("pulling " + line(args[0]))
			made, err := a.client().PullImage(c.Context(), client.ImagePull{Ref: args[0], Insecure: insecure}, func(p client.ImageProgress) {
				progress.set(pullText(args[0], p))
			})
			progress.stop()
			if err != nil {
				return fmt.Errorf("pull %s: %w", args[0], err)
			}
			return printImage(a, made)
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
