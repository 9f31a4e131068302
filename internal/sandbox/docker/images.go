package docker

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/image"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox"
)

// Images are those of the Engine, which keeps them itself. The methods may be called
// from any goroutine; errors that a client is to see are *fault.Error.
type Images struct{ d *Driver }

// Images gives the Engine's.
func (d *Driver) Images() *Images { return &Images{d} }

// List gives all images, sorted by their first name.
func (i *Images) List(ctx context.Context) ([]client.Image, error) {
	e := i.d.engine
	all, err := ask(ctx, e, askTime, "list images", func(ctx context.Context) ([]image.Summary, error) {
		return e.c.ImageList(ctx, image.ListOptions{})
	})
	if err != nil {
		return nil, unavailable(err)
	}
	list := make([]client.Image, 0, len(all))
	for _, s := range all {
		created := time.Unix(s.Created, 0).UTC()
		list = append(list, client.Image{Digest: s.ID, Names: names(s.RepoTags), Size: client.Size(s.Size), Created: &created})
	}
	slices.SortFunc(list, func(a, b client.Image) int { return strings.Compare(first(a.Names)+a.Digest, first(b.Names)+b.Digest) })
	return list, nil
}

// names leaves out what the Engine says of images without one.
func names(tags []string) []string {
	return slices.DeleteFunc(append([]string{}, tags...), func(t string) bool { return strings.HasPrefix(t, "<none>") })
}

func first(names []string) string {
	if len(names) == 0 {
		return "~"
	}
	return names[0]
}

// Pull makes the Engine get an image from its registry, by the rules of the Engine's
// own configuration. It logs in nowhere.
func (i *Images) Pull(ctx context.Context, r client.ImagePull, progress func(client.ImageProgress)) (*client.Image, error) {
	if r.Insecure {
		return nil, fault.In(fault.Invalid.Errorf("a Docker Engine asks registries over plain HTTP only where its own configuration lists them").
			Next("add it to insecure-registries of the Engine's daemon.json, and leave insecure out"), "insecure")
	}
	if err := i.d.engine.pull(ctx, r.Ref, progress); err != nil {
		return nil, unavailable(err)
	}
	return i.show(ctx, r.Ref)
}

// show looks at one image.
func (i *Images) show(ctx context.Context, ref string) (*client.Image, error) {
	img, err := i.d.engine.image(ctx, ref)
	if err != nil {
		return nil, imageError(ref, err)
	}
	v := &client.Image{Digest: img.ID, Names: names(img.RepoTags), Size: client.Size(img.Size), Architecture: img.Architecture}
	if t, err := time.Parse(time.RFC3339Nano, img.Created); err == nil {
		v.Created = &t
	}
	return v, nil
}

// loadTime bounds the reading of an archive.
const loadTime = 30 * time.Minute

// Import makes the Engine load an archive of docker save, or a form of it that it
// knows; name is an additional one.
func (i *Images) Import(ctx context.Context, name string, archive io.Reader) (*client.Image, error) {
	e := i.d.engine
	ref, err := ask(ctx, e, loadTime, "load an archive", func(ctx context.Context) (string, error) {
		r, err := e.c.ImageLoad(ctx, archive)
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		return loaded(r.Body)
	})
	if err != nil {
		return nil, fault.Invalid.Errorf("%w", err).
			Next("archives are those of docker save; a tar of a root file system becomes an image by docker import")
	}
	if name == "" {
		return i.show(ctx, ref)
	}
	err = e.do(ctx, askTime, "name an image", func(ctx context.Context) error { return e.c.ImageTag(ctx, ref, name) })
	if err != nil {
		return nil, fault.Invalid.Errorf("%w", err).Next("images are named like tools:1")
	}
	return i.show(ctx, name)
}

// loaded reads from the Engine's progress what it has loaded: the last that it names.
func loaded(r io.Reader) (string, error) {
	ref := ""
	err := eachLine(r, func(l line) {
		for _, prefix := range []string{"Loaded image: ", "Loaded image ID: "} {
			if found, ok := strings.CutPrefix(l.Stream, prefix); ok {
				ref = strings.TrimSpace(found)
			}
		}
	})
	if err == nil && ref == "" {
		err = errors.New("it says nothing of an image in it")
	}
	return ref, err
}

// Remove removes a name, and with its last one or by its digest the image, unless a
// container is made of it.
func (i *Images) Remove(ctx context.Context, ref string) error {
	e := i.d.engine
	if !isRef(ref) {
		return imageError(ref, errNotFound)
	}
	err := e.do(ctx, workTime, "remove image "+ref, func(ctx context.Context) error {
		_, err := e.c.ImageRemove(ctx, ref, image.RemoveOptions{PruneChildren: true})
		return err
	})
	if cerrdefs.IsConflict(err) {
		return fault.Conflict.Errorf("%w", err).Next("end the sessions and remove the containers that are made of it")
	}
	return imageError(ref, err)
}

// Acquire finds the image that ref means. The Engine itself does not remove what a
// container is made of. The image of the configuration is pulled if it is not there;
// what a session asks for is not.
func (i *Images) Acquire(ctx context.Context, ref string) (*sandbox.HeldImage, error) {
	img, err := i.d.imageOf(ctx, ref)
	if err != nil {
		return nil, imageError(ref, err)
	}
	return &sandbox.HeldImage{Name: ref, Digest: img.ID, Env: img.Config.Env, Release: func() {}}, nil
}

func imageError(ref string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNotFound):
		return fault.NotFound.Errorf("the Docker Engine has no image %s", ref).
			Next("toolctl image list shows those that it has; an admin gets others with toolctl image pull, or docker pull")
	case errors.Is(err, sandbox.ErrUnsupported):
		return fault.Invalid.Errorf("%w", err).Next("ask for another")
	}
	return unavailable(err)
}

// unavailable is an error of the Engine's as a client sees it.
func unavailable(err error) error {
	return fault.Overloaded.Errorf("%w", err).Next("try again when that is put right")
}
