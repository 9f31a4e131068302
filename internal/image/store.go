package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/crew"
)

// parallel bounds how many images are made at once. Others wait.
const parallel = 2

// The parts of the store's directory.
const (
	lockFile   = "lock"
	namesFile  = "names.json"
	imagesDir  = "images"
	tmpDir     = "tmp"
	rootfsDir  = "rootfs"
	configFile = "config.json"
)

// Store keeps images. All methods may be called from any goroutine.
type Store struct {
	limits Limits
	stall  time.Duration // how long a registry may send nothing at all
	room   func(bytes int64) error
	log    *slog.Logger
	dir    *os.Root // the store's directory
	fd     *os.File // the same, for what os.Root cannot do
	lock   *os.File
	now    func() time.Time

	turns crew.Turns    // by digest: two who want the same image make it once
	jobs  chan struct{} // full when as many images are being made as may be

	stopping context.Context // ended by Close
	stop     context.CancelCauseFunc
	running  sync.WaitGroup // operations; added to under mu

	// mu guards what follows, and names.json.
	mu     sync.Mutex
	closed bool
	images map[string]*kept  // by digest
	names  map[string]string // to digests
}

// kept is an image of the store, with the number of those who hold it.
type kept struct {
	Image
	held int
}

// Open opens the store in dir, makes it where there is none, and removes what an
// operation that was killed has left. The parent of dir must exist, and one file system
// holds all of it. It needs root: files of an image have the owners that the image gives
// them.
func Open(dir string, log *slog.Logger) (*Store, error) {
	s := &Store{
		limits: defaultLimits, log: log, now: time.Now, stall: 30 * time.Second,
		images: map[string]*kept{}, names: map[string]string{}, jobs: make(chan struct{}, parallel),
	}
	s.stopping, s.stop = context.WithCancelCause(context.Background())
	if err := s.open(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open image store %s: %w", dir, err), s.Close())
	}
	return s, nil
}

// AskRoom has room asked before so many bytes are written; its error is that of the operation. Without
// it an image is bounded by its limits and by the disk. It is called before the store is used.
func (s *Store) AskRoom(room func(bytes int64) error) { s.room = room }

func (s *Store) open(path string) error {
	if os.Geteuid() != 0 {
		return errors.New("images need root, for their files belong to several users")
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	var err error
	if s.dir, err = os.OpenRoot(path); err != nil {
		return err
	}
	if s.fd, err = s.dir.Open("."); err != nil {
		return err
	}
	// Whoever gets in here gets at programs and files of any owner.
	var st unix.Stat_t
	if err := unix.Fstat(int(s.fd.Fd()), &st); err != nil {
		return err
	}
	if st.Uid != 0 {
		return fmt.Errorf("it belongs to uid %d, and must belong to root", st.Uid)
	}
	if err := s.fd.Chmod(0o700); err != nil {
		return err
	}
	if err := s.takeLock(); err != nil {
		return err
	}
	if err := s.sweep(); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return s.load()
}

func (s *Store) takeLock() error {
	var err error
	s.lock, err = s.dir.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// sweep removes what was not finished, and makes the directories.
func (s *Store) sweep() error {
	if err := beneath.RemoveAt(int(s.fd.Fd()), tmpDir); err != nil {
		return err
	}
	for _, name := range []string{tmpDir, imagesDir} {
		if err := s.dir.Mkdir(name, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// load reads which images there are. One whose description cannot be read is
// removed: it can be had again, and nobody could say what it is.
func (s *Store) load() error {
	dir, err := s.dir.Open(imagesDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		img, err := s.readImage(e.Name())
		if err == nil {
			s.images[img.Digest] = &kept{Image: *img}
			continue
		}
		s.log.Warn("damaged image removed", "image", e.Name(), "error", err)
		if err := beneath.RemoveAt(int(dir.Fd()), e.Name()); err != nil {
			return err
		}
	}
	return s.loadNames()
}

// folder is an image's place in the store.
func folder(digest string) string {
	return filepath.Join(imagesDir, strings.Replace(digest, ":", "-", 1))
}

func (s *Store) readImage(name string) (*Image, error) {
	raw, err := s.dir.ReadFile(filepath.Join(imagesDir, name, configFile))
	if err != nil {
		return nil, err
	}
	img := &Image{}
	if err := json.Unmarshal(raw, img); err != nil {
		return nil, err
	}
	if !digestPattern.MatchString(img.Digest) || filepath.Base(folder(img.Digest)) != name {
		return nil, fmt.Errorf("it says that it is %q", img.Digest)
	}
	_, err = s.dir.Lstat(filepath.Join(imagesDir, name, rootfsDir))
	return img, err
}

// nameList is names.json.
type nameList struct {
	Names map[string]string `json:"names"`
}

func (s *Store) loadNames() error {
	raw, err := s.dir.ReadFile(namesFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var list nameList
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("%s: %w; remove it, and name the images anew by pulling or importing them", namesFile, err)
	}
	for name, digest := range list.Names {
		if s.images[digest] != nil {
			s.names[name] = digest
		}
	}
	return nil
}

// saveNamesLocked writes names.json; it is the old one or the new one whenever
// the machine stops.
func (s *Store) saveNamesLocked(names map[string]string) error {
	raw, err := json.MarshalIndent(nameList{names}, "", "\t")
	if err != nil {
		return err
	}
	tmp := filepath.Join(tmpDir, namesFile)
	if err := s.writeFile(tmp, raw); err != nil {
		return diskError(err)
	}
	if err := s.dir.Rename(tmp, namesFile); err != nil {
		return err
	}
	s.names = names
	return s.fd.Sync()
}

// writeFile writes a file of the store's own and waits until it is on the disk.
func (s *Store) writeFile(name string, content []byte) error {
	f, err := s.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// Close ends what is under way, waits for it, and lets go of the store. Held
// images stay usable.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop(ErrClosed)
	s.running.Wait()
	for _, f := range []*os.File{s.lock, s.fd} {
		if f != nil {
			f.Close()
		}
	}
	if s.dir != nil {
		return s.dir.Close()
	}
	return nil
}

// begin starts an operation, which ends with ctx and with the store. The
// function that it gives must be called at its end.
func (s *Store) begin(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, ErrClosed
	}
	s.running.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(s.stopping, func() { cancel(ErrClosed) })
	return ctx, func() { detach(); cancel(nil); s.running.Done() }, nil
}

// job waits for one of the places of those who make images.
func (s *Store) job(ctx context.Context) (func(), error) {
	select {
	case s.jobs <- struct{}{}:
		return func() { <-s.jobs }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// List implements session.Images: those with names first, in the order of their names.
func (s *Store) List(ctx context.Context) ([]client.Image, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	list := make([]client.Image, 0, len(s.images))
	for digest := range s.images {
		list = append(list, *s.imageLocked(digest))
	}
	slices.SortFunc(list, func(a, b client.Image) int {
		if len(a.Names) == 0 || len(b.Names) == 0 {
			return cmp.Or(len(b.Names)-len(a.Names), strings.Compare(a.Digest, b.Digest))
		}
		return strings.Compare(a.Names[0], b.Names[0])
	})
	return list, nil
}

// imageLocked is a copy of an image with its names.
func (s *Store) imageLocked(digest string) *client.Image {
	img := s.images[digest].Image.Image
	img.Names = []string{}
	for name, d := range s.names {
		if d == digest {
			img.Names = append(img.Names, name)
		}
	}
	slices.Sort(img.Names)
	return &img
}
