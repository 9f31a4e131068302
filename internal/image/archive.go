package image

import (
	"archive/tar"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/toold/toold/client"
)

// maxParts bounds how many files of an archive are remembered. An archive of
// images has a few hundred; one with more is taken for a root filesystem.
const maxParts = 4096

// archive is an uncompressed tar archive in a file, with its files by name.
type archive struct {
	file  *os.File
	parts map[string]part
}

// part is a file of an archive, or a link to one.
type part struct {
	offset, size int64
	target       string // of a link, as a name in the archive; "" for a file
}

// openArchive looks through an archive. It may be of any kind.
func openArchive(f *os.File, size int64) (*archive, error) {
	a := &archive{file: f, parts: map[string]part{}}
	in := io.NewSectionReader(f, 0, size)
	r := tar.NewReader(in)
	for n := range maxParts {
		h, err := r.Next()
		if err == io.EOF && n == 0 {
			return nil, fmt.Errorf("%w: it is empty", ErrInvalid)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: it is not a tar archive, or it is damaged (give an OCI archive, the output of docker save or a root filesystem, plain or compressed with gzip or zstd): %w", ErrInvalid, err)
		}
		name := path.Clean(h.Name)
		if len(name) > maxName || len(h.Linkname) > maxName {
			continue // no part of an archive of images has such a name
		}
		switch h.Typeflag {
		case tar.TypeReg:
			// The reader reads whole blocks only, so this is where the content is.
			offset, err := in.Seek(0, io.SeekCurrent)
			if err != nil {
				return nil, err
			}
			if h.Size <= size-offset {
				a.parts[name] = part{offset: offset, size: h.Size}
			}
		case tar.TypeSymlink: // to a layer that two images share
			a.parts[name] = part{target: path.Join(path.Dir(name), h.Linkname)} //nolint:gosec // a key of the map, never a path
		case tar.TypeLink:
			a.parts[name] = part{target: path.Clean(h.Linkname)}
		}
	}
	return a, nil
}

// get gives a file of the archive. One link is followed, not several.
func (a *archive) get(name string) (*io.SectionReader, error) {
	p, ok := a.parts[path.Clean(name)]
	if ok && p.target != "" {
		p, ok = a.parts[p.target]
	}
	if !ok || p.target != "" {
		return nil, fmt.Errorf("%w: %q is not in the archive: %w", ErrInvalid, quotable(name), fs.ErrNotExist)
	}
	return io.NewSectionReader(a.file, p.offset, p.size), nil
}

// read gives a small file of the archive.
func (a *archive) read(name string, max int64) ([]byte, error) {
	r, err := a.get(name)
	if err != nil {
		return nil, err
	}
	if r.Size() > max {
		return nil, fmt.Errorf("%w: it has %d bytes, and may have %d", ErrTooLarge, r.Size(), max)
	}
	return io.ReadAll(r)
}

// savedImage is an entry of manifest.json, the list that docker save writes.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// saved gives the list of an archive by docker save; ok is false if it is none.
// A root filesystem may hold any manifest.json, so its form decides.
func (a *archive) saved(l Limits) (list []savedImage, ok bool) {
	raw, err := a.read("manifest.json", l.ConfigBytes)
	if err != nil || decode(raw, &list) != nil || len(list) == 0 {
		return nil, false
	}
	for _, i := range list {
		if _, err := a.get(i.Config); err != nil || len(i.Layers) == 0 {
			return nil, false
		}
	}
	return list, true
}

// importSaved makes an image of what docker save wrote.
func (s *Store) importSaved(ctx context.Context, a *archive, list []savedImage, name string, progress progressFunc) (*client.Image, error) {
	var offers []offer
	for _, i := range list {
		offers = append(offers, offer{names: i.RepoTags, digest: claimedDigest(i.Config)})
	}
	names, err := only(offers)
	if err != nil {
		return nil, err
	}
	if names, err = importNames(name, names); err != nil {
		return nil, err
	}
	r, err := s.savedRecipe(a, list[0])
	if err != nil {
		return nil, err
	}
	return s.build(ctx, r, names, progress)
}

var hexDigest = regexp.MustCompile(`[0-9a-f]{64}`)

// claimedDigest is what the name of a file says about its content; it may be "".
func claimedDigest(file string) string {
	if h := hexDigest.FindString(path.Base(file)); h != "" {
		return "sha256:" + h
	}
	return ""
}

func (s *Store) savedRecipe(a *archive, i savedImage) (*recipe, error) {
	config, err := a.read(i.Config, s.limits.ConfigBytes)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	r := &recipe{digest: digestOf(config)}
	if claimed := claimedDigest(i.Config); claimed != "" && claimed != r.digest {
		return nil, fmt.Errorf("configuration %s: %w: got %s", claimed, ErrCorrupt, r.digest)
	}
	for _, file := range i.Layers {
		content, err := a.get(file)
		if err != nil {
			return nil, fmt.Errorf("layer %q: %w", quotable(file), err)
		}
		r.layers = append(r.layers, layer{size: content.Size(), stored: content})
		if len(r.layers) > s.limits.Layers {
			break // complete says it
		}
	}
	return r, s.complete(r, config)
}

// offer is one of the images of an archive.
type offer struct {
	names  []string
	digest string // may be empty
}

// only gives the names of the only image of an archive, which is there as often as
// it has names, in archives of some tools.
func only(offers []offer) ([]string, error) {
	if len(offers) == 0 {
		return nil, fmt.Errorf("%w: it holds no image", ErrInvalid)
	}
	var names, labels []string
	several := false
	for _, o := range offers {
		several = several || o.digest == "" || o.digest != offers[0].digest
		names = append(names, o.names...)
		if len(labels) < 20 {
			labels = append(labels, quotable(cmp.Or(strings.Join(o.names, " "), o.digest)))
		}
	}
	if several && len(offers) > 1 {
		return nil, fmt.Errorf("%w: it holds several images, %q, and can be imported only with one: save that alone", ErrInvalid, labels)
	}
	return names, nil
}
