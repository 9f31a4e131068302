// Package local gives sessions the images that the daemon keeps itself, as root
// filesystems. Its errors are those of package image.
package local

import (
	"context"
	"io"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/image"
	"github.com/toold/toold/internal/sandbox"
)

// Images are those of one store. It implements session.Images.
type Images struct{ store *image.Store }

// New makes Images of a store, which stays the caller's to close.
func New(s *image.Store) *Images { return &Images{s} }

// List implements session.Images.
func (i *Images) List(ctx context.Context) ([]client.Image, error) {
	all, err := i.store.List(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]client.Image, len(all))
	for n := range all {
		list[n] = *shown(&all[n])
	}
	return list, nil
}

// Pull implements session.Images. It logs in nowhere: credentials of the user that the
// daemon runs as are not for everything that an admin of toold asks for.
func (i *Images) Pull(ctx context.Context, r client.ImagePull, progress func(client.ImageProgress)) (*client.Image, error) {
	made, err := i.store.Pull(ctx, r.Ref, image.PullOptions{
		PlainHTTP: r.Insecure,
		Progress: func(p image.Progress) {
			progress(client.ImageProgress{Stage: string(p.Stage), Layer: p.Layer, Layers: p.Layers, Bytes: p.Bytes, Total: p.Total})
		},
	})
	if err != nil {
		return nil, err
	}
	return shown(made), nil
}

// Import implements session.Images.
func (i *Images) Import(ctx context.Context, name string, archive io.Reader) (*client.Image, error) {
	made, err := i.store.Import(ctx, archive, name, image.ImportOptions{})
	if err != nil {
		return nil, err
	}
	return shown(made), nil
}

// Remove implements session.Images.
func (i *Images) Remove(ctx context.Context, ref string) error {
	return i.store.Remove(ctx, ref)
}

// Acquire implements session.Images.
func (i *Images) Acquire(_ context.Context, ref string) (*sandbox.HeldImage, error) {
	held, err := i.store.Acquire(ref)
	if err != nil {
		return nil, err
	}
	img := &held.Image
	return &sandbox.HeldImage{
		Name: ref, Digest: img.Digest, Env: img.Env, Release: held.Release,
		Root: &sandbox.Root{Dir: held.Dir, Digest: img.Digest, Env: img.Env},
	}, nil
}

func shown(i *image.Image) *client.Image {
	v := &client.Image{
		Digest: i.Digest, Names: append([]string{}, i.Names...), Size: client.Size(i.Size), Files: i.Files, Architecture: i.Architecture,
	}
	if !i.Created.IsZero() {
		v.Created = &i.Created
	}
	if !i.Added.IsZero() {
		v.Added = &i.Added
	}
	return v
}
