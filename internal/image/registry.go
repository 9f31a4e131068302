package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/toold/toold/client"
)

// pullTimeout bounds a whole pull, also from a registry that sends one byte at a time.
const pullTimeout = 2 * time.Hour

// Pull implements session.Images. It gets an image from a registry, for this host's
// platform, and gives it the name that was asked for. It logs in nowhere: credentials of the
// user that the daemon runs as are not for everything that an admin asks for. What is here
// already is not transferred again. A name with a digest is taken by its word: any other
// content is refused.
func (s *Store) Pull(ctx context.Context, r client.ImagePull, progress func(client.ImageProgress)) (*client.Image, error) {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeoutCause(ctx, pullTimeout, fmt.Errorf("%w: it takes longer than %v", ErrRegistry, pullTimeout))
	defer cancel()
	img, err := s.pull(ctx, r, progress)
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", quotable(r.Ref), err)
	}
	return img, nil
}

func (s *Store) pull(ctx context.Context, given client.ImagePull, progress progressFunc) (*client.Image, error) {
	var parsing []name.Option
	if given.Insecure {
		parsing = append(parsing, name.Insecure)
	}
	ref, err := parseName(given.Ref, parsing...)
	if err != nil {
		return nil, err
	}
	progress(client.ImageProgress{Stage: stageResolve})
	src, err := newRegistry(ref, newWire(ref.Context().RegistryStr(), given.Insecure, s.stall))
	if err != nil {
		return nil, err
	}
	defer src.close()
	raw, digest, err := src.root(ctx)
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > s.limits.ConfigBytes {
		return nil, fmt.Errorf("%w: its manifest has %d bytes, and may have %d", ErrTooLarge, len(raw), s.limits.ConfigBytes)
	}
	r, err := s.resolve(ctx, src, raw, digest)
	if err != nil {
		return nil, err
	}
	return s.build(ctx, r, []string{familiar(ref)}, progress)
}

// registry is a source: one repository of a registry.
type registry struct {
	ref    name.Reference
	repo   name.Repository
	puller *remote.Puller
	wire   *wire
}

func newRegistry(ref name.Reference, w *wire) (*registry, error) {
	g := &registry{ref: ref, repo: ref.Context(), wire: w}
	var err error
	g.puller, err = remote.NewPuller(
		remote.WithTransport(g.wire),
		remote.WithUserAgent("toold"),
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: attempts}),
	)
	return g, err
}

func (g *registry) close() { g.wire.close() }

// root gives the document that the reference names, with its digest.
func (g *registry) root(ctx context.Context) ([]byte, string, error) {
	d, err := g.puller.Get(ctx, g.ref)
	if err != nil {
		return nil, "", registryError(ctx, err)
	}
	got := digestOf(d.Manifest)
	if byDigest, ok := g.ref.(name.Digest); ok && got != byDigest.DigestStr() {
		return nil, "", fmt.Errorf("%w: got %s", ErrCorrupt, got)
	}
	return d.Manifest, got, nil
}

func (g *registry) manifest(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	m, err := g.puller.Get(ctx, g.repo.Digest(d.Digest.String()))
	if err != nil {
		return nil, registryError(ctx, err)
	}
	return io.NopCloser(bytes.NewReader(m.Manifest)), nil
}

func (g *registry) blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	l, err := g.puller.Layer(ctx, g.repo.Digest(d.Digest.String()))
	if err != nil {
		return nil, registryError(ctx, err)
	}
	r, err := l.Compressed()
	if err != nil {
		return nil, registryError(ctx, err)
	}
	return &registryBody{ctx: ctx, ReadCloser: r}, nil
}

// registryBody says of errors that they are the registry's.
type registryBody struct {
	io.ReadCloser
	ctx context.Context
}

func (b *registryBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = registryError(b.ctx, err)
	}
	return n, err
}

func registryError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		switch answer.StatusCode {
		case http.StatusNotFound:
			return fmt.Errorf("%w in the registry: %w", ErrNotFound, err)
		case http.StatusUnauthorized, http.StatusForbidden:
			return fmt.Errorf("%w: it refuses (status %d); check the name, and import what needs a login (docker pull, docker save): %w", ErrRegistry, answer.StatusCode, err)
		case http.StatusTooManyRequests:
			return fmt.Errorf("%w: it says that there are too many requests; try later: %w", ErrRegistry, err)
		}
	}
	return fmt.Errorf("%w: %w", ErrRegistry, err)
}
