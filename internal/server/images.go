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

func (s imageRoutes) pullImage(x *exchange, r *request, req client.ImagePull) error {
	if why := imageName.wrong(req.Ref); why != "" {
		return invalid(fmt.Sprintf("ref %q is not the name of an image: %s", plain.Cut(req.Ref, maxShown), why), "such as debian:12")
	}
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
	if why := imageName.wrong(name); name != "" && why != "" {
		return invalid(fmt.Sprintf("name=%q is not the name of an image: %s", plain.Cut(name, maxShown), why), "such as tools:1")
	}
	return s.upload(x, r, s.cfg.MaxImage, s.imageTooLarge, func(body io.Reader) (any, error) {
		return s.cfg.API.Images.ImportImage(r.Context(), r.who, name, body)
	})
}

func (s imageRoutes) imageTooLarge() error {
	return invalidStatus(http.StatusRequestEntityTooLarge, fmt.Sprintf("the archive is longer than %s", client.Size(s.cfg.MaxImage)),
		"import a smaller image, or pull it from a registry")
}

// Caches has what tenants keep of caches for later sessions. Holders of a session's token
// never reach it. What is not there is a fault.NotFound.
type Caches interface {
	ListCaches(ctx context.Context, p auth.Principal) (client.List[client.Cache], error)
	RemoveCache(ctx context.Context, p auth.Principal, name string) error
	// PromoteCache answers when the base is on the disk.
	PromoteCache(ctx context.Context, p auth.Principal, session, name string) (*client.Cache, error)
}

// cacheRoutes are the handlers of routes about caches.
type cacheRoutes struct{ *Server }

func (s cacheRoutes) list(x *exchange, r *request) error {
	return x.answer(page(s.cfg.API.Caches.ListCaches(r.Context(), r.who)))
}

func (s cacheRoutes) promote(x *exchange, r *request) error {
	return x.answer(s.cfg.API.Caches.PromoteCache(r.Context(), r.who, r.id, r.PathValue("cache")))
}
