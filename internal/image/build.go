package image

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/plain"
)

// tempName is a new name in tmp/.
func tempName(kind string) string { return filepath.Join(tmpDir, kind+"-"+rand.Text()) }

// spool makes a file without a name: it is gone when it is closed, or when the
// process is killed.
func (s *Store) spool() (*os.File, error) {
	name := tempName("spool")
	f, err := s.dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, diskError(err)
	}
	if err := s.dir.Remove(name); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (s *Store) disk() disk { return disk{int(s.fd.Fd()), s.room} }

// build makes an image by a recipe and gives it names, unless it is there, when
// it only gets the names.
func (s *Store) build(ctx context.Context, r *recipe, names []string, progress progressFunc) (*client.Image, error) {
	done, err := s.turns.Take(ctx, r.digest)
	if err != nil {
		return nil, err
	}
	defer done()
	if img, ok, err := s.adopt(r.digest, names); ok {
		return img, err
	}
	free, err := s.job(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	staging := tempName("new")
	staged, err := s.stage(ctx, r, staging, progress)
	var img *client.Image
	if err == nil {
		progress(client.ImageProgress{Stage: stageCommit, Layers: len(r.layers)})
		img, err = s.commit(ctx, staged, staging, names)
	}
	if err != nil {
		return nil, errors.Join(err, beneath.RemoveAt(int(s.fd.Fd()), staging))
	}
	s.log.Info("image added", "digest", img.Digest, "names", img.Names, "bytes", img.Size, "files", img.Files)
	return img, nil
}

// adopt names an image that is in the store already; ok says whether it is.
func (s *Store) adopt(digest string, names []string) (img *client.Image, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.images[digest] == nil {
		return nil, false, nil
	}
	if err := s.nameLocked(digest, names); err != nil {
		return nil, true, err
	}
	return s.imageLocked(digest), true, nil
}

func (s *Store) nameLocked(digest string, names []string) error {
	all := maps.Clone(s.names)
	for _, n := range names {
		all[n] = digest
	}
	if maps.Equal(all, s.names) {
		return nil
	}
	return s.saveNamesLocked(all)
}

// stage makes the image in a directory of tmp/.
func (s *Store) stage(ctx context.Context, r *recipe, staging string, progress progressFunc) (*Image, error) {
	b := &budget{limits: s.limits, disk: s.disk()}
	if err := b.disk.check(); err != nil {
		return nil, err
	}
	rootfs := filepath.Join(staging, rootfsDir)
	if err := s.dir.MkdirAll(rootfs, 0o700); err != nil {
		return nil, diskError(err)
	}
	dir, err := s.dir.Open(rootfs)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := dir.Chmod(0o755); err != nil {
		return nil, err
	}
	u, err := newUnpacker(int(dir.Fd()), b)
	if err != nil {
		return nil, err
	}
	defer u.close()
	for i := range r.layers {
		tell := func(stage string, bytes, total int64) {
			progress(client.ImageProgress{Stage: stage, Layer: i + 1, Layers: len(r.layers), Bytes: bytes, Total: total})
		}
		if err := s.addLayer(ctx, u, &r.layers[i], tell); err != nil {
			return nil, fmt.Errorf("layer %d of %d: %w", i+1, len(r.layers), err)
		}
	}
	found, err := surveyTree(int(dir.Fd()), ".")
	if err != nil {
		return nil, err
	}
	return r.describe(found), nil
}

// addLayer fetches a layer, checks it, and unpacks it.
func (s *Store) addLayer(ctx context.Context, u *unpacker, l *layer, tell func(string, int64, int64)) error {
	content := l.stored
	if content == nil {
		f, err := s.spool()
		if err != nil {
			return err
		}
		defer f.Close()
		if err := s.download(ctx, f, l, func(n int64) { tell(stageDownload, n, l.size) }); err != nil {
			return err
		}
		content = io.NewSectionReader(f, 0, l.size)
	}
	tell(stageUnpack, 0, 0)
	plain, err := expand(ctx, content, s.limits)
	if err != nil {
		return err
	}
	defer plain.Close()
	stream := digesting(plain, func(n int64) { tell(stageUnpack, n, 0) })
	if err := u.apply(ctx, stream, ratioGrace+l.size*s.limits.Ratio); err != nil {
		return err
	}
	// What follows the end of the archive belongs to the digest too.
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return tarError(ctx, err)
	}
	if got := stream.digest(); got != l.diffID {
		return fmt.Errorf("%w: the configuration says %s of its content, which has %s", ErrCorrupt, quotable(l.diffID), got)
	}
	tell(stageUnpack, stream.n, stream.n)
	return nil
}

// attempts is how often a download is begun; connections break.
const attempts = 3

// download stores a layer in f, and checks it.
func (s *Store) download(ctx context.Context, f *os.File, l *layer, tell func(int64)) error {
	var err error
	for range attempts {
		if err = s.downloadOnce(ctx, f, l, tell); !errors.Is(err, ErrRegistry) || ctx.Err() != nil {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
	return err
}

func (s *Store) downloadOnce(ctx context.Context, f *os.File, l *layer, tell func(int64)) error {
	tell(0)
	r, err := l.open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	// One byte more than there should be, to notice if there are more.
	d := digesting(io.LimitReader(&countingReader{ctx: ctx, r: r}, l.size+1), tell)
	w := &guardedWriter{w: f, disk: s.disk(), max: s.limits.Bytes, what: "the layer"}
	if _, err = io.Copy(w, d); err != nil && d.n < l.size {
		return diskError(err)
	}
	// A reader that checks digests itself fails at the end, in its own words.
	if got := d.digest(); got != l.digest || d.n != l.size {
		return fmt.Errorf("%w: got %s with %s instead of %s with %d", ErrCorrupt, got, plain.Count(d.n, "byte", "bytes"), l.digest, l.size)
	}
	return nil
}

// commit makes a staged image one of the store's. All of it is on the disk
// before it has its place, so a place means a complete image.
func (s *Store) commit(ctx context.Context, img *Image, staging string, names []string) (*client.Image, error) {
	now := s.now().UTC()
	img.Added = &now
	raw, err := json.MarshalIndent(img, "", "\t")
	if err != nil {
		return nil, err
	}
	if err := s.writeFile(filepath.Join(staging, configFile), raw); err != nil {
		return nil, diskError(err)
	}
	// One call for all files: an fsync for each takes minutes.
	if err := unix.Syncfs(int(s.fd.Fd())); err != nil {
		return nil, fmt.Errorf("write to the disk: %w", diskError(err))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // ctx hears of it a moment later
		return nil, ErrClosed
	}
	if err := s.dir.Rename(staging, folder(img.Digest)); err != nil {
		return nil, err
	}
	s.images[img.Digest] = &kept{Image: *img}
	if err := s.syncImages(); err != nil {
		return nil, err
	}
	if err := s.nameLocked(img.Digest, names); err != nil {
		return nil, err
	}
	return s.imageLocked(img.Digest), nil
}

func (s *Store) syncImages() error {
	dir, err := s.dir.Open(imagesDir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
