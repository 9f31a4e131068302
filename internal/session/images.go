package session

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/image"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
)

// imageRef is what the session's row and JSON say: the name, and what it meant.
func imageRef(h *sandbox.HeldImage) string {
	if h.Name == "" || h.Name == h.Digest || strings.Contains(h.Name, "@") {
		return h.Digest
	}
	return h.Name + "@" + h.Digest
}

// refDigest is the digest in what ref gave.
func refDigest(ref string) string {
	if i := strings.LastIndexByte(ref, '@'); i >= 0 {
		return ref[i+1:]
	}
	return ref
}

// maxImageRef bounds the name of an image in bytes.
const maxImageRef = 512

// checkImage settles which image the session has.
func (dm *daemon) checkImage(r *client.SessionCreate, set *Settings, tenant string) error {
	if r.Image != "" && (len(r.Image) > maxImageRef || !plain.Printable(r.Image) || strings.ContainsRune(r.Image, ' ')) {
		return fault.In(fault.Invalid.Errorf("image %q: give the name of an image, or its digest; at most %d bytes", shown(r.Image), maxImageRef), "image")
	}
	r.Image = cmp.Or(r.Image, dm.cfg.Image)
	if r.Image != "" {
		return nil
	}
	if ten := set.Tenants[tenant]; set.RequireImage || ten.RequireImage {
		whose := "this daemon"
		if ten.RequireImage {
			whose = "tenant " + tenant
		}
		return fault.Forbidden.Errorf("sessions of %s must have an image (require_image), and this one names none", whose).
			Next("create it with an image; toolctl image list shows the images")
	}
	return nil
}

// runImage is the part of a session that keeps its image from being removed.
type runImage struct {
	nothing
	roster *roster
}

func (i runImage) claim(ctx context.Context, pl *plan) error {
	ref, images := pl.req.Image, i.roster.cfg.Images[pl.driver.Name()]
	if ref == "" || images == nil {
		pl.spec.Image = ref // the driver knows it, or refuses it
		return nil
	}
	held, err := images.Acquire(ctx, ref)
	if err != nil {
		return imageErrorIn(err, "image")
	}
	pl.image = held
	if held.Root == nil {
		pl.spec.Image = held.Digest
		return nil
	}
	pl.spec.Root, pl.req.Limits.Disk = held.Root, pl.disk
	return nil
}

// adopt acquires the image again. A session whose image is gone goes on as long as it can.
func (i runImage) adopt(ctx context.Context, s *Session) error {
	images := i.roster.cfg.Images[s.row.Driver]
	if s.row.Image == "" || images == nil {
		return nil
	}
	held, err := images.Acquire(ctx, refDigest(s.row.Image))
	if err != nil {
		s.log.Warn("the image of a live session is not there any more", "image", s.row.Image, "error", err)
		return nil
	}
	s.mu.Lock()
	s.image = held
	s.mu.Unlock()
	return nil
}

// close releases the image, unless something is left that may be using it: then only the
// next daemon lets go.
func (runImage) close(s *Session, _ ending, left error) ([]string, error) {
	s.mu.Lock()
	held := s.image
	if left == nil {
		s.image = nil
	}
	s.mu.Unlock()
	if held != nil && left == nil {
		held.Release()
	}
	return nil, nil
}

// ImageStore are the images that sessions can have, for those who manage them.
type ImageStore struct{ *daemon }

// images gives those of the default driver, for an admin if they are to change.
func (i *ImageStore) images(p auth.Principal, change bool) (Images, error) {
	if err := p.Whole(); err != nil {
		return nil, err
	}
	if change && !p.Admin {
		return nil, fault.Forbidden.Errorf("images are changed by admins only").
			Next("ask one to pull or import it; toolctl image list shows the images")
	}
	if err := i.Accepting(); err != nil && change {
		return nil, err
	}
	images := i.cfg.Images[i.cfg.Driver]
	if images == nil {
		return nil, fault.Invalid.Errorf("the driver %s has no images in this daemon", i.cfg.Driver).
			Next("leave the image out: the root filesystem is the configured one")
	}
	return images, nil
}

// imageErrors are what an admin can do something about, and what.
var imageErrors = []struct {
	err  error
	kind fault.Kind
	hint string
}{
	{image.ErrNotFound, fault.NotFound, "toolctl image list shows those that are here; an admin gets others with toolctl image pull or import"},
	{image.ErrInUse, fault.Conflict, "end the sessions that run it: toolctl session list"},
	{image.ErrTooLarge, fault.Invalid, "make a smaller one"},
	{image.ErrPlatform, fault.Invalid, "ask for one that was built for this host"},
	{image.ErrCorrupt, fault.Invalid, "get it again, from where it was made"},
	{image.ErrRefused, fault.Invalid, "build the image without it"},
	{image.ErrInvalid, fault.Invalid, "images are named like debian:12 or host/path@sha256:…; archives are those of docker save, of OCI, or a tar of a root file system"},
	{image.ErrNoSpace, fault.Overloaded, "remove images that nobody needs: toolctl image list, toolctl image rm"},
	{image.ErrRegistry, fault.Overloaded, "is its name right, and can the daemon's host reach it?"},
	{image.ErrClosed, fault.Overloaded, "the daemon is stopping; try again when it is back"},
}

// imageError is what a client sees of an error of package image; others are our own.
func imageError(err error) error {
	for _, e := range imageErrors {
		if errors.Is(err, e.err) {
			return e.kind.Errorf("%s", plain.Cut(plain.Line(err.Error()), maxImageError)).Next(e.hint)
		}
	}
	return err
}

// imageErrorIn is imageError of an image that a field of the request names.
func imageErrorIn(err error, field string) error {
	err = imageError(err)
	if errors.Is(err, fault.Invalid) || errors.Is(err, fault.NotFound) {
		return fault.In(err, field)
	}
	return err
}

// maxImageError bounds the text of an error in bytes, which may quote an image or
// a registry.
const maxImageError = 1000

// Images implements server.Images.
func (i *ImageStore) Images(ctx context.Context, p auth.Principal) ([]client.Image, error) {
	images, err := i.images(p, false)
	if err != nil {
		return nil, err
	}
	all, err := images.List(ctx)
	if err != nil {
		return nil, i.internal("list images", err)
	}
	return all, nil
}

// PullImage implements server.Images.
func (i *ImageStore) PullImage(ctx context.Context, p auth.Principal, r client.ImagePull, progress func(client.ImageProgress)) (*client.Image, error) {
	images, err := i.images(p, true)
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(client.ImageProgress) {}
	}
	made, err := images.Pull(ctx, r, progress)
	if err != nil {
		return nil, i.internal("pull image "+shown(r.Ref), imageErrorIn(err, "ref"))
	}
	i.log.Info("image pulled", "image", r.Ref, "digest", made.Digest, "uid", p.UID)
	return made, nil
}

// ImportImage implements server.Images.
func (i *ImageStore) ImportImage(ctx context.Context, p auth.Principal, name string, archive io.Reader) (*client.Image, error) {
	images, err := i.images(p, true)
	if err != nil {
		return nil, err
	}
	made, err := images.Import(ctx, name, archive)
	if err != nil {
		return nil, i.internal("import an image", imageError(err))
	}
	i.log.Info("image imported", "image", name, "digest", made.Digest, "uid", p.UID)
	return made, nil
}

// RemoveImage implements server.Images.
func (i *ImageStore) RemoveImage(ctx context.Context, p auth.Principal, ref string) error {
	images, err := i.images(p, true)
	if err != nil {
		return err
	}
	if err := images.Remove(ctx, ref); err != nil {
		return i.internal("remove image "+shown(ref), imageError(err))
	}
	i.log.Info("image removed", "image", ref, "uid", p.UID)
	return nil
}
