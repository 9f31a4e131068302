package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/toold/toold/client"
)

// Import implements session.Images. It makes an image from an OCI archive, from what
// `docker save` writes, or from a tar archive of a root filesystem, each as it is or
// compressed with gzip or zstd; which of them it is follows from the content. name may be
// empty where the archive says names. The whole of r is read, and stored until it is clear
// what it is.
func (s *Store) Import(ctx context.Context, name string, r io.Reader) (*client.Image, error) {
	return s.importing(ctx, name, r, func(client.ImageProgress) {})
}

func (s *Store) importing(ctx context.Context, name string, r io.Reader, progress progressFunc) (*client.Image, error) {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	img, err := s.importStream(ctx, r, name, progress)
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", orArchive(name), err)
	}
	return img, nil
}

func orArchive(name string) string {
	if name == "" {
		return "the archive"
	}
	return quotable(name)
}

// importStream stores what comes and looks what it is.
func (s *Store) importStream(ctx context.Context, r io.Reader, name string, progress progressFunc) (*client.Image, error) {
	sp, err := s.receive(ctx, r, progress)
	if err != nil {
		return nil, err
	}
	defer sp.Close()
	a, err := openArchive(sp.File, sp.size)
	if err != nil {
		return nil, err
	}
	if list, ok := a.saved(s.limits); ok {
		return s.importSaved(ctx, a, list, name, progress)
	}
	ok, err := isLayout(a)
	if err != nil {
		return nil, err
	}
	if ok {
		return s.importLayout(ctx, layout{a}, name, progress)
	}
	return s.importPlain(ctx, sp, name, progress)
}

// spooled is what was received: a file that nobody else has.
type spooled struct {
	*os.File
	size   int64
	digest string
}

// receive stores what comes, uncompressed.
func (s *Store) receive(ctx context.Context, r io.Reader, progress progressFunc) (*spooled, error) {
	if err := s.disk().check(); err != nil {
		return nil, err
	}
	f, err := s.spool()
	if err != nil {
		return nil, err
	}
	progress(client.ImageProgress{Stage: stageReceive})
	plain, err := expand(ctx, r, s.limits)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	defer plain.Close()
	d := digesting(plain, func(n int64) { progress(client.ImageProgress{Stage: stageReceive, Bytes: n}) })
	// Beyond the files there are headers.
	w := &guardedWriter{w: f, disk: s.disk(), max: s.limits.Bytes + s.limits.Entries<<10, what: "the archive"}
	if _, err := io.Copy(w, d); err != nil {
		return nil, errors.Join(diskError(err), f.Close())
	}
	return &spooled{f, d.n, d.digest()}, nil
}

// importPlain makes an image of an archive of a root filesystem. Its identity
// follows from the content alone.
func (s *Store) importPlain(ctx context.Context, sp *spooled, name string, progress progressFunc) (*client.Image, error) {
	names, err := importNames(name, nil)
	if err != nil {
		return nil, err
	}
	hash, err := v1.NewHash(sp.digest)
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH,
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{hash}},
	})
	if err != nil {
		return nil, err
	}
	r := &recipe{
		digest: digestOf(config),
		layers: []layer{{size: sp.size, stored: io.NewSectionReader(sp, 0, sp.size)}},
	}
	if err := s.complete(r, config); err != nil {
		return nil, err
	}
	return s.build(ctx, r, names, progress)
}
