package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"

	reference "github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
)

// Acquire holds the image that ref names until it is released: a name, the digest of the
// image or of its manifest, or a part of the image's digest of at least twelve digits, where
// that is unique. It cannot be removed so long. Who holds what is known to this process
// alone: a daemon that starts again acquires the images of the sessions that it takes over
// before it lets anybody remove one. It implements session.Images.
func (s *Store) Acquire(_ context.Context, ref string) (*sandbox.HeldImage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	digest, _, err := s.lookupLocked(ref)
	if err != nil {
		return nil, err
	}
	fd, err := beneath.Open(int(s.fd.Fd()), folder(digest)+"/"+rootfsDir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", digest, err)
	}
	dir, env := os.NewFile(uintptr(fd), rootfsDir), s.images[digest].Env
	s.images[digest].held++
	return &sandbox.HeldImage{
		Name: ref, Digest: digest, Env: env,
		Root: &sandbox.Root{Dir: dir, Digest: digest, Env: env},
		Release: sync.OnceFunc(func() {
			dir.Close()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.images[digest].held--
		}),
	}, nil
}

// lookupLocked finds the digest that ref means, and the name, if it was one.
func (s *Store) lookupLocked(ref string) (digest, name string, err error) {
	if digestPattern.MatchString(ref) {
		digest, err := s.digestLocked(ref)
		return digest, "", err
	}
	parsed, err := parseName(ref)
	if err != nil {
		return "", "", err
	}
	name = familiar(parsed)
	if digest, ok := s.names[name]; ok {
		return digest, name, nil
	}
	if byDigest, ok := parsed.(reference.Digest); ok {
		// Pulled under another name: it is the same nevertheless.
		digest, err := s.digestLocked(byDigest.DigestStr())
		return digest, "", err
	}
	if prefixPattern.MatchString(ref) {
		digest, err := s.prefixLocked(ref)
		return digest, "", err
	}
	return "", "", fmt.Errorf("%s: %w here; pull or import it", name, ErrNotFound)
}

// digestLocked finds an image by its own digest or its manifest's.
func (s *Store) digestLocked(digest string) (string, error) {
	if s.images[digest] != nil {
		return digest, nil
	}
	for own, img := range s.images {
		if img.Manifest == digest {
			return own, nil
		}
	}
	return "", fmt.Errorf("%s: %w here; pull or import it", digest, ErrNotFound)
}

func (s *Store) prefixLocked(ref string) (string, error) {
	prefix := "sha256:" + strings.TrimPrefix(ref, "sha256:")
	found := ""
	for digest := range s.images {
		switch {
		case !strings.HasPrefix(digest, prefix):
		case found != "":
			return "", fmt.Errorf("%s: %w: several begin so; write more of the digest", ref, ErrNotFound)
		default:
			found = digest
		}
	}
	if found == "" {
		return "", fmt.Errorf("%s: %w", ref, ErrNotFound)
	}
	return found, nil
}

// Remove implements session.Images. It removes an image, or only the name where it has others. An image that
// is held keeps its last name and is not removed: ErrInUse.
func (s *Store) Remove(ctx context.Context, ref string) error {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	trash, err := s.detach(ref)
	if err != nil || trash == "" {
		return err
	}
	// The image is gone by now; what is left is only space, and Open removes it
	// where this is not done. The names are written when that space is free: a
	// full disk, for which images are removed, has no room for them before. A
	// name that stays on the disk means nothing without its image.
	if err := errors.Join(beneath.RemoveAt(int(s.fd.Fd()), trash), s.saveNames()); err != nil {
		return fmt.Errorf("remove image %s: %w", ref, err)
	}
	return context.Cause(ctx)
}

// detach takes a name off its image, or an image out of the store; trash is then
// where its files are.
func (s *Store) detach(ref string) (trash string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest, name, err := s.lookupLocked(ref)
	if err != nil {
		return "", err
	}
	if all := s.imageLocked(digest).Names; name != "" && len(all) > 1 {
		names := maps.Clone(s.names)
		delete(names, name)
		return "", s.saveNamesLocked(names)
	}
	if n := s.images[digest].held; n > 0 {
		return "", fmt.Errorf("%s: %w by %s first", ref, ErrInUse, plain.Count(n, "session; end it", "sessions; end them"))
	}
	trash = tempName("rm")
	if err := s.dir.Rename(folder(digest), trash); err != nil {
		return "", err
	}
	delete(s.images, digest)
	maps.DeleteFunc(s.names, func(_, d string) bool { return d == digest })
	return trash, nil
}

func (s *Store) saveNames() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saveNamesLocked(s.names)
}
