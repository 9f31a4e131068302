package server

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/plain"
)

// Images has the images that sessions of the default driver can run; only admins change
// them. *session.ImageStore implements it.
type Images interface {
	Images(ctx context.Context, p auth.Principal) ([]client.Image, error)
	// PullImage tells progress, which may be nil, from one goroutine; it must
	// return soon.
	PullImage(ctx context.Context, p auth.Principal, r client.ImagePull, progress func(client.ImageProgress)) (*client.Image, error)
	ImportImage(ctx context.Context, p auth.Principal, name string, archive io.Reader) (*client.Image, error)
	RemoveImage(ctx context.Context, p auth.Principal, ref string) error
}

// imageRoutes are the handlers of routes about images.
type imageRoutes struct{ *Server }

func (s imageRoutes) listImages(x *exchange, r *request) error {
	return x.answer(all(s.cfg.API.Images.Images(r.Context(), r.who)))
}

func (s imageRoutes) pullImage(x *exchange, r *request) error {
	var req client.ImagePull
	if err := s.decode(x, r, &req); err != nil {
		return err
	}
	if req.Ref == "" || wrongImage(req.Ref) != "" {
		return invalid(fmt.Sprintf("ref %q is not the name of an image: %s", plain.Cut(req.Ref, maxShown), wrongImage(req.Ref)), "such as debian:12")
	}
	release, err := s.stream(r)
	if err != nil {
		return err
	}
	defer release()
	if wantsEvents(r.Request) {
		return s.streamProgress(x, r, func(ctx context.Context, tell func(string, any)) (any, error) {
			return s.cfg.API.Images.PullImage(ctx, r.who, req, func(p client.ImageProgress) { tell("progress", p) })
		})
	}
	return x.answer(s.cfg.API.Images.PullImage(r.Context(), r.who, req, nil))
}

// importImage gives the body to the store as it arrives.
func (s imageRoutes) importImage(x *exchange, r *request) error {
	name := r.query.Get("name")
	if name != "" && wrongImage(name) != "" {
		return invalid(fmt.Sprintf("name=%q is not the name of an image: %s", plain.Cut(name, maxShown), wrongImage(name)), "such as tools:1")
	}
	if r.ContentLength > s.cfg.MaxImage {
		return s.imageTooLarge()
	}
	release, err := s.stream(r)
	if err != nil {
		return err
	}
	defer release()
	body := &uploadBody{
		s: s.Server, x: x, from: http.MaxBytesReader(x.ResponseWriter, r.Body, s.cfg.MaxImage), tooLarge: s.imageTooLarge,
	}
	made, err := s.cfg.API.Images.ImportImage(r.Context(), r.who, name, body)
	if body.err != nil {
		return body.err // why the import failed, whatever was made of it
	}
	if err != nil {
		return err
	}
	return s.reply(x, http.StatusOK, made)
}

func (s imageRoutes) imageTooLarge() error {
	return invalidStatus(http.StatusRequestEntityTooLarge, fmt.Sprintf("the archive is longer than %s", client.Size(s.cfg.MaxImage)),
		"import a smaller image, or pull it from a registry")
}

func (s imageRoutes) removeImage(x *exchange, r *request) error {
	if err := s.cfg.API.Images.RemoveImage(r.Context(), r.who, r.id); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// wrongImage says what is wrong with the name or the digest of an image, "" for
// nothing that the store does not know better.
func wrongImage(ref string) string { return wrong(ref, maxImage, "._-/:@") }

// maxImage bounds the name of an image in bytes.
const maxImage = 512
