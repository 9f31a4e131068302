package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// source is where manifests and blobs are: a registry or a layout. It may give
// any bytes; whoever reads checks them against the descriptor.
type source interface {
	manifest(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
	blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
}

// recipe is all that it takes to make an image.
type recipe struct {
	digest   string // of the configuration
	manifest string // digest; may be empty
	config   *v1.ConfigFile
	layers   []layer // in the order in which they are applied
}

// layer is one layer of a recipe.
type layer struct {
	size   int64  // as it is stored
	diffID string // digest of the tar stream

	// Where it is: in a file that nobody else can change, or somewhere else,
	// from where it has to be fetched and to have a digest, also as it is stored.
	stored *io.SectionReader
	open   func(context.Context) (io.ReadCloser, error)
	digest string
}

// document is what an index and a manifest consist of. Which of the two it is
// follows from the fields, since media types are claims and often missing.
type document struct {
	SchemaVersion int             `json:"schemaVersion"`
	Manifests     []v1.Descriptor `json:"manifests"`
	Config        *v1.Descriptor  `json:"config"`
	Layers        []v1.Descriptor `json:"layers"`
	FSLayers      json.RawMessage `json:"fsLayers"`
}

// maxDocument bounds the parts of a JSON document, by the commas between them: an
// empty part takes three bytes there, and a hundred in memory.
const maxDocument = 200_000

// decode decodes a manifest or a configuration.
func decode(raw []byte, v any) error {
	if bytes.Count(raw, []byte(",")) > maxDocument {
		return fmt.Errorf("%w: it has more than %d parts", ErrTooLarge, maxDocument)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

func parseDocument(raw []byte) (*document, error) {
	var d document
	if err := decode(raw, &d); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	switch {
	case d.FSLayers != nil || d.SchemaVersion == 1:
		return nil, fmt.Errorf("%w: its manifest has version 1 of the format, which proves nothing about the content; build or push it again", ErrInvalid)
	case d.Manifests != nil && (d.Config != nil || d.Layers != nil):
		// Two readers could take it for two different things.
		return nil, fmt.Errorf("%w: its manifest is an index as well as an image", ErrRefused)
	case d.Manifests == nil && d.Config == nil:
		return nil, fmt.Errorf("%w: its manifest is neither an index nor an image", ErrInvalid)
	}
	return &d, nil
}

// maxIndexDepth bounds indexes in indexes.
const maxIndexDepth = 4

// resolve follows a document to the image for this host. digest is the
// document's own, and is trusted.
func (s *Store) resolve(ctx context.Context, src source, raw []byte, digest string) (*recipe, error) {
	for range maxIndexDepth {
		d, err := parseDocument(raw)
		if err != nil {
			return nil, err
		}
		if d.Manifests == nil {
			return s.recipe(ctx, src, d, digest)
		}
		next, err := choosePlatform(d.Manifests)
		if err != nil {
			return nil, err
		}
		if raw, err = s.readSmall(ctx, src.manifest, next); err != nil {
			return nil, fmt.Errorf("manifest %s: %w", next.Digest, err)
		}
		digest = next.Digest.String()
	}
	return nil, fmt.Errorf("%w: it has indexes in indexes, more than %d", ErrRefused, maxIndexDepth)
}

// hostPlatform is what images must be for.
func hostPlatform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// choosePlatform gives the first manifest for this host. One without a platform
// is taken where it is the only one; its configuration tells.
func choosePlatform(list []v1.Descriptor) (v1.Descriptor, error) {
	if len(list) == 1 && list[0].Platform == nil {
		return list[0], nil
	}
	var offered []string
	for _, d := range list {
		if d.Platform == nil {
			continue
		}
		if d.Platform.Satisfies(hostPlatform()) {
			return d, nil
		}
		if len(offered) < 20 {
			offered = append(offered, quotable(d.Platform.String()))
		}
	}
	return v1.Descriptor{}, fmt.Errorf("%w: this host is %s, and there is %q", ErrPlatform, hostPlatform(), strings.Join(offered, ", "))
}

// readSmall reads a manifest or a configuration, and checks its digest.
func (s *Store) readSmall(ctx context.Context, open func(context.Context, v1.Descriptor) (io.ReadCloser, error), d v1.Descriptor) ([]byte, error) {
	if err := checkDescriptor(d); err != nil {
		return nil, err
	}
	if d.Size > s.limits.ConfigBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, and may have %d", ErrTooLarge, d.Size, s.limits.ConfigBytes)
	}
	r, err := open(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	raw, err := io.ReadAll(io.LimitReader(&countingReader{ctx: ctx, r: r}, d.Size+1))
	if got := digestOf(raw); err == nil && got != d.Digest.String() {
		return nil, fmt.Errorf("%w: got %s", ErrCorrupt, got)
	}
	return raw, err
}

func checkDescriptor(d v1.Descriptor) error {
	switch {
	case !digestPattern.MatchString(d.Digest.String()):
		return fmt.Errorf("%w: digest %q is not of the kind sha256", ErrInvalid, quotable(d.Digest.String()))
	case d.Size < 0:
		return fmt.Errorf("%w: its size is negative", ErrInvalid)
	}
	return nil
}

// recipe reads what a manifest names.
func (s *Store) recipe(ctx context.Context, src source, d *document, digest string) (*recipe, error) {
	raw, err := s.readSmall(ctx, src.blob, *d.Config)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", d.Config.Digest, err)
	}
	r := &recipe{digest: d.Config.Digest.String(), manifest: digest}
	for _, l := range d.Layers {
		if err := checkDescriptor(l); err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.Digest, err)
		}
		r.layers = append(r.layers, layer{
			digest: l.Digest.String(), size: l.Size,
			open: func(ctx context.Context) (io.ReadCloser, error) { return src.blob(ctx, l) },
		})
	}
	return r, s.complete(r, raw)
}

// complete adds the configuration to a recipe, and judges the whole.
func (s *Store) complete(r *recipe, rawConfig []byte) error {
	r.config = &v1.ConfigFile{}
	if err := decode(rawConfig, r.config); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := checkConfig(r.config); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	ids := r.config.RootFS.DiffIDs
	switch {
	case len(r.layers) == 0:
		return fmt.Errorf("%w: it has no layers; is it an image of something else than a file system?", ErrInvalid)
	case len(ids) != len(r.layers):
		return fmt.Errorf("%w: it has %s, and its configuration speaks of %d", ErrInvalid, plain.Count(len(r.layers), "layer", "layers"), len(ids))
	case len(ids) > s.limits.Layers:
		return fmt.Errorf("%w: it has %d layers, and may have %d", ErrTooLarge, len(ids), s.limits.Layers)
	}
	var sum int64
	for i := range r.layers {
		r.layers[i].diffID = ids[i].String()
		if r.layers[i].size > s.limits.Bytes-sum {
			return fmt.Errorf("%w: its layers have more than %d bytes", ErrTooLarge, s.limits.Bytes)
		}
		sum += r.layers[i].size
	}
	return nil
}

// maxWords bounds what the configuration says of environment and command: it all
// ends up as arguments of execve, of which 128 KiB is the least that fits.
const maxWords = 128 << 10

func checkConfig(c *v1.ConfigFile) error {
	if c.OS != "" && c.OS != "linux" || c.Architecture != "" && c.Architecture != runtime.GOARCH {
		return fmt.Errorf("%w: it is for %s/%s, and this host is %s", ErrPlatform, quotable(c.OS), quotable(c.Architecture), hostPlatform())
	}
	total := 0
	for _, words := range [][]string{c.Config.Env, c.Config.Entrypoint, c.Config.Cmd, {c.Config.WorkingDir, c.Config.User}} {
		for _, w := range words {
			if strings.IndexByte(w, 0) >= 0 {
				return fmt.Errorf("%w: %q holds a NUL byte", ErrRefused, quotable(w))
			}
			total += len(w) + 1
		}
	}
	if total > maxWords {
		return fmt.Errorf("%w: environment and command have %d bytes, and may have %d", ErrTooLarge, total, maxWords)
	}
	return nil
}

// describe is what the store tells of an image made by a recipe.
func (r *recipe) describe(found *survey) *Image {
	img := &Image{
		Image:    client.Image{Digest: r.digest, Size: client.Size(found.size), Files: found.files, Architecture: runtime.GOARCH},
		Manifest: r.manifest, Env: variables(r.config.Config.Env),
	}
	if t := r.config.Created.UTC(); !t.IsZero() {
		img.Created = &t
	}
	return img
}

// variables leaves out what is no KEY=value.
func variables(env []string) []string {
	var list []string
	for _, kv := range env {
		if key, _, ok := strings.Cut(kv, "="); ok && key != "" {
			list = append(list, kv)
		}
	}
	return list
}
