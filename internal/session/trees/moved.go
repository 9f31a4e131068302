package trees

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree/apply"
	"github.com/toold/toold/internal/worktree/layers"
)

// maxBelow bounds the entries below moved directories that are looked at, as those of an
// apply are: where there are more, nobody knows whether all are there.
const maxBelow = 200_000

// moves is what is known of the moved directories of a tree.
type moves struct {
	some bool // there are any
	lost []layers.Incomplete
	// away are those of lost whose files may come back: no layer is to be made without them.
	away    []layers.Incomplete
	origins map[string]string // what they were in the source, by their paths there
}

// moved compares the moved directories of a tree with what the source has where they come
// from: an overlay finds their files there, and a directory that the host removed,
// replaced or moved away has taken these along.
func (s *shared) moved(ctx context.Context, t *layers.Tree) (*moves, error) {
	all, err := layers.FindMoved(ctx, s.store, t)
	if err != nil {
		return nil, fmt.Errorf("look for moved directories: %w", err)
	}
	m := &moves{some: len(all) > 0, lost: slices.Clone(t.Incomplete), origins: make(map[string]string)}
	if len(all) == 0 {
		return m, nil
	}
	source, err := t.Source.Open()
	if err != nil {
		s.log.Warn("look at the source of moved directories", "session", t.Session, "error", err)
		for i := range all {
			m.add(&all[i], "the source cannot be looked at", false)
		}
		return m, nil
	}
	defer source.Close()
	owner := thread.User{UID: t.UID, GID: t.GID}
	err = beneath.As(ctx, owner, source, func(root int) error {
		look := sourceLook{ctx: ctx, root: root, since: max(t.Since, t.Wrote) - t.SetBack(), left: maxBelow, known: t.Origins}
		for i := range all {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			why, gone, is := look.at(&all[i])
			if why != "" {
				m.add(&all[i], why, gone)
			} else if len(m.origins) < layers.MaxOrigins {
				m.origins[all[i].From] = is
			}
		}
		return nil
	})
	return m, err
}

func (m *moves) add(d *layers.Moved, why string, gone bool) {
	i := layers.Incomplete{Path: d.Path, From: d.From, Why: why, Gone: gone}
	if gone {
		m.away = append(m.away, i)
	}
	if !slices.ContainsFunc(m.lost, func(l layers.Incomplete) bool { return l.Path == d.Path }) {
		m.lost = append(m.lost, i)
	}
}

// know keeps what moved directories are in the source, where layers cannot say it.
func (s *shared) know(t *layers.Tree, m *moves) error {
	more := false
	for from := range m.origins {
		_, known := t.Origins[from]
		more = more || !known
	}
	if !more || len(t.Origins) >= layers.MaxOrigins {
		return nil
	}
	now, err := layers.Know(s.store, t.Session, m.origins)
	if err == nil {
		t.Origins = now.Origins
	}
	return err
}

// sourceLook looks at directories of a source.
type sourceLook struct {
	ctx   context.Context //nolint:containedctx // of the one look that it lives for
	root  int
	since int64 // a later change time is of after the session began
	left  int   // of maxBelow
	known map[string]string
}

// at says why the source does not have all of a moved directory any more, and whether all of
// it is gone; else what the directory is.
func (l *sourceLook) at(d *layers.Moved) (why string, gone bool, is string) {
	fd, err := beneath.Open(l.root, d.From, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return "which is not there any more", true, ""
	case err != nil:
		return "which cannot be looked at: " + plain.Cause(err), false, ""
	}
	defer unix.Close(fd)
	handle := layers.Handle(fd)
	is, err = identity(fd, handle)
	switch was, known := l.known[d.From]; {
	case err != nil:
		return "which cannot be looked at: " + plain.Cause(err), false, ""
	case known && was != is, !known && d.Handle != nil && handle != nil && string(d.Handle) != string(handle):
		return "where another directory is now", true, ""
	}
	if in, err := l.changed(fd, d.From); err != nil {
		return plain.Cause(err), false, ""
	} else if in != "" {
		return fmt.Sprintf("where files may have come or gone since the session began (in %s)", plain.Name(in)), false, ""
	}
	return "", false, is
}

// identity tells a directory from all others that may come to its path.
func identity(fd int, handle []byte) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return "", err
	}
	birth := int64(0)
	if st.Mask&unix.STATX_BTIME != 0 {
		birth = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return fmt.Sprintf("%d %d %x", st.Ino, birth, handle), nil
}

// changed finds the first directory, this one or below it, that got or lost entries since
// the session began. Its change time says so, which no program can set.
func (l *sourceLook) changed(dir int, name string) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return "", err
	}
	if st.Ctim.Nano() > l.since {
		return name, nil
	}
	fd, err := beneath.Open(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", nil // the session could not look into it either
	}
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	for {
		entries, err := d.ReadDir(1000)
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		if err == nil {
			err = context.Cause(l.ctx)
		}
		if err != nil {
			return "", err
		}
		if l.left -= len(entries); l.left < 0 {
			return "", fmt.Errorf("which has more than %d entries, too many to compare", maxBelow)
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			if in, err := l.below(fd, e.Name(), path.Join(name, e.Name())); in != "" || err != nil {
				return in, err
			}
		}
	}
}

func (l *sourceLook) below(parent int, name, whole string) (string, error) {
	if len(whole) > beneath.MaxPath { // and each of them has its whole path here
		return "", errors.New("which has paths that are too long to compare")
	}
	fd, err := beneath.Open(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", nil // it is mounted there, which the session did not see, or going just now
	}
	defer unix.Close(fd)
	return l.changed(fd, whole)
}

// concerns says whether something that is done to these paths, all without any, is done to an
// incomplete directory, or to what is where it comes from.
func concerns(paths []string, i layers.Incomplete) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool {
		return p == "." || within(i.Path, p) || within(i.From, p) || within(p, i.Path) || within(p, i.From)
	})
}

// within says whether a path is another one or lies below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// shownLost are incomplete directories as clients see them.
func shownLost(lost []layers.Incomplete, paths []string) (shown []client.Incomplete) {
	for _, i := range lost {
		if concerns(paths, i) {
			shown = append(shown, client.Incomplete{Path: plain.Name(i.Path), From: plain.Name(i.From), Why: i.Why})
		}
	}
	return shown
}

// complete refuses to apply directories that are incomplete, unless that is wanted: what the source
// has lost would be in neither.
func complete(lost []layers.Incomplete, r client.ApplyRequest) error {
	if r.Force || len(lost) == 0 {
		return nil
	}
	var found []layers.Incomplete
	for _, i := range lost {
		made, err := apply.Chooses(r, i.Path)
		if err != nil {
			return err
		}
		taken, err := apply.Chooses(r, i.From)
		if err != nil {
			return err
		}
		if made || taken && !i.Gone || slices.ContainsFunc(r.Paths, func(p string) bool { return within(p, i.From) }) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return nil
	}
	e := &apply.ConflictError{Count: len(found)}
	var places []fault.Place
	for _, i := range found[:min(len(found), maxLost)] {
		why := fmt.Sprintf("it was moved in the session from %s, %s: files that the session did not change are missing in it", plain.Name(i.From), i.Why)
		e.Conflicts = append(e.Conflicts, apply.Conflict{Path: plain.Name(i.Path), Why: why})
		places = append(places, fault.Place{Path: plain.Name(i.Path), Message: why})
	}
	return fault.Conflict.Errorf("%w", e).At(places).
		Next("put " + plain.Name(found[0].From) + " back as it was and apply again; or look at what is left (toolctl diff), then apply that with --force, or all else (--exclude)")
}

// maxLost bounds the incomplete directories that an error names.
const maxLost = 1000

// maxLostBytes bounds what a merge has to remember of incomplete directories: each checkpoint
// that is made afterwards may have a list of its own of them.
const maxLostBytes = 1 << 20

// mergeable says why no layer is to be made of the tree's: files that are away may come back.
func (m *moves) mergeable() error {
	left := maxLostBytes
	for _, i := range m.lost {
		if left -= len(i.Path) + len(i.From) + len(i.Why); left < 0 {
			return fault.Conflict.Errorf("%d directories that were moved in the session are not whole in the source, more than are remembered", len(m.lost))
		}
	}
	if len(m.away) == 0 {
		return nil
	}
	return fault.Conflict.Errorf("%s was moved in the session from %s, %s", plain.Name(m.away[0].Path), plain.Name(m.away[0].From), m.away[0].Why)
}

// keepMoved keeps what moved directories are in a source whose file system has no handles, from which
// layers would tell.
func (s *shared) keepMoved(ctx context.Context, t *layers.Tree) error {
	source, err := t.Source.Open()
	if err != nil {
		return err
	}
	defer source.Close()
	if layers.Handle(int(source.Fd())) != nil {
		return nil
	}
	m, err := s.moved(ctx, t)
	if err != nil {
		return err
	}
	return s.know(t, m)
}
