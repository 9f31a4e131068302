package apply

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/thread"
)

// Look looks at the source of a session's changes, and writes nothing there.
type Look struct {
	// Dir, Source, Owner, Since and Back are as in a Job. Dir need not be there.
	Dir         string
	Source      *os.File
	Owner       thread.User
	Since, Back int64
	// Room is asked before Keep writes so many bytes to Dir: what there is none for has no
	// base. It may be nil.
	Room func(bytes int64) error
}

// Place is a change as far as a Look has to know it.
type Place struct {
	Path   string // any bytes
	Status client.ChangeStatus
	Kind   beneath.Kind // "" for nothing
}

// Stale says of each change whether the source has something else there than the session
// began with: then the difference takes somebody's work back. It is judged as an apply
// judges it, so what cannot be looked at is stale too. A file that was removed from the source
// is known by the base that was kept of it.
func (l *Look) Stale(ctx context.Context, places []Place) ([]bool, error) {
	stale := make([]bool, len(places))
	d := &state{dir: l.Dir}
	all, err := d.readOwn()
	had, more := d.bases()
	if err = errors.Join(err, more); err != nil || len(places) == 0 {
		return stale, err
	}
	err = beneath.As(ctx, l.Owner, l.Source, func(root int) error {
		dirs := &dirs{open: []openDir{{path: ".", fd: root}}}
		defer dirs.close(1)
		for i := range places {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			stale[i] = l.stale(had, dirs, all, &places[i])
		}
		return nil
	})
	return stale, err
}

func (l *Look) stale(had bases, dirs *dirs, all map[string]own, p *Place) bool {
	var now version
	parent, err := dirs.dir(path.Dir(p.Path))
	if err == nil {
		now, err = versionOf(parent, path.Base(p.Path), nil, nil)
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), err == nil && now.Kind == "":
		return p.Status != client.ChangeAdded || p.Kind != beneath.Dir && had.has(p.Path, l.Since)
	case err != nil:
		return true
	case now.Kind == beneath.Dir:
		return p.Kind != beneath.Dir && had.has(p.Path, l.Since) // else what is in it says more
	}
	return now.CTime > l.Since-l.Back && !all[p.Path].wrote(now)
}

// keepBytes is how much Keep reads of a source before it writes that down.
const keepBytes = maxMerge

// Keep keeps what the source has at paths that the session has just written to, where it
// still is what the session began with, and not more than so many bytes; it says how many
// bytes that were. A file of more than 4 MiB, and one that a job has written, is not kept.
func (l *Look) Keep(ctx context.Context, paths []string, room int64) (kept int64, err error) {
	d := &state{dir: l.Dir}
	all, err := d.readOwn()
	had, more := d.bases()
	err = errors.Join(err, more)
	for err == nil && len(paths) > 0 {
		var some []base
		err = beneath.As(ctx, l.Owner, l.Source, func(root int) (err error) {
			some, paths, err = l.read(ctx, root, had, all, paths, room-kept)
			return err
		})
		for i := 0; err == nil && i < len(some); i++ {
			if l.Room != nil && l.Room(int64(len(some[i].content))) != nil {
				return kept, nil
			}
			kept += int64(len(some[i].content))
			err = keepBase(d.path(baseName(some[i].path, l.Since)), some[i].baseHead, bytes.NewReader(some[i].content))
		}
	}
	return kept, err
}

type base struct {
	baseHead
	path    string
	content []byte
}

// read reads the bases of the first paths, and gives the paths that are left.
func (l *Look) read(ctx context.Context, root int, had bases, all map[string]own, paths []string, room int64) (some []base, left []string, err error) {
	dirs, buf, sum := &dirs{open: []openDir{{path: ".", fd: root}}}, newBuffer(ctx), int64(0)
	defer dirs.close(1)
	for i, p := range paths {
		if err := context.Cause(ctx); err != nil {
			return nil, nil, err
		}
		if _, wrote := all[p]; wrote || had.has(p, l.Since) {
			continue
		}
		parent, err := dirs.dir(path.Dir(p))
		if err != nil {
			continue // the session has made it
		}
		now, err := versionOf(parent, path.Base(p), nil, nil)
		if err != nil || now.Kind != beneath.File || now.CTime > l.Since-l.Back || now.Size > min(maxMerge, room-sum) {
			continue
		}
		var content bytes.Buffer
		now, err = versionOf(parent, path.Base(p), buf, func(*unix.Stat_t) io.Writer { return &content })
		if err != nil || now.Kind != beneath.File || now.CTime > l.Since-l.Back || int64(content.Len()) > room-sum {
			continue // somebody is changing it
		}
		some = append(some, base{baseHead{now.Perm, now.Sum}, p, content.Bytes()})
		if sum += now.Size; sum >= keepBytes {
			return some, paths[i+1:], nil
		}
	}
	return some, nil, nil
}

// wrote says whether a job has written what is there, as far as a look without its content
// tells, and the session has it too.
func (o own) wrote(v version) bool {
	return o != own{} && o.Of == "" && o.CTime == v.CTime && o.Size == v.Size
}

// replaces says whether a file that the session has changed would take the place of a
// directory which was none when the session began.
func (s *survey) replaces(c *change) bool {
	return c.now.Kind == beneath.Dir && c.kind == beneath.File && s.bases.has(c.path, s.job.Since)
}

// since is the change time after which a file of the source was changed beside the session.
func (s *survey) since(c *change) int64 { return cmp.Or(c.since, s.job.Since-s.job.Back) }

// dirs has those directories open that lead to where a walk is, so that each is looked up
// once: what is in it is of one directory, though somebody should put another into its
// place.
type dirs struct{ open []openDir }

// openDir is an open directory.
type openDir struct {
	path string
	fd   int
	err  error // why it cannot be opened
}

// close closes all but the first n directories.
func (s *dirs) close(n int) {
	for _, d := range s.open[n:] {
		if d.err == nil {
			_ = unix.Close(d.fd)
		}
	}
	s.open = s.open[:n]
}

// dir opens a directory of the source, which stays open while the walk is in it.
func (s *dirs) dir(rel string) (int, error) {
	n := len(s.open)
	for n > 1 && s.open[n-1].path != rel && !strings.HasPrefix(rel, s.open[n-1].path+"/") {
		n--
	}
	s.close(n)
	top := s.open[n-1]
	for top.path != rel {
		begin := 0
		if top.path != "." {
			begin = len(top.path) + 1
		}
		name, _, _ := strings.Cut(rel[begin:], "/")
		next := openDir{path: rel[:begin+len(name)], err: top.err}
		if next.err == nil {
			next.fd, next.err = beneath.Open(top.fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		}
		s.open = append(s.open, next)
		top = next
	}
	return top.fd, top.err
}
