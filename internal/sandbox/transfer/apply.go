package transfer

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// Report is what Apply has done.
type Report struct {
	Written, Removed int
	// Conflicts were changed on both sides, and are as they were on this one.
	// Refused are entries that cannot be copied: devices, bad names and the like.
	// Both hold the first maxListed paths; the counts are of all.
	Conflicts, Refused         []string
	ConflictCount, RefuseCount int
}

const (
	maxListed = 100
	maxShown  = 255
)

func (r *Report) conflict(p string) {
	if r.ConflictCount++; len(r.Conflicts) < maxListed {
		r.Conflicts = append(r.Conflicts, p)
	}
}

func (r *Report) refuse(p string) {
	if r.RefuseCount++; len(r.Refused) < maxListed {
		r.Refused = append(r.Refused, p[:min(len(p), maxShown)]) // archives know names of a mebibyte
	}
}

// Apply makes dir look like the archive, as far as that differs from the manifest
// and dir is still as the manifest says. The archive's names begin with prefix. It
// is read twice: first to see that it is whole. What is here already as the archive
// has it is no conflict, so that Apply may be called again where it was interrupted.
// With an error, the report is of what was done until then, or nil.
func Apply(ctx context.Context, dir *os.File, owner Owner, was *Manifest, archive io.ReadSeeker, prefix string, limits Limits) (*Report, error) {
	a := &applier{ctx: ctx, was: was.entries, prefix: prefix, limits: limits, report: &Report{}}
	err := whole(archive)
	if err == nil {
		err = a.list(archive)
	}
	if err == nil {
		_, err = archive.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = beneath.As(ctx, owner.user(), dir, func(root int) error {
			a.dir = root
			a.remove()
			if err := a.each(archive, a.entry); err != nil {
				return err
			}
			a.closeDirs()
			return a.sync()
		})
	}
	if err != nil {
		err = fmt.Errorf("apply changes to %s: %w", dir.Name(), err)
	}
	if errors.Is(err, beneath.ErrStuck) {
		return nil, err
	}
	return a.report, err
}

// whole sees that an archive ends as archives do, with two empty blocks, and goes
// back to its beginning. One that was cut between two files looks like one from
// which the others were removed.
func whole(archive io.ReadSeeker) error {
	var end [1024]byte
	if _, err := archive.Seek(-int64(len(end)), io.SeekEnd); err != nil {
		return fmt.Errorf("%w: it is too short", errArchive)
	}
	if _, err := io.ReadFull(archive, end[:]); err != nil {
		return err
	}
	if end != [1024]byte{} {
		return fmt.Errorf("%w: its end is missing", errArchive)
	}
	_, err := archive.Seek(0, io.SeekStart)
	return err
}

type applier struct {
	ctx    context.Context
	dir    int
	was    map[string]*Entry
	now    map[string]coming // what the archive has
	prefix string
	limits Limits
	report *Report
	closed []closedDir
}

// closedDir is a directory that gets, when all is in it, a mode in which its owner
// could not have put it there.
type closedDir struct {
	rel  string
	perm uint32
}

func (a *applier) closeDirs() {
	for _, d := range slices.Backward(a.closed) { // what is in it comes after it
		fd, err := beneath.Open(a.dir, d.rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err == nil {
			err = unix.Fchmod(fd, d.perm)
			_ = unix.Close(fd)
		}
		if err != nil {
			a.report.conflict(d.rel)
		}
	}
}

// coming is an entry of the archive.
type coming struct {
	kind Kind
	size int64 // of a file; of a hard link, what it leads to
	// linked: hard links lead to it. here: it is on this side, too, by now; that is
	// found out for what is linked alone.
	linked, here bool
	same         bool // a file with the content that went in
}

// ErrNoRoot: the archive does not even hold the worktree itself. It was not taken as it
// should have been: by an Engine on its way down, for one.
var ErrNoRoot = errors.New("the archive does not hold the worktree")

// sync waits until all is on the disk: who has the other side may remove it then.
func (a *applier) sync() error {
	if a.report.Written+a.report.Removed == 0 {
		return nil
	}
	return beneath.Sync(a.dir)
}

// each calls visit for the entries of the archive whose names are good.
func (a *applier) each(archive io.Reader, visit func(rel string, kind Kind, h *tar.Header, r io.Reader) error) error {
	t := tar.NewReader(archive)
	root := false
	for {
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			if !root {
				return ErrNoRoot
			}
			return nil
		}
		if err != nil {
			return err
		}
		rel, ok := a.rel(h.Name)
		if ok && rel == "" {
			root = h.Typeflag == tar.TypeDir
			continue
		}
		kind := kindOfHeader(h)
		if !ok {
			kind = ""
		}
		if err := visit(rel, kind, h, t); err != nil {
			return err
		}
	}
}

func kindOfHeader(h *tar.Header) Kind {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeLink:
		return File
	case tar.TypeDir:
		return Dir
	case tar.TypeSymlink:
		return Link
	}
	return ""
}

// rel is the path below the worktree of a name in the archive.
func (a *applier) rel(name string) (string, bool) {
	rel, ok := strings.CutPrefix("/"+strings.Trim(name, "/")+"/", "/"+a.prefix+"/")
	rel = strings.TrimSuffix(rel, "/")
	if rel == "" {
		return "", ok
	}
	good := ok && len(rel) <= maxPath && path.Clean(rel) == rel && !strings.HasPrefix(rel, "/") &&
		rel != ".." && !strings.HasPrefix(rel, "../") && !strings.Contains(rel, "\x00") && strings.Count(rel, "/") <= maxDepth
	return rel, good
}

// list reads the archive to its end, within the limits.
func (a *applier) list(archive io.Reader) error {
	a.now = map[string]coming{}
	var total int64
	n, names := 0, 0
	return a.each(archive, func(rel string, kind Kind, h *tar.Header, r io.Reader) error {
		if n++; n > 2*a.limits.Files {
			return fmt.Errorf("more than %d files came back: %w", 2*a.limits.Files, ErrTooLarge)
		}
		size := h.Size
		if to, ok := a.rel(h.Linkname); ok && h.Typeflag == tar.TypeLink && a.now[to].kind == File {
			c := a.now[to]
			c.linked, size = true, c.size // it is copied once more
			a.now[to] = c
		}
		if total += size; size < 0 || total > 2*a.limits.Bytes {
			return fmt.Errorf("more than %d MiB came back: %w", 2*a.limits.Bytes>>20, ErrTooLarge)
		}
		if kind == "" {
			a.report.refuse(h.Name)
			return nil
		}
		if _, twice := a.now[rel]; twice {
			return fmt.Errorf("the archive has %q twice", rel)
		}
		if names += len(rel); names > 2*a.limits.names() {
			return fmt.Errorf("names of more than %d bytes came back: %w", 2*a.limits.names(), ErrTooLarge)
		}
		same, err := a.same(rel, kind, h, r)
		a.now[rel] = coming{kind: kind, size: size, same: same}
		return err
	})
}

// same says whether a file of the archive has the content that went in. Most have:
// they are not written once more, which in a directory that its owner cannot write to
// would also fail.
func (a *applier) same(rel string, kind Kind, h *tar.Header, r io.Reader) (bool, error) {
	was := a.was[rel]
	if was == nil || was.Kind != File || kind != File || h.Typeflag != tar.TypeReg || h.Size != was.Size {
		return false, nil
	}
	sum, err := fill(io.Discard, r)
	return sum == was.SHA256, err
}

// remove removes what the archive no longer has, or has as something else; the
// deepest first.
func (a *applier) remove() {
	for _, rel := range slices.Backward(slices.Sorted(maps.Keys(a.was))) {
		e := a.was[rel]
		if a.now[rel].kind == e.Kind || a.ctx.Err() != nil {
			continue
		}
		if err := a.unlink(e); err != nil {
			a.report.conflict(rel)
		} else {
			a.report.Removed++
		}
	}
}

var errTouched = errors.New("changed meanwhile")

func (a *applier) unlink(e *Entry) error {
	parent, err := beneath.Parent(a.dir, e.Path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil // it went with its directory
	}
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	st, err := beneath.Lstat(parent, path.Base(e.Path))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if kind := beneath.KindOf(st.Mode); kind != "" && kind == a.now[e.Path].kind {
		return nil // what is to take its place does already
	}
	if !e.untouched(&st) {
		return errTouched
	}
	flags := 0
	if e.Kind == Dir {
		flags = unix.AT_REMOVEDIR
	}
	return unix.Unlinkat(parent, path.Base(e.Path), flags)
}

// entry applies one entry of the archive. Errors that concern it alone are
// conflicts.
func (a *applier) entry(rel string, kind Kind, h *tar.Header, r io.Reader) error {
	if kind == "" {
		return nil // told already
	}
	written, err := a.put(rel, kind, h, r)
	switch {
	case err == nil && written:
		a.report.Written++
	case err == nil:
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, errArchive):
		return fmt.Errorf("%q: %w", rel, err)
	default:
		a.report.conflict(rel)
	}
	return nil
}

// errArchive: the archive cannot be read.
var errArchive = errors.New("the archive is broken")

func (a *applier) put(rel string, kind Kind, h *tar.Header, r io.Reader) (written bool, err error) {
	parent, err := beneath.Parent(a.dir, rel)
	if err != nil {
		return false, err
	}
	defer unix.Close(parent)
	p := &place{parent: parent, name: path.Base(rel), was: a.was[rel]}
	if p.was != nil && p.was.Kind != kind {
		p.was = nil // it was removed
	}
	if err := p.look(); err != nil {
		return false, err
	}
	perm := uint32(h.Mode) & 0o777
	switch kind {
	case Dir:
		written, err := p.putDir(perm)
		if written && err == nil && perm&0o700 != 0o700 {
			a.closed = append(a.closed, closedDir{rel, perm})
		}
		return written, err
	case Link:
		return p.putLink(h.Linkname)
	default:
		return a.putFile(p, rel, perm, h, r)
	}
}

// putFile writes a file beside the old one, and into its place only where it is
// another one.
func (a *applier) putFile(p *place, rel string, perm uint32, h *tar.Header, r io.Reader) (bool, error) {
	c := a.now[rel]
	if h.Typeflag == tar.TypeLink {
		other, err := a.linked(h.Linkname)
		if err != nil {
			return false, err
		}
		defer other.Close()
		r = io.LimitReader(other, c.size)
	}
	if c.same && !c.linked && p.was != nil && p.was.Perm == perm {
		return false, nil
	}
	// Without a look at what is in them: two of one size may be the same.
	asWas, asIs := p.was != nil && p.was.Size == c.size, p.has(File) && p.st.Size == c.size
	if !p.may() && !asWas && !asIs {
		return false, errTouched
	}
	tmp := tempName()
	fd, err := beneath.Open(p.parent, ".", unix.O_RDWR|unix.O_TMPFILE, perm)
	named := errors.Is(err, unix.EOPNOTSUPP)
	if named {
		fd, err = beneath.Open(p.parent, tmp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, perm)
	}
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), p.name)
	defer f.Close()
	sum, err := fill(f, r)
	written := false
	if err == nil {
		written, err = p.takes(f, sum, perm, h.ModTime, func() error {
			if named {
				return unix.Renameat(p.parent, tmp, p.parent, p.name)
			}
			return p.replace(func(tmp string) error {
				return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), p.parent, tmp, unix.AT_SYMLINK_FOLLOW)
			})
		})
	}
	if named && !written {
		_ = unix.Unlinkat(p.parent, tmp, 0)
	}
	if err == nil && c.linked {
		c.here = written || p.holds(sum, perm)
		a.now[rel] = c
	}
	return written, err
}

// fill writes a file of the archive and gives its sum.
func fill(f io.Writer, r io.Reader) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), r); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
			err = fmt.Errorf("%w: %w", errArchive, err)
		}
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

// linked opens what a hard link in the archive names, on this side: the archive has
// had it before, and it is the same here.
func (a *applier) linked(name string) (*os.File, error) {
	rel, ok := a.rel(name)
	if !ok || !a.now[rel].here {
		return nil, fmt.Errorf("a link to %q, which is not as in the archive", name)
	}
	fd, err := beneath.Open(a.dir, rel, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || beneath.KindOf(st.Mode) != File {
		_ = unix.Close(fd)
		return nil, errors.Join(err, errTouched)
	}
	return os.NewFile(uintptr(fd), rel), nil
}
