package session

import (
	"context"
	"errors"
	"io"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/image"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
)

// ImageStore is Images of root filesystems that the daemon keeps itself.
type ImageStore struct{ store *image.Store }

// NewImageStore makes Images of a store, which stays the caller's to close.
func NewImageStore(s *image.Store) *ImageStore { return &ImageStore{s} }

// List implements Images.
func (i *ImageStore) List(ctx context.Context) ([]client.Image, error) {
	all, err := i.store.List(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]client.Image, len(all))
	for n := range all {
		list[n] = *shownImage(&all[n])
	}
	return list, nil
}

// Pull implements Images. It logs in nowhere: credentials of the user that the
// daemon runs as are not for everything that an admin of toold asks for.
func (i *ImageStore) Pull(ctx context.Context, r client.ImagePull, progress func(client.ImageProgress)) (*client.Image, error) {
	made, err := i.store.Pull(ctx, r.Ref, image.PullOptions{
		PlainHTTP: r.Insecure,
		Progress: func(p image.Progress) {
			progress(client.ImageProgress{Stage: string(p.Stage), Layer: p.Layer, Layers: p.Layers, Bytes: p.Bytes, Total: p.Total})
		},
	})
	if err != nil {
		return nil, imageError(err)
	}
	return shownImage(made), nil
}

// Import implements Images.
func (i *ImageStore) Import(ctx context.Context, name string, archive io.Reader) (*client.Image, error) {
	made, err := i.store.Import(ctx, archive, name, image.ImportOptions{})
	if err != nil {
		return nil, imageError(err)
	}
	return shownImage(made), nil
}

// Remove implements Images.
func (i *ImageStore) Remove(ctx context.Context, ref string) error {
	return imageError(i.store.Remove(ctx, ref))
}

// Acquire implements Images.
func (i *ImageStore) Acquire(_ context.Context, ref string) (*sandbox.HeldImage, error) {
	held, err := i.store.Acquire(ref)
	if err != nil {
		return nil, imageError(err)
	}
	img := &held.Image
	return &sandbox.HeldImage{
		Name: ref, Digest: img.Digest, Env: img.Env, Release: held.Release,
		Root: &sandbox.Root{Dir: held.Dir, Digest: img.Digest, Env: img.Env},
	}, nil
}

func shownImage(i *image.Image) *client.Image {
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

// imageErrors are what an admin can do something about, and what.
var imageErrors = []struct {
	err  error
	code client.Code
	hint string
}{
	{image.ErrNotFound, client.CodeNotFound, "toolctl image list shows those that are here; an admin gets others with toolctl image pull or import"},
	{image.ErrInUse, client.CodeConflict, "end the sessions that run it: toolctl session list"},
	{image.ErrTooLarge, client.CodeInvalidRequest, "make a smaller one"},
	{image.ErrPlatform, client.CodeInvalidRequest, "ask for one that was built for this host"},
	{image.ErrCorrupt, client.CodeInvalidRequest, "get it again, from where it was made"},
	{image.ErrRefused, client.CodeInvalidRequest, "build the image without it"},
	{image.ErrInvalid, client.CodeInvalidRequest, "images are named like debian:12 or host/path@sha256:…; archives are those of docker save, of OCI, or a tar of a root file system"},
	{image.ErrNoSpace, client.CodeOverloaded, "remove images that nobody needs: toolctl image list, toolctl image rm"},
	{image.ErrRegistry, client.CodeOverloaded, "is its name right, and can the daemon's host reach it?"},
	{image.ErrClosed, client.CodeOverloaded, "the daemon is stopping; try again when it is back"},
}

// imageError is what a client sees of an error of the store; others are our own.
func imageError(err error) error {
	for _, e := range imageErrors {
		if errors.Is(err, e.err) {
			return &client.Error{Code: e.code, Message: plain.Cut(plain.Line(err.Error()), maxImageError), Hint: e.hint}
		}
	}
	return err
}

// maxImageError bounds the text of an error in bytes, which may quote an image or
// a registry.
const maxImageError = 1000
