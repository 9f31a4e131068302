package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/toold/toold/client"
)

// layout is an archive of an OCI image layout: files by digest, and an index. It is a source.
type layout struct{ *archive }

// blob gives a file by its digest, which was checked.
func (l layout) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	r, err := l.get("blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex)
	return io.NopCloser(r), err
}

func (l layout) manifest(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	return l.blob(ctx, d)
}

// isLayout reports whether this is a layout: there is a file that says so.
func isLayout(a *archive) (bool, error) {
	raw, err := a.read("oci-layout", 4096)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var marker struct {
		Version string `json:"imageLayoutVersion"`
	}
	if json.Unmarshal(raw, &marker) != nil || marker.Version == "" {
		return false, nil
	}
	if marker.Version != "1.0.0" {
		return false, fmt.Errorf("%w: it is an OCI layout of version %q, and only 1.0.0 is known", ErrInvalid, quotable(marker.Version))
	}
	return true, nil
}

// Annotations by which layouts name their images: the whole name, or a name or
// only a tag.
const (
	annotationName = "io.containerd.image.name"
	annotationRef  = "org.opencontainers.image.ref.name"
)

// importLayout makes an image of a layout.
func (s *Store) importLayout(ctx context.Context, l layout, name string, progress progressFunc) (*client.Image, error) {
	raw, err := l.read("index.json", s.limits.ConfigBytes)
	if err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	d, err := parseDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	chosen, names, err := onlyFromIndex(d.Manifests)
	if err != nil {
		return nil, err
	}
	if names, err = importNames(name, names); err != nil {
		return nil, err
	}
	if raw, err = s.readSmall(ctx, l.manifest, chosen); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", chosen.Digest, err)
	}
	r, err := s.resolve(ctx, l, raw, chosen.Digest.String())
	if err != nil {
		return nil, err
	}
	return s.build(ctx, r, names, progress)
}

// onlyFromIndex gives the manifest of the only image in the index of a layout, with
// the image's names. Entries of one name are one image for several platforms.
func onlyFromIndex(list []v1.Descriptor) (v1.Descriptor, []string, error) {
	var offers []offer
	var entries [][]v1.Descriptor // of each offer
	for _, d := range list {
		o := offer{digest: d.Digest.String()}
		if n := annotatedName(d); n != "" {
			o.names = []string{n}
		}
		if last := len(offers) - 1; last >= 0 && annotatedName(d) == annotatedName(entries[last][0]) && d.Platform != nil {
			entries[last] = append(entries[last], d)
			continue
		}
		offers, entries = append(offers, o), append(entries, []v1.Descriptor{d})
	}
	names, err := only(offers)
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	d, err := choosePlatform(entries[0])
	return d, names, err
}

// annotatedName is the name that a layout gives an image; it may be "".
func annotatedName(d v1.Descriptor) string {
	for _, key := range []string{annotationName, annotationRef} {
		if n := d.Annotations[key]; n != "" {
			return n
		}
	}
	return ""
}
