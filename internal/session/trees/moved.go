package trees

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/tool/run/ignore"
	"github.com/toold/toold/internal/worktree/apply"
	"github.com/toold/toold/internal/worktree/layers"
)

// maxBelow bounds the entries below moved directories that are looked at, as those of an
// apply are: where there are more, nobody knows whether all are there.
const maxBelow = 200_000

// moves is what is known of the moved directories of a tree.
type moves struct {
	all []layers.Moved
	// before are those that the layers do not say any more, by their paths in the source.
	before map[string]string
	lost   []layers.Incomplete
	named  map[string]bool // the paths of lost: there may be a hundred thousand
	// away are those of lost whose files may come back: no layer is to be made without them.
	away []layers.Incomplete
	// unknown are those of which it could not be seen whether anything is lost.
	unknown []layers.Incomplete
	// long are those that cannot be copied from the source, for paths that are too long. Nothing of
	// them is missing as long as the source has it.
	long    []layers.Incomplete
	origins map[string]string // what they were in the source, by their paths there
}

// lookTime bounds one look at moved directories in the source, which others wait for.
const lookTime = 30 * time.Second

// moved compares the moved directories of a tree with what the source has where they come
// from: an overlay finds their files there, and a directory that the host removed,
// replaced or moved away has taken these along.
func (s *shared) moved(ctx context.Context, t *layers.Tree) (*moves, error) {
	all, err := layers.FindMoved(ctx, s.store, t)
	if err != nil {
		return nil, fmt.Errorf("look for moved directories: %w", err)
	}
	m := &moves{all: all, before: t.Moved, lost: slices.Clone(t.Incomplete), named: map[string]bool{}, origins: map[string]string{}}
	for _, i := range m.lost {
		m.named[i.Path] = true
	}
	if len(all) == 0 {
		return m, nil
	}
	looked, err := lookAt(ctx, t, all)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		s.log.Warn("look at the source of moved directories", "session", t.Session, "error", err)
	}
	for i := range all {
		switch d := &all[i]; {
		case err != nil:
			m.add(d, &place{why: "and the source cannot be looked at: " + plain.Cause(err), unknown: true})
		case looked[i].why != "":
			m.add(d, &looked[i])
		case len(m.origins) < layers.MaxOrigins:
			m.origins[d.From] = looked[i].is
		}
	}
	return m, nil
}

// lookAt looks at all in the source, as its owner.
func lookAt(ctx context.Context, t *layers.Tree, all []layers.Moved) ([]place, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	source, err := t.Source.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	look := sourceLook{ctx: ctx, since: max(t.Since, t.Wrote) - t.SetBack(), left: maxBelow, known: t.Origins}
	looked := make([]place, len(all)) // left to the look where that does not end
	err = beneath.As(ctx, thread.User{UID: t.UID, GID: t.GID}, source, func(root int) error {
		look.root = root
		for i := range all {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			looked[i] = look.at(&all[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return looked, nil
}

func (m *moves) add(d *layers.Moved, p *place) {
	i := layers.Incomplete{Path: d.Path[:min(len(d.Path), beneath.MaxPath)], From: d.From, Why: p.why, Gone: p.gone}
	switch {
	case p.long:
		m.long = append(m.long, i)
	case p.gone:
		m.away = append(m.away, i)
	case p.unknown:
		m.unknown = append(m.unknown, i)
	}
	if !m.named[i.Path] {
		m.named[i.Path] = true
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
	ctx    context.Context //nolint:containedctx // of the one look that it lives for
	root   int
	since  int64 // a later change time is of after the session began
	longer int   // by how many bytes paths in the session are longer than in the source
	left   int   // of maxBelow
	known  map[string]string
	// names are those of all entries that were found below a directory, first the first directory that
	// has got or lost some. With compares the look goes on then: the names decide.
	names    []string
	first    string
	compares bool
}

// namesMark stands in Tree.Origins before what tells the names below a directory from all others.
const namesMark = " names:"

// sum tells the names that were found from all others.
func (l *sourceLook) sum() string {
	slices.Sort(l.names)
	sum := sha256.New()
	for _, name := range l.names {
		_, _ = io.WriteString(sum, name) // a hash takes all
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// place is what the source has where a moved directory comes from.
type place struct {
	why     string // it does not have all of it any more; "" where it has
	gone    bool   // nor any of it
	unknown bool   // or that could not be seen
	long    bool   // or it cannot be copied from there
	is      string // what the directory is
}

// unseen is a place that could not be looked at.
func unseen(err error) place {
	return place{why: "which cannot be looked at: " + plain.Cause(err), unknown: true}
}

// at looks where a moved directory comes from.
func (l *sourceLook) at(d *layers.Moved) place {
	if d.From == "" {
		why := "and its path is too long, or one of too many, to be looked at"
		if d.More > 0 {
			why += fmt.Sprintf(", as those of %d more are", d.More)
		}
		return place{why: why, long: true}
	}
	if n := max(len(d.Path), len(d.From)); n > beneath.MaxPath {
		return place{why: fmt.Sprintf("and has a path of %d bytes, which is too long to copy it", n), long: true}
	}
	l.longer = max(len(d.Path)-len(d.From), 0)
	fd, err := beneath.Open(l.root, d.From, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case replaced(err):
		return place{why: "which is not there any more", gone: true}
	case err != nil:
		return unseen(err)
	}
	defer unix.Close(fd)
	handle, err := beneath.Handle(fd)
	if err != nil {
		return unseen(err)
	}
	is, err := identity(fd, handle)
	was, known := l.known[d.From]
	was, names, _ := strings.Cut(was, namesMark)
	switch {
	case err != nil:
		return unseen(err)
	case known && was != is, !known && d.Handle != nil && handle != nil && string(d.Handle) != string(handle):
		return place{why: "where another directory is now", gone: true}
	}
	l.names, l.first, l.compares = nil, "", names != ""
	in, err := l.changed(fd, d.From)
	if sum := l.sum(); l.compares && in == "" && l.first != "" && err == nil && sum != names {
		in = l.first
	} else if in == "" {
		is += namesMark + sum
	}
	switch {
	case errors.Is(err, errTooMuch):
		return place{why: plain.Cause(err)}
	case errors.Is(err, errTooLong):
		return place{why: plain.Cause(err), long: true}
	case err != nil:
		return unseen(err)
	case in != "":
		return place{why: fmt.Sprintf("where files may have come or gone since the session began (in %s)", plain.Name(in))}
	}
	return place{is: is}
}

// replaced reports whether an error says that nothing, or something else, is at a path.
func replaced(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// shut reports whether an error says that the session could not look there either: it had no
// right to, or something is mounted there. All others say nothing of what is there.
func shut(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EXDEV)
}

// What keeps a directory from being compared.
var (
	errTooMuch = fmt.Errorf("which has more than %d entries, too many to compare", maxBelow)
	errTooLong = errors.New("which has paths that are too long to copy it")
)

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
// the session began. Its change time says so, which no program can set. But that is new too where
// a file was saved by a rename: where the names are known, these say it.
func (l *sourceLook) changed(dir int, name string) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return "", err
	}
	if st.Ctim.Nano() > l.since {
		if l.first = cmp.Or(l.first, name); !l.compares {
			return name, nil
		}
	}
	fd, err := beneath.Open(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if shut(err) {
		return "", nil
	}
	if err != nil {
		return "", err
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
			return "", errTooMuch
		}
		for _, e := range entries {
			if len(name)+1+len(e.Name())+l.longer > beneath.MaxPath {
				return "", errTooLong
			}
			if whole := path.Join(name, e.Name()); !e.IsDir() {
				l.names = append(l.names, whole+"\x00")
				continue
			} else {
				l.names = append(l.names, whole+"/\x00")
			}
			if in, err := l.below(fd, e.Name(), path.Join(name, e.Name())); in != "" || err != nil {
				return in, err
			}
		}
	}
}

func (l *sourceLook) below(parent int, name, whole string) (string, error) {
	fd, err := beneath.Open(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case replaced(err):
		return whole, nil // just now
	case shut(err):
		return "", nil
	case err != nil:
		return "", err
	}
	defer unix.Close(fd)
	return l.changed(fd, whole)
}

// coupled leaves out both names of a directory that was moved in the session where a request leaves
// out one by a pattern: the other one alone would take its files from the source, or double them.
func coupled(m *moves, r *client.ApplyRequest) error {
	if len(r.Exclude) == 0 {
		return nil
	}
	chooses, err := apply.Choice(*r)
	if err != nil {
		return err
	}
	all := *r
	all.Exclude = nil
	asked, err := apply.Choice(all)
	if err != nil {
		return err
	}
	more := slices.Clone(r.Exclude)
	moved := m.byOrigin(m.before)
	for _, from := range slices.Sorted(maps.Keys(moved)) {
		for _, side := range [][2]string{{moved[from], from}, {from, moved[from]}} {
			this, other := side[0], side[1]
			if asked(this) && !chooses(this) && len(more) < ignore.MaxPatterns && len(other) < ignore.MaxPattern/2 {
				more = append(more, "/"+patternOf(other))
			}
		}
	}
	r.Exclude = more
	return nil
}

// byOrigin adds moved directories to others, by their paths in the source.
func (m *moves) byOrigin(others map[string]string) map[string]string {
	all := maps.Clone(others)
	for _, d := range m.all {
		if all == nil {
			all = make(map[string]string)
		}
		if d.From != "" && len(all) < layers.MaxOrigins {
			all[d.From] = d.Path
		}
	}
	return all
}

// patternOf is a pattern as in a .gitignore that matches a path alone.
func patternOf(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if strings.IndexByte(`\*?[]!# `, path[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(path[i])
	}
	return b.String()
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
func complete(m *moves, r client.ApplyRequest) error {
	lost := m.lost
	if r.Force {
		lost = m.long // what is missing already can be given up, and nothing else
	}
	chooses, err := apply.Choice(r)
	if err != nil {
		return err
	}
	var found []layers.Incomplete
	for _, i := range lost {
		made, taken := chooses(i.Path), chooses(cmp.Or(i.From, "."))
		if made || taken && !i.Gone || i.From == "" || slices.ContainsFunc(r.Paths, func(p string) bool { return within(p, i.From) }) {
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
		switch {
		case i.From == "":
			why = "it may have been moved in the session " + i.Why
		case slices.Contains(m.long, i):
			why = fmt.Sprintf("it was moved in the session from %s, %s", plain.Name(i.From), i.Why)
		}
		e.Conflicts = append(e.Conflicts, apply.Conflict{Path: plain.Name(i.Path), Why: why})
		places = append(places, fault.Place{Path: plain.Name(i.Path), Message: why})
	}
	among := func(some []layers.Incomplete) bool {
		return slices.ContainsFunc(found, func(i layers.Incomplete) bool { return slices.Contains(some, i) })
	}
	if slices.ContainsFunc(found, func(i layers.Incomplete) bool { return i.From == "" }) {
		return fault.Conflict.Errorf("%w", e).At(places).
			Next("remove it in the session, or in a fork of it (toolctl fork), or give it a shorter path there; and apply again")
	}
	if among(m.long) {
		return fault.Conflict.Errorf("%w", e).At(places).
			Next("give it a shorter path in the session, or in a fork of it (toolctl fork), and apply again; or apply all else (--exclude either path)")
	}
	if among(m.unknown) {
		return fault.Overloaded.Errorf("%w", e).At(places).
			Next("see that the file system of the source works and apply again; or apply what is left with --force, or all else (--exclude)")
	}
	return fault.Conflict.Errorf("%w", e).At(places).
		Next("put " + plain.Name(found[0].From) + " back as it was and apply again; or look at what is left (toolctl diff), then apply that with --force, or all else (--exclude " + plain.Name(found[0].Path) + ", which leaves out both names)")
}

// maxLost bounds the incomplete directories that an error names.
const maxLost = 1000

// maxLostBytes bounds what a merge has to remember of incomplete directories: each checkpoint
// that is made afterwards may have a list of its own of them.
const maxLostBytes = 1 << 20

// mergeable says why no layer is to be made of the tree's: files that are away may come back, what
// could not be seen must be looked at again, and what has too long a path cannot be copied.
func (m *moves) mergeable() error {
	left := maxLostBytes
	for _, i := range m.lost {
		if left -= len(i.Path) + len(i.From) + len(i.Why); left < 0 {
			return fault.Conflict.Errorf("%d directories that were moved in the session are not whole in the source, more than are remembered", len(m.lost))
		}
	}
	for _, i := range slices.Concat(m.away, m.unknown, m.long) {
		return fault.Conflict.Errorf("%s was moved in the session from %s, %s", plain.Name(i.Path), plain.Name(i.From), i.Why)
	}
	return nil
}

// keepMoved keeps what moved directories are in a source whose file system has no handles, from which
// layers would tell.
func (s *shared) keepMoved(ctx context.Context, t *layers.Tree) error {
	source, err := t.Source.Open(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	handle, err := beneath.Handle(int(source.Fd()))
	if err != nil || handle != nil {
		return err
	}
	return s.keepOrigins(ctx, t)
}

// keepOrigins keeps what moved directories are in the source, and the names in them, as long as that is
// what the session began with.
func (s *shared) keepOrigins(ctx context.Context, t *layers.Tree) error {
	m, err := s.moved(ctx, t)
	if err != nil {
		return err
	}
	return s.know(t, m)
}
