package apply

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
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
	// Room is asked before Keep and Note write so many bytes to Dir: what there is none for has
	// no base. It may be nil.
	Room func(bytes int64) error
	// Begun is as in a Job.
	Begun Begun
	// Lost is told what the notes do not have any more, or cannot have: that is unknown. It may be
	// nil.
	Lost func(what error)

	had *bases // as the last Judge has read them; nil before
}

// Place is a change as far as a Look has to know it.
type Place struct {
	Path   string // any bytes
	Status client.ChangeStatus
	Kind   beneath.Kind // "" for nothing
}

// dir says whether a change is one of a directory's permissions alone.
func (p *Place) dir() bool { return p.Status == client.ChangeModified && p.Kind == beneath.Dir }

// Verdict is how a change stands to the source.
type Verdict struct {
	// Changed: the source has something else there than the session began with, or cannot be
	// looked at. Then the difference to it takes somebody's work back.
	Changed bool
	// Known: Base gives what the session began with.
	Known bool
	// Dir: the source has a directory there.
	Dir bool
}

// Judge judges changes as an apply does, and where Source is nil by what was kept of it alone. A file that was removed from the source is known by
// the base that was kept of it, or by a note.
func (l *Look) Judge(ctx context.Context, places []Place) ([]Verdict, error) {
	verdicts := make([]Verdict, len(places))
	d := &state{dir: l.Dir}
	all, err := d.readOwn()
	had, more := d.bases(l.Since)
	if err = errors.Join(err, more); err != nil || len(places) == 0 {
		return verdicts, err
	}
	l.had = &had
	were, before := had.begun(), ""
	for i := range places {
		p := &places[i]
		if err := l.Begun.lead(were, before, p.Path, p.Kind == beneath.Dir); err != nil {
			return verdicts, err
		}
		before = p.Path
	}
	if l.Source == nil {
		for i := range places {
			verdicts[i] = without(&had, all, &places[i])
		}
		return verdicts, nil
	}
	were.but(all)
	heads := d.heads(&had, len(places), func(i int) string { return places[i].Path }, all)
	err = beneath.As(ctx, l.Owner, l.Source, func(root int) error {
		dirs := &dirs{open: []openDir{{path: ".", fd: root}}, begun: were}
		defer dirs.close(1)
		for i := range places {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			p := &places[i]
			changed, dir := l.changed(ctx, &had, dirs, all, heads, p)
			verdicts[i] = Verdict{changed, changed && isKnown(&had, all, p), dir}
		}
		return nil
	})
	return verdicts, err
}

// isKnown reports whether there is a base of a place.
func isKnown(had *bases, all map[string]own, p *Place) bool {
	_, wrote := all[p.Path]
	_, mode := had.dirMode(p.Path)
	return !wrote && (p.dir() && mode || had.kept(p.Path))
}

// without judges a change where there is no source, as one in a source that has nothing there.
func without(had *bases, all map[string]own, p *Place) Verdict {
	changed := lost(had, p)
	return Verdict{Changed: changed, Known: changed && isKnown(had, all, p)}
}

// lost reports whether a change differs from what the session began with also in that the source has
// nothing there.
func lost(had *bases, p *Place) bool {
	return p.Status != client.ChangeAdded || p.Kind != beneath.Dir && had.has(p.Path)
}

func (l *Look) changed(ctx context.Context, had *bases, dirs *dirs, all map[string]own, heads map[string]baseHead, p *Place) (changed, dir bool) {
	var now version
	parent, err := dirs.dir(path.Dir(p.Path))
	if err == nil {
		now, err = glance(parent, path.Base(p.Path))
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), err == nil && now.Kind == "":
		return lost(had, p), false
	case err != nil:
		return true, false
	case dirs.swapped(), p.Kind == "" && dirs.amidTheirs(had, l.Since-l.Back, all):
		return now.Kind != beneath.Dir || p.dir() || p.Kind != beneath.Dir, now.Kind == beneath.Dir
	case now.Kind == beneath.Dir && p.Kind != beneath.Dir:
		return had.another(p.Path, now, l.Since-l.Back, all) || dirs.begun.anotherAt(parent, path.Base(p.Path), p.Path), true
	case now.Kind == beneath.Dir: // what is in it says more
		return p.dir() && (had.moded(p.Path, now, l.Since-l.Back, all) || dirs.begun.anotherAt(parent, path.Base(p.Path), p.Path)), true
	}
	changed = now.CTime > l.Since-l.Back && !all[p.Path].wrote(now)
	return changed || heads[p.Path].differs(now, func() (raw, error) {
		v, err := versionOf(parent, path.Base(p.Path), newBuffer(ctx), nil)
		return v.Sum, err
	}), false
}

// glance is versionOf without content, with one call of the system for a file.
func glance(parent int, name string) (version, error) {
	var st unix.Statx_t
	err := unix.Statx(parent, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return version{}, nil
	case err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return versionOf(parent, name, nil, nil)
	}
	w := which{Inode: st.Ino, Size: int64(st.Size), MTime: st.Mtime.Sec*1e9 + int64(st.Mtime.Nsec), CTime: st.Ctime.Sec*1e9 + int64(st.Ctime.Nsec)}
	return version{Kind: beneath.File, Perm: uint32(st.Mode) & 0o777, Size: w.Size, CTime: w.CTime, which: w}, nil
}

// Base is what a session began with at a path: a file, a directory, or nothing.
type Base struct {
	File, Dir bool
	Perm      uint32
	Content   []byte // at most 4 MiB
}

// Base gives what the session began with at a path of which a Verdict says that it is known;
// nil where that cannot be read.
func (l *Look) Base(path string) *Base {
	d := &state{dir: l.Dir}
	had := l.had
	if had == nil {
		b, err := d.bases(l.Since)
		if err != nil {
			return nil
		}
		had = &b
	}
	content, perm, err := d.readBase(had, path)
	if err == nil {
		return &Base{File: true, Perm: perm, Content: content}
	}
	switch n := had.notes[path]; n.Is {
	case Nothing:
		return &Base{}
	case Dir, Mode:
		return &Base{Dir: true, Perm: n.Perm}
	default: // of these nothing was kept
		return nil
	}
}

// Notes gives what was noted of the session's paths.
func (l *Look) Notes() (map[string]Noted, error) {
	notes, damaged, err := (&state{dir: l.Dir}).readNotes(l.Since)
	if damaged > 0 {
		l.lost("lines are damaged: %d", damaged)
	}
	return notes, err
}

// Note notes something of paths that have no note and no base, as far as there is room for it: a
// session has 16 MiB of notes at most.
func (l *Look) Note(notes map[string]Noted) error {
	left, err := (&state{dir: l.Dir}).addNotes(l.Since, notes, l.Room)
	if left > 0 {
		l.lost("%d of %d paths are left out, because there are %d MiB of notes", left, len(notes), maxNotes>>20)
	}
	return err
}

func (l *Look) lost(format string, args ...any) {
	if l.Lost != nil {
		l.Lost(fmt.Errorf(format, args...))
	}
}

// keepBytes is how much Keep reads of a source before it writes that down.
const keepBytes = maxMerge

// readPart is how much is read of a file between two looks at whether that is still wanted, in bytes.
const readPart = 256 << 10

// Keep keeps what the source has at paths that the session has just written to, where it
// still is what the session began with, and not more than so many bytes; it says how many
// bytes that were, and what else was found. A file of more than 4 MiB, and one that a job has
// written, is not kept, nor what is in a directory that is another one than the session's changes lie over, or may
// be: it has changed since, and nothing says which one it was.
func (l *Look) Keep(ctx context.Context, paths []string, room int64) (kept int64, also *Unkept, err error) {
	also = &Unkept{There: make(map[string]Noted)}
	d := &state{dir: l.Dir}
	all, err := d.readOwn()
	has := func(p string) bool { _, none := os.Lstat(d.path(baseName(p, l.Since))); return none == nil }
	if err == nil && len(paths) > manyBases { // of fewer a second one of some is less than to look
		var had bases
		had, err = d.bases(l.Since)
		has = had.file
	}
	paths = slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		_, wrote := all[p]
		return wrote || has(p)
	})
	were, before := make(begun), ""
	for _, p := range slices.Sorted(slices.Values(paths)) {
		err = cmp.Or(err, l.Begun.lead(were, before, p, true))
		before = p
	}
	for err == nil && len(paths) > 0 {
		var some []base
		err = beneath.As(ctx, l.Owner, l.Source, func(root int) (err error) {
			some, paths, err = l.read(ctx, root, paths, room-kept, were, also)
			return err
		})
		if err != nil {
			break
		}
		n, bytes := 0, int64(0)
		for ; n < len(some); n++ {
			bytes += int64(len(some[n].content))
			if l.Room != nil && l.Room(bytes) != nil {
				break
			}
			kept += int64(len(some[n].content))
		}
		err = d.keepAll(l.Since, some[:n])
		for _, b := range some[n:] {
			also.There[b.path] = Noted{Is: Some}
			room = kept // the others are noted, and kept no more
		}
	}
	if err != nil {
		return kept, nil, err // a look that hangs may still add to them
	}
	return kept, also, nil
}

// Unkept is what Keep finds in a source that it keeps nothing of.
type Unkept struct {
	Absent []string // what the source does not have
	// There is what the source has of the others: of a directory Mode, if it is not known that
	// it was there when the session began.
	There map[string]Noted
}

type base struct {
	baseHead
	path    string
	content []byte
}

// read reads the bases of the first paths, and gives the paths that are left.
func (l *Look) read(ctx context.Context, root int, paths []string, room int64, were begun, also *Unkept) (some []base, left []string, err error) {
	dirs, sum, began := &dirs{open: []openDir{{path: ".", fd: root}}, begun: were}, int64(0), l.Since-l.Back
	defer dirs.close(1)
	for i, p := range paths {
		if err := context.Cause(ctx); err != nil {
			return nil, nil, err
		}
		var now version
		parent, err := dirs.dir(path.Dir(p))
		if err == nil {
			now, err = glance(parent, path.Base(p))
		}
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || err == nil && now.Kind == "" {
			also.Absent = append(also.Absent, p)
			continue
		}
		if err != nil {
			continue
		}
		if dirs.swapped() || dirs.unsure(began) || now.Kind == beneath.Dir && were.anotherAt(parent, path.Base(p), p) {
			also.There[p] = Noted{Is: Some}
			continue
		}
		if now.Kind == beneath.Dir {
			n := Noted{Is: Dir, Perm: now.Perm}
			if now.Placed > began {
				n.Is = Mode
			}
			if now.CTime <= began || were[p] != nil {
				n.Handle = handleAt(parent, path.Base(p))
			}
			also.There[p] = n
			continue
		}
		if now.Kind != beneath.File || now.CTime > began || now.Size > min(maxMerge, room-sum) {
			also.There[p] = Noted{Is: Some}
			continue
		}
		b := base{path: p}
		if err := b.read(ctx, parent, began, min(maxMerge, room-sum)); err != nil {
			also.There[p] = Noted{Is: Some} // somebody is changing it
			continue
		}
		some = append(some, b)
		if sum += int64(len(b.content)); sum >= keepBytes {
			return some, paths[i+1:], nil
		}
	}
	return some, nil, nil
}

// read reads a file of a source as it has been since the session began, of at most so many bytes.
func (b *base) read(ctx context.Context, parent int, began, most int64) error {
	fd, err := beneath.Open(parent, path.Base(b.path), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st, after unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ctim.Nano() > began || st.Size > most {
		return errTouched
	}
	b.content = make([]byte, st.Size)
	for n := 0; n < len(b.content); {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		m, err := unix.Read(fd, b.content[n:min(n+readPart, len(b.content))])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && m == 0:
			return errTouched
		case err != nil:
			return err
		}
		n += m
	}
	if err := unix.Fstat(fd, &after); err != nil {
		return err
	}
	if after.Ctim != st.Ctim || after.Size != st.Size {
		return errTouched
	}
	sum := sha256.Sum256(b.content)
	b.baseHead = baseHead{st.Mode & 0o777, raw(sum[:]), whichOf(&st)}
	return nil
}

// wrote says whether a job has written what is there, as far as a look without its content
// tells, and the session has it too.
func (o own) wrote(v version) bool {
	return o != own{} && o.Of == "" && o.CTime == v.CTime && o.Size == v.Size
}

// replaces says whether a directory would go, or get other permissions, that is not as it was
// when the session began.
func (s *survey) replaces(c *change) bool {
	switch {
	case c.now.Kind != beneath.Dir || s.job.Copy != nil:
		return false
	case c.kind != beneath.Dir || c.status == client.ChangeModified:
		if parent, err := s.dir(path.Dir(c.path)); err != nil || s.begun.anotherAt(parent, path.Base(c.path), c.path) {
			return true
		}
	}
	if c.kind != beneath.Dir {
		return s.bases.another(c.path, c.now, s.since(c), s.own)
	}
	return s.bases.moded(c.path, c.now, s.since(c), s.own)
}

// unchanged says whether what the session has is what it began with.
func (s *survey) unchanged(c *change) bool {
	if o, wrote := s.own[c.path]; wrote && !o.Lent || s.job.Copy != nil {
		return false
	}
	switch c.kind {
	case "":
		return s.bases.notes[c.path].Is == Nothing
	case beneath.Dir:
		perm, known := s.bases.dirMode(c.path)
		return known && c.old == beneath.Dir && perm == c.perm
	case beneath.File:
		head := s.heads[c.path]
		return head.Sum != "" && head.Perm == c.perm && string(head.Sum) == c.sum
	}
	return false
}

// since is the change time after which a file of the source was changed beside the session.
func (s *survey) since(c *change) int64 { return cmp.Or(c.since, s.job.Since-s.job.Back) }

// dirs has those directories open that lead to where a walk is, so that each is looked up
// once: what is in it is of one directory, though somebody should put another into its
// place.
type dirs struct {
	open  []openDir
	begun begun
}

// openDir is an open directory.
type openDir struct {
	path string
	fd   int
	err  error // why it cannot be opened
	// another: it is not the one that the session began with, once that was looked at.
	looked, another bool
	// swapped: it is surely not, once that was compared.
	compared, swapped bool
	// unsure: it may be another one, once its times were looked at.
	timed, unsure bool
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
