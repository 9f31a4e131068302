package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newImageCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "Get, list and remove the images that sessions run",
		Long: `Get, list and remove the images that sessions run. An image is a root filesystem
from a registry or an archive; "session create --image" and "run --image" name one.
Who is not an admin can list them.`,
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
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			page, err := a.client().ListImages(c.Context())
			if err != nil {
				return err
			}
			return a.printImages(page.Items)
		},
	}
}

func (a *app) printImages(images []client.Image) error {
	names := make([]string, len(images))
	for i := range images {
		names[i] = imageName(&images[i])
	}
	return a.print(view{data: client.List[client.Image]{Items: images}, names: names, text: func(w io.Writer) {
		if len(images) == 0 {
			fmt.Fprintln(w, "no images; get one with: toolctl image pull NAME, or toolctl image import FILE")
			return
		}
		t := a.newTable("NAME", "DIGEST", "SIZE", "FILES", "ADDED")
		for i := range images {
			img := &images[i]
			t.row(strings.Join(img.Names, " "), shortDigest(img.Digest), bytesShort(int64(img.Size)), fmt.Sprint(img.Files), added(img))
		}
		t.write(w)
	}})
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

// shortDigest is enough of a digest to tell images apart by eye.
func shortDigest(digest string) string {
	algorithm, hex, ok := strings.Cut(digest, ":")
	if !ok || len(hex) < 12 {
		return digest
	}
	return algorithm + ":" + hex[:12]
}

// printImage shows an image that was just made.
func (a *app) printImage(i *client.Image) error {
	return a.print(view{data: i, names: []string{imageName(i)}, text: func(w io.Writer) {
		fmt.Fprintf(w, "%s is here: %s, %d files, %s\n", line(imageName(i)), bytesShort(int64(i.Size)), i.Files, line(i.Digest))
	}})
}

func newImageRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images",
		Long: `Remove a name, and with its last name or by its digest the image itself, unless a
session runs it.`,
		Example:           "  toolctl image rm debian:12",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeImages,
		RunE:              func(c *cobra.Command, args []string) error { return a.removeImages(c.Context(), args) },
	}
}

// removeImages goes on after a failure; the last one decides the exit code.
func (a *app) removeImages(ctx context.Context, refs []string) error {
	c := a.client()
	var failures []error
	for _, ref := range refs {
		if err := c.RemoveImage(ctx, ref); err != nil {
			failures = append(failures, fmt.Errorf("remove %s: %w", ref, err))
		} else if _, err := fmt.Fprintf(a.stdout, "%s is removed\n", line(ref)); err != nil {
			return err
		}
	}
	return a.complainAll(failures)
}

// completeImages offers the images for every argument.
func (a *app) completeImages(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := completionContext(c)
	defer cancel()
	page, err := a.client().ListImages(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for i := range page.Items {
		img := &page.Items[i]
		for _, name := range img.Names {
			out = append(out, cobra.CompletionWithDesc(line(name), line(shortDigest(img.Digest)+" "+bytesShort(int64(img.Size)))))
		}
		if len(img.Names) == 0 {
			out = append(out, cobra.CompletionWithDesc(line(img.Digest), bytesShort(int64(img.Size))))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
