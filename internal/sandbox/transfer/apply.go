package transfer

import (
	"archive/tar"
	"context"
	"crypto/rand"
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

const maxListed = 100

func (r *Report) conflict(p string) {
	if r.ConflictCount++; len(r.Conflicts) < maxListed {
		r.Conflicts = append(r.Conflicts, p)
	}
}

func (r *Report) refuse(p string) {
	if r.RefuseCount++; len(r.Refused) < maxListed {
		r.Refused = append(r.Refused, p)
	}
}

// Apply makes dir look like the archive, as far as that differs from the manifest
// and dir is still as the manifest says. The archive's names begin with prefix. It
// is read twice: first to see that it is whole.
func Apply(ctx context.Context, dir *os.File, owner Owner, was *Manifest, archive io.ReadSeeker, prefix string, limits Limits) (*Report, error) {
	a := &applier{ctx: ctx, dir: int(dir.Fd()), was: was.entries, prefix: prefix, limits: limits, report: &Report{}}
	err := whole(archive)
	if err == nil {
		err = a.list(archive)
	}
	if err == nil {
		_, err = archive.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = as(owner, func() error {
			a.remove()
			return a.each(archive, a.entry)
		})
	}
	if err != nil {
		return a.report, fmt.Errorf("apply changes to %s: %w", dir.Name(), err)
	}
	return a.report, nil
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
	now    map[string]Kind // what the archive has
	prefix string
	limits Limits
	report *Report
}

var errNoRoot = errors.New("the archive does not hold the worktree")

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
				return errNoRoot
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
	a.now = map[string]Kind{}
	var total int64
	n := 0
	return a.each(archive, func(rel string, kind Kind, h *tar.Header, _ io.Reader) error {
		if n++; n > 2*a.limits.Files {
			return fmt.Errorf("more than %d files came back: %w", 2*a.limits.Files, ErrTooLarge)
		}
		if total += h.Size; h.Size < 0 || total > 2*a.limits.Bytes {
			return fmt.Errorf("more than %d MiB came back: %w", 2*a.limits.Bytes>>20, ErrTooLarge)
		}
		if kind == "" {
			a.report.refuse(h.Name)
			return nil
		}
		if _, twice := a.now[rel]; twice {
			return fmt.Errorf("the archive has %q twice", rel)
		}
		a.now[rel] = kind
		return nil
	})
}

// remove removes what the archive no longer has, or has as something else; the
// deepest first.
func (a *applier) remove() {
	for _, rel := range slices.Backward(slices.Sorted(maps.Keys(a.was))) {
		e := a.was[rel]
		if a.now[rel] == e.Kind || a.ctx.Err() != nil {
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
	parent, err := a.parent(e.Path)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	st, err := lstat(parent, path.Base(e.Path))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
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

// parent opens the directory that rel is in.
func (a *applier) parent(rel string) (int, error) {
	return openat(a.dir, path.Dir(rel), unix.O_PATH|unix.O_DIRECTORY, 0)
}

func lstat(dir int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	return st, unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
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
	parent, err := a.parent(rel)
	if err != nil {
		return false, err
	}
	defer unix.Close(parent)
	name := path.Base(rel)
	st, err := lstat(parent, name)
	there := err == nil
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return false, err
	}
	e := a.was[rel]
	if e != nil && e.Kind != kind {
		e = nil // it was removed
	}
	perm := uint32(h.Mode) & 0o777
	// Ours may have changed only where the other side has not.
	may := !there && e == nil || there && e != nil && e.untouched(&st)
	switch kind {
	case Dir:
		return a.putDir(parent, name, perm, e, there, may)
	case Link:
		if e != nil && e.Link == h.Linkname {
			return false, nil
		}
		if !may || len(h.Linkname) > maxPath || h.Linkname == "" {
			return false, errTouched
		}
		return true, replace(parent, name, func(tmp string) error { return unix.Symlinkat(h.Linkname, parent, tmp) })
	default:
		return a.putFile(parent, name, perm, e, may, h, r)
	}
}

func (a *applier) putDir(parent int, name string, perm uint32, e *Entry, there, may bool) (bool, error) {
	switch {
	case e != nil && e.Perm == perm:
		return false, nil
	case !may:
		return false, errTouched
	case !there:
		return true, unix.Mkdirat(parent, name, perm|0o700)
	}
	fd, err := openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	return true, unix.Fchmod(fd, perm|0o700)
}

// putFile writes a file beside the old one, and into its place only where it is
// another one.
func (a *applier) putFile(parent int, name string, perm uint32, e *Entry, may bool, h *tar.Header, r io.Reader) (bool, error) {
	if h.Typeflag == tar.TypeLink {
		other, err := a.linked(h.Linkname)
		if err != nil {
			return false, err
		}
		defer other.Close()
		r = other
	}
	if e != nil && h.Size != e.Size && h.Typeflag == tar.TypeReg && !may {
		return false, errTouched
	}
	tmp := tempName()
	fd, err := openat(parent, ".", unix.O_RDWR|unix.O_TMPFILE, uint64(perm))
	named := errors.Is(err, unix.EOPNOTSUPP)
	if named {
		fd, err = openat(parent, tmp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, uint64(perm))
	}
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	drop := func() {
		if named {
			_ = unix.Unlinkat(parent, tmp, 0)
		}
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), r); err != nil {
		drop()
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
			err = fmt.Errorf("%w: %w", errArchive, err)
		}
		return false, err
	}
	if e != nil && [sha256.Size]byte(sum.Sum(nil)) == e.SHA256 && perm == e.Perm {
		drop()
		return false, nil
	}
	if !may {
		drop()
		return false, errTouched
	}
	if err := unix.Fchmod(fd, perm); err != nil {
		drop()
		return false, err
	}
	if named {
		if err := unix.Renameat(parent, tmp, parent, name); err != nil {
			drop()
			return false, err
		}
		return true, nil
	}
	return true, replace(parent, name, func(tmp string) error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), parent, tmp, unix.AT_SYMLINK_FOLLOW)
	})
}

// linked opens what a hard link in the archive names, as it is on this side: the
// archive has it before.
func (a *applier) linked(name string) (*os.File, error) {
	rel, ok := a.rel(name)
	if !ok || a.now[rel] != File {
		return nil, fmt.Errorf("a link to %q, which the archive does not have", name)
	}
	fd, err := openat(a.dir, rel, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || kindOf(st.Mode) != File {
		_ = unix.Close(fd)
		return nil, errors.Join(err, errTouched)
	}
	return os.NewFile(uintptr(fd), rel), nil
}

// replace makes something under a name of its own and then gives it its name.
func replace(parent int, name string, make func(tmp string) error) error {
	tmp := tempName()
	if err := make(tmp); err != nil {
		return err
	}
	if err := unix.Renameat(parent, tmp, parent, name); err != nil {
		_ = unix.Unlinkat(parent, tmp, 0)
		return err
	}
	return nil
}

func tempName() string { return ".toold-" + rand.Text() }
