package trees

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree/layers"
)

const (
	// keepTime bounds one look at what a session has written, maxSeen the paths of one that
	// are looked at, and maxKept the bytes that are kept for it. What is beyond them has no
	// base.
	keepTime = 5 * time.Second
	maxSeen  = 20_000
	maxKept  = 64 << 20
	maxDeep  = 64 // directories
)

// seen is what is known of the files that a session has written. It is not stored: to look
// once more does no harm. Who has the tree of the session has it too.
type seen struct {
	since int64
	upper string
	inode uint64 // free ones of the layer's disk at the last look
	paths map[string]struct{}
	kept  int64
}

// Keep keeps what the source has of files that a session has just written first. It is
// done in the background, after each call.
func (s *Service) Keep(row *store.Session) {
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), keepTime)
		defer cancel()
		x, err := s.have(ctx, row, nil)
		if err != nil {
			return // the session is over, or who works on its files has looked
		}
		defer x.release()
		s.keep(ctx, x.tree)
	})
}

// keep is Keep for who has the tree. Where it fails there is no base, which is said where
// one is wanted.
func (s *shared) keep(ctx context.Context, t *layers.Tree) {
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	value, _ := s.seen.LoadOrStore(t.Session, &seen{})
	if err := value.(*seen).look(ctx, s, t); err != nil && !errors.Is(err, layers.ErrNone) {
		s.log.Warn("keep what the source had", "session", t.Session, "error", err)
	}
}

// look looks at the upper layer, if it has got or lost files since the last time.
func (k *seen) look(ctx context.Context, s *shared, t *layers.Tree) error {
	upper, release, err := s.store.OpenUpper(t.Session)
	if err != nil {
		return err
	}
	defer release()
	defer upper.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(upper.Fd()), &fs); err != nil {
		return err
	}
	switch {
	case k.paths == nil || k.since != t.Since:
		*k = seen{since: t.Since, paths: make(map[string]struct{})}
	case k.upper == t.Upper && k.inode == fs.Ffree, len(k.paths) >= maxSeen:
		return nil
	}
	k.upper, k.inode = t.Upper, fs.Ffree
	if err := s.keepMoved(ctx, t); err != nil {
		return err
	}
	var paths []string
	if err := k.walk(ctx, int(upper.Fd()), "", &paths); err != nil || len(paths) == 0 {
		return err
	}
	source, err := t.Source.Open(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	l := s.sourceLook(t, source)
	l.Room = s.sessions.Room
	n, err := l.Keep(ctx, paths, maxKept-k.kept)
	k.kept += n
	return err
}

// walk collects the files below a directory of the layer that were not there at the last
// look: their names alone, for the layer is the session's. What is in a directory that was
// moved has other names in the source, and no base.
func (k *seen) walk(ctx context.Context, parent int, dir string, paths *[]string) error {
	fd, err := beneath.Open(parent, cmp.Or(path.Base(dir), "."), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	for {
		entries, err := d.ReadDir(1000)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			if len(name) > treediff.MaxPath || len(k.paths) >= maxSeen {
				continue
			}
			if e.IsDir() {
				if strings.Count(name, "/") < maxDeep {
					err = k.walk(ctx, fd, name, paths)
				}
			} else if _, known := k.paths[name]; !known && e.Type().IsRegular() {
				k.paths[name] = struct{}{}
				*paths = append(*paths, name)
			}
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
}
