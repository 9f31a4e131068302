package trees

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree/apply"
	"github.com/toold/toold/internal/worktree/layers"
)

const (
	// keepTime bounds one look at what a session has written, and maxKept the bytes that are
	// kept for it. What is beyond them has no base.
	keepTime = 5 * time.Second
	maxKept  = 64 << 20
	maxDeep  = 64 // directories in each other
	// manyDirs of a layer are not all looked at after each call, if the layer has as many files
	// as before.
	manyDirs = 256
)

// freshFor is how long a directory may have changed again without another change time, which
// is a tick of the kernel's clock, and ample.
const freshFor = 50 * time.Millisecond

// found is what a walk of a layer finds: what was not there at the last look.
type found struct {
	written, removed []string
	dirs             map[string]uint32 // permissions of directories
}

// Keep keeps what the source has of files that a session has just written first. It is
// done in the background, after each call.
func (s *Service) Keep(row *store.Session) {
	s.work.Go("base of "+row.ID, func() {
		ctx, cancel := context.WithTimeout(context.Background(), keepTime)
		defer cancel()
		x, err := s.have(ctx, row, nil)
		if err != nil {
			return // the session is over, or who works on its files has looked
		}
		defer keepingOf(x)()
		s.keepOf(ctx, x.tree, false)
	})
}

// keeping is a look of Keep at a session, which has its tree. Who reads alone may take that over, and
// has it until the look is over too.
type keeping struct {
	done chan struct{} // closed when it is over
	mu   sync.Mutex    // guards the field below
	back func()        // gives the tree back; nil once somebody else does
}

// keepingOf says that x, which looks at a session, may be joined. end is in the place of x.release.
func keepingOf(x *subject) (end func()) {
	k := &keeping{done: make(chan struct{}), back: x.unlock}
	x.keeping.Store(x.row.ID, k)
	return func() {
		x.keeping.CompareAndDelete(x.row.ID, k)
		defer close(k.done)
		if _, mine := k.join(); !mine {
			x.unlock = func() {}
		}
		x.release()
	}
}

// join takes the tree over, if nobody has.
func (k *keeping) join() (unlock func(), ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	unlock, k.back = k.back, nil
	return unlock, unlock != nil
}

// haveBeside is have for who reads alone. It does not wait for a look of Keep: kept does.
func (s *Service) haveBeside(ctx context.Context, row *store.Session, live Live) (x *subject, kept func(), err error) {
	last, looks := s.keeping.Load(row.ID)
	if !looks || live == nil {
		x, err = s.have(ctx, row, live)
		return x, func() {}, err
	}
	k := last.(*keeping)
	unlock, joined := k.join()
	if !joined {
		x, err = s.have(ctx, row, live)
		return x, func() {}, err
	}
	kept = func() { <-k.done }
	x, err = s.having(row, live, func() { kept(); unlock() })
	return x, kept, err
}

// keepBeside is keep for a view that is looked at meanwhile. It releases x in the end; kept says when.
func keepBeside(ctx context.Context, x *subject, kept func()) (done <-chan struct{}) {
	over := make(chan struct{})
	tree := *x.tree // what is found out of it is for others
	work := func() {
		defer close(over)
		defer x.release()
		kept()
		x.keep(context.WithoutCancel(ctx), &tree)
	}
	if !x.work.Go("base of "+x.row.ID, work) {
		work()
	}
	return over
}

// keep is Keep for who has the tree. Where it fails there is no base, which is said where
// one is wanted.
func (s *shared) keep(ctx context.Context, t *layers.Tree) { s.keepOf(ctx, t, true) }

func (s *shared) keepOf(ctx context.Context, t *layers.Tree, all bool) {
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	k := s.seen.of(t.Session)
	defer func() { s.seen.looked(t.Session, k) }()
	before := k.failed
	err := k.look(ctx, s, t, all)
	if err != nil && !errors.Is(err, layers.ErrNone) && !before { // once, not after each call
		s.log.Warn("keep what the source had", "session", t.Session, "error", err)
	}
	k.failed = err != nil
}

// look looks at the upper layer; unless at all of it, then only if it has got or lost files since
// the last time, where it has many directories.
func (k *seen) look(ctx context.Context, s *shared, t *layers.Tree, all bool) (err error) {
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
	fresh := k.paths == nil || k.since != t.Since
	switch {
	case fresh && k.since == t.Since:
		*k = seen{since: t.Since, kept: k.kept, paths: make(map[pathKey]struct{})}
	case fresh:
		*k = seen{since: t.Since, paths: make(map[pathKey]struct{})}
	case !all && k.upper == t.Upper && k.inode == fs.Ffree && len(k.dirs) > manyDirs, k.full():
		return nil
	}
	if err := s.keepMoved(ctx, t); err != nil {
		return err
	}
	if k.upper != t.Upper {
		k.dirs = make(map[pathKey]*seenDir)
	}
	k.upper, k.inode = t.Upper, fs.Ffree
	source, err := t.Source.Open(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	l := s.sourceLook(t, source)
	l.Room = s.sessions.Room
	if fresh {
		notes, err := l.Notes()
		if err != nil {
			return err
		}
		for p := range notes {
			k.add(keyOf(p), p)
		}
	}
	f := found{dirs: make(map[string]uint32)}
	defer func() {
		if err != nil && fresh {
			*k = seen{since: t.Since, kept: k.kept}
		} else if err != nil {
			k.forget(&f)
		}
	}()
	if err := k.walk(ctx, int(upper.Fd()), "", &f); err != nil || len(f.written)+len(f.removed)+len(f.dirs) == 0 {
		return err
	}
	if len(f.dirs) > 0 { // one may have been moved there
		if err := s.keepOrigins(ctx, t); err != nil {
			return err
		}
	}
	opened, err := s.store.OpenLayers(t.Layers())
	if err != nil {
		return err
	}
	of, err := coverOf(opened)
	if err != nil {
		return err
	}
	defer of.close()
	l.Begun = of.begun
	n, also, err := l.Keep(ctx, slices.Concat(f.written, f.removed, slices.Sorted(maps.Keys(f.dirs))), maxKept-k.kept)
	k.kept += n
	if err != nil || len(t.Lower) > 0 && fresh {
		return err // what is absent may have been made, and looked at, in a layer below
	}
	notes := notesOf(upper, source, also.Absent, len(t.Lower) > 0)
	for p, n := range also.There {
		if n.Is != apply.Mode || f.dirs[p] == n.Perm {
			notes[p] = n
		}
	}
	return l.Note(notes)
}

// forget has the next look find once more what this one could not keep.
func (k *seen) forget(f *found) {
	for _, p := range slices.Concat(f.written, f.removed, slices.Collect(maps.Keys(f.dirs))) {
		delete(k.paths, keyOf(p))
		k.named -= int64(len(p))
	}
	k.upper, k.dirs = "", nil
}

// walk collects the files below a directory of the layer that were not there at the last
// look: their names alone, for the layer is the session's. A directory that is as it was is
// not listed again. What is in a directory that was moved has other names in the source, and
// no base.
func (k *seen) walk(ctx context.Context, parent int, dir string, f *found) error {
	fd, err := beneath.Open(parent, cmp.Or(path.Base(dir), "."), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if _, fresh := f.dirs[dir]; fresh {
		f.dirs[dir] = st.Mode & 0o777
	}
	key := keyOf(dir)
	was := k.dirs[key]
	if was == nil || was.ctime != st.Ctim.Nano() {
		was = &seenDir{}
		if time.Since(time.Unix(0, st.Ctim.Nano())) > freshFor {
			was.ctime = st.Ctim.Nano()
		}
		if err := k.list(ctx, d, dir, was, f); err != nil {
			return err
		}
		k.dirs[key] = was
	}
	for _, name := range was.below {
		name = path.Join(dir, name)
		if err := k.walk(ctx, fd, name, f); errors.Is(err, unix.ENOENT) {
			delete(f.dirs, name)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// list lists a directory of the layer.
func (k *seen) list(ctx context.Context, d *os.File, dir string, in *seenDir, f *found) error {
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
			if len(name) > treediff.MaxPath || e.IsDir() && strings.Count(name, "/") >= maxDeep {
				continue
			}
			key := keyOf(name)
			_, known := k.paths[key]
			if !known && k.full() {
				continue
			}
			switch e.Type() {
			case os.ModeDir:
				in.below = append(in.below, e.Name())
				if !known {
					f.dirs[name] = 0 // until it is opened
				}
			case 0:
				if !known {
					f.written = append(f.written, name)
				}
			case os.ModeDevice | os.ModeCharDevice: // how an overlay says that it is removed
				if !known {
					f.removed = append(f.removed, name)
				}
			default:
				continue
			}
			k.add(key, name)
		}
	}
}

// notesOf says of paths that the source does not have what the session began with there. A
// file that an overlay has copied up names the one that it was copied from: if that is no
// more, somebody has removed it, and if it is, the session has moved it. It needs file
// handles of the source's file system; without them nothing is said of such a file. Above other
// layers it may be a copy of what one of those has, and nothing is said.
func notesOf(upper, source *os.File, absent []string, layered bool) map[string]apply.Noted {
	notes := make(map[string]apply.Noted, len(absent))
	for _, p := range absent {
		fd, err := beneath.Open(int(upper.Fd()), p, unix.O_PATH|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			switch origin, copied := originOf(fd); {
			case copied && origin == nil: // of what nobody knows
			case origin == nil || alive(source, *origin):
				notes[p] = apply.Noted{Is: apply.Nothing}
			case !layered:
				notes[p] = apply.Noted{Is: apply.Gone}
			}
		}
		_ = unix.Close(fd)
	}
	return notes
}

// originOf says whether a file of an upper layer was copied from one, and gives the handle of
// that; nil where it has none: of a source whose file system has no handles the attribute is
// empty. The kernel's struct ovl_fb is a head of 21 bytes: version, magic, its own length, flags,
// the handle's type, and the file system's UUID.
func originOf(fd int) (h *unix.FileHandle, copied bool) {
	const head, magic, atLen, atType = 21, 0xfb, 2, 4
	b := make([]byte, 256)
	n, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", fd), "trusted.overlay.origin", b)
	if err != nil || n < head || b[1] != magic || int(b[atLen]) != n {
		return nil, err == nil
	}
	handle := unix.NewFileHandle(int32(b[atType]), b[head:n])
	return &handle, true
}

// alive reports whether a file of the source's file system is there; it is where that cannot
// be said.
func alive(source *os.File, h unix.FileHandle) bool {
	dir, err := beneath.Open(int(source.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return true
	}
	defer unix.Close(dir)
	fd, err := unix.OpenByHandleAt(dir, h, unix.O_PATH)
	if err != nil {
		return !errors.Is(err, unix.ESTALE)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || st.Nlink > 0
}
