package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

const importLong = `Make an image from a file, a directory or standard input ("-"): an OCI archive or
layout, the output of "docker save", or a root filesystem (a directory, or a tar of
one). Files may be compressed with gzip or zstd; the format is detected from the
content.

A root filesystem needs a --name; image archives have names of their own. toolctl
reads a directory itself, as the user who runs it and without other file systems
mounted below it; owners are kept.`

func newImageImportCommand(a *app) *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "import FILE|DIR|-",
		Short: "Make an image from an archive or a root filesystem",
		Long:  importLong,
		Example: `  docker save tools:1 | toolctl image import -
  toolctl image import rootfs.tar.zst --name tools:1
  toolctl image import /srv/chroot --name tools:1`,
		RunE: func(c *cobra.Command, args []string) error {
			made, err := importImage(c.Context(), a, args[0], name)
			if err != nil {
				return fmt.Errorf("import %s: %w", args[0], err)
			}
			return printImage(a, made)
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the image, such as tools:1")
	return c
}

func importImage(ctx context.Context, a *app, from, name string) (*client.Image, error) {
	archive, err := openArchive(a, from)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	progress := a.progress("importing " + line(from))
	defer progress.stop()
	return a.client().ImportImage(ctx, name, &countedReader{from: archive, tell: func(sent int64) {
		progress.set(fmt.Sprintf("importing %s: %s sent", line(from), bytesShort(sent)))
	}})
}

// openArchive opens a file, or makes an archive of a directory while it is read.
func openArchive(a *app, from string) (io.ReadCloser, error) {
	if from == "-" {
		return io.NopCloser(a.stdin), nil
	}
	info, err := os.Stat(from)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openTree(from)
	}
	return openRegular(from)
}

// countedReader tells how much has been read.
type countedReader struct {
	from io.Reader
	tell func(int64)
	n    atomic.Int64
}

// Read implements io.Reader.
func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.tell(r.n.Add(int64(n)))
	return n, err
}
