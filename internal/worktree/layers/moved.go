package layers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// Moved is a directory that a session has renamed, or that lies in one which it has: an
// overlay finds its files in the source by the path that it had there. The files that the
// session did not change are nowhere else.
type Moved struct {
	Path string // in the worktree; it may have more than beneath.MaxPath bytes
	// From is in the source; "" where that is not known, since paths are too long or too many to look
	// at: the first of those stands for all, of which there are More.
	From string
	More int
	// Handle is what the kernel kept of the directory at From when the session first changed
	// it, as beneath.Handle gives it, which no other directory ever has. It is nil
	// where the file system of the source has none.
	Handle []byte
}

// Incomplete is a moved directory of which the source does not have all files any more.
type Incomplete struct {
	Path string `json:"path"`
	From string `json:"from"`
	Why  string `json:"why"`
	// Gone: nothing is left of what was there. The files may come back to their place.
	Gone bool `json:"gone,omitempty"`
}

// maxPath bounds the paths in which moved directories are looked for, in bytes, and maxDeep their
// directories. Each directory is opened by its path, so that the time which a session can take grows
// with the square of that.
const (
	maxPath = 4 * beneath.MaxPath
	maxDeep = 512
)

// maxSteps bounds the names that are looked up for all directories that are opened. An open counts as
// openSteps more.
const (
	maxSteps  = 40_000_000
	openSteps = 20
)

// maxNear bounds the directories of one layer that stay open, from which those below are opened, and
// maxAllNear those of all.
const (
	maxNear    = 8
	maxAllNear = 256
)

// maxFound bounds what FindMoved gives, in bytes of paths: a session may have a hundred thousand
// directories of which each has a path that is nearly as long as may be.
const maxFound = 32 << 20

// FindMoved finds the directories of a tree that are moved, in the order of their paths. It reads the
// layers as the kernel does when it looks names up in an overlay of them, and opens
// directories alone.
func FindMoved(ctx context.Context, s *Store, t *Tree) ([]Moved, error) {
	m := &mover{ctx: ctx, room: maxFound, steps: maxSteps, rest: -1}
	err := m.find(s, t)
	return m.found, err
}

func (m *mover) find(s *Store, t *Tree) error {
	open, err := s.OpenLayers(t.Layers())
	if err != nil {
		return err
	}
	defer open.Close()
	defer m.close()
	for _, l := range open.Files {
		fd, err := beneath.Open(int(l.Fd()), "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if errors.Is(err, unix.ENOENT) {
			continue // it was never mounted
		}
		if err != nil {
			return err
		}
		m.top = append(m.top, place{len(m.roots), "."})
		m.roots, m.near = append(m.roots, fd), append(m.near, nil)
	}
	m.top = append(m.top, place{len(m.roots), "."})
	return m.walk("", m.top)
}

// place is a path in a layer; the source comes after the last one.
type place struct {
	layer int
	path  string
}

// mover is what goes on in FindMoved.
type mover struct {
	ctx   context.Context //nolint:containedctx // of the one walk that it lives for
	roots []int           // of the layers, the uppermost first
	near  [][]nearby      // in each layer on the way to where the walk is, an upper one first
	open  int             // how many of them
	top   []place         // where the worktree's top is: in all of them
	found []Moved
	room  int // of maxFound
	steps int // of maxSteps
	rest  int // which of found stands for those that are not there; -1 for none
}

// nearby is a directory that stays open.
type nearby struct {
	path string
	fd   int
}

func (m *mover) close() {
	for i, fd := range m.roots {
		m.leave(i, 0)
		_ = unix.Close(fd)
	}
}

// leave closes all but the first n directories that are open in a layer.
func (m *mover) leave(layer, n int) {
	for _, d := range m.near[layer][n:] {
		_ = unix.Close(d.fd)
		m.open--
	}
	m.near[layer] = m.near[layer][:n]
}

// stay keeps a directory open, below those that are. Where they are too many, one of those goes that
// has others close by.
func (m *mover) stay(p place, fd int) {
	n := len(m.near[p.layer])
	for n > 0 && !strings.HasPrefix(p.path, m.near[p.layer][n-1].path+"/") {
		n--
	}
	m.leave(p.layer, n)
	all := m.near[p.layer]
	if p.path == "." || m.open >= maxAllNear {
		_ = unix.Close(fd)
		return
	}
	if len(all) == maxNear {
		least := 0
		for i := range all[1:] {
			if len(all[i+1].path)-way(all, i) < len(all[least+1].path)-way(all, least) {
				least = i
			}
		}
		_ = unix.Close(all[least].fd)
		m.open--
		all = slices.Delete(all, least, least+1)
	}
	m.near[p.layer] = append(all, nearby{p.path, fd})
	m.open++
}

// way is the length of the path to the directory before one of those that are open.
func way(all []nearby, i int) int {
	if i == 0 {
		return 0
	}
	return len(all[i-1].path)
}

// add puts a directory on the list.
func (m *mover) add(d Moved) {
	if m.room -= len(d.Path) + len(d.From); m.room < 0 {
		m.more(path.Split(d.Path))
		return
	}
	m.found = append(m.found, d)
}

// more counts a directory that has no place on the list.
func (m *mover) more(dir, name string) {
	if m.rest >= 0 {
		m.found[m.rest].More++
		return
	}
	m.rest = len(m.found)
	m.found = append(m.found, Moved{Path: path.Join(dir, name)})
}

// walk goes through the directories that layers have in one which lies at these places.
func (m *mover) walk(dir string, at []place) error {
	names, err := m.names(at)
	if err != nil {
		return err
	}
	deep := strings.Count(dir, "/") >= maxDeep
	for _, name := range names {
		if deep || m.steps < 0 || len(dir)+len("/")+len(name) > maxPath {
			m.more(dir, name)
			continue
		}
		here := path.Join(dir, name)
		l := lookup{mover: m, want: name}
		below, err := l.run(at)
		if err != nil {
			return err
		}
		if len(below) == 0 {
			continue
		}
		if last := below[len(below)-1]; last.layer == len(m.roots) && last.path != here && l.copied {
			m.add(Moved{Path: here, From: last.path, Handle: l.handle})
		}
		if err := m.walk(here, below); err != nil {
			return err
		}
	}
	return nil
}

// names are the directories that the layers have in one which lies at these places. What is
// no directory hides those below it.
func (m *mover) names(at []place) (dirs []string, err error) {
	seen := make(map[string]bool)
	for _, p := range at {
		if p.layer == len(m.roots) {
			break
		}
		if err := context.Cause(m.ctx); err != nil {
			return nil, err
		}
		fd, err := m.at(p)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || err == nil && fd < 0 {
			continue // calls go on: it was replaced or removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		entries, err := entriesOf(fd)
		if m.stay(p, fd); err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
		for _, e := range entries {
			if !seen[e.Name()] && e.IsDir() {
				dirs = append(dirs, e.Name())
			}
			seen[e.Name()] = true
		}
	}
	slices.Sort(dirs)
	return dirs, nil
}

// entriesOf lists an open directory, which stays open.
func entriesOf(fd int) ([]os.DirEntry, error) {
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(again), "")
	defer d.Close()
	return d.ReadDir(-1)
}

// at opens a directory of a layer, from the last one that is open on the way to it; -1 where it has
// gone.
func (m *mover) at(p place) (int, error) {
	all := m.near[p.layer]
	n := len(all)
	for n > 0 && !strings.HasPrefix(p.path, all[n-1].path+"/") {
		n--
	}
	dir, rest := m.roots[p.layer], p.path
	if n > 0 {
		dir, rest = all[n-1].fd, p.path[len(all[n-1].path)+1:]
	}
	m.steps -= openSteps + strings.Count(rest, "/")
	fd, err := beneath.OpenLong(dir, rest, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENAMETOOLONG) {
		return -1, nil
	}
	return fd, err
}

// lookup finds out where a directory of the worktree lies, layer by layer.
type lookup struct {
	*mover
	// want is what is looked for in the next layer: a name there, or from "/" on a path
	// below its top.
	want   string
	stop   bool // nothing below counts
	origin      // as the lowest layer has it that has the directory
}

// origin is what a layer says of where a directory comes from.
type origin struct {
	copied, opaque bool   // from a layer below, which counts; or it hides those
	handle         []byte // what it was there
}

// run gives the places of the directory, where those of its parent are given.
func (l *lookup) run(parent []place) (at []place, err error) {
	for left := parent; len(left) > 0 && !l.stop; {
		p := left[0]
		left = left[1:]
		whole := strings.HasPrefix(l.want, "/")
		if p.layer == len(l.roots) {
			return append(at, place{p.layer, path.Join(p.path, strings.TrimPrefix(l.want, "/"))}), nil
		}
		found, err := l.in(p)
		if err != nil {
			return nil, err
		}
		if found != "" {
			at = append(at, place{p.layer, found})
		}
		if !whole && strings.HasPrefix(l.want, "/") {
			left = l.top[p.layer+1:]
		}
	}
	return at, nil
}

// in looks in one layer, and says where the directory is there; "" where it has none. Each
// directory on a path may say that the layers below have it under another name.
func (l *lookup) in(p place) (found string, err error) {
	below, way, last := "", p.path, origin{}
	if strings.HasPrefix(l.want, "/") {
		below, way = "/", "."
	}
	names := strings.Split(strings.TrimPrefix(l.want, "/"), "/")
	for i, name := range names {
		way = path.Join(way, name)
		fd, err := l.at(place{p.layer, way})
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			l.stop = true // something else is there, or nothing is to be
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if fd < 0 {
			l.want = below + strings.Join(names[i:], "/")
			return "", nil
		}
		to, is, err := read(fd, name)
		_ = unix.Close(fd)
		if err != nil {
			return "", err
		}
		if last = is; is.opaque {
			l.stop = true
		}
		if strings.HasPrefix(to, "/") {
			below, l.stop = "", false
		}
		below += to + "/"
	}
	l.want, l.origin = strings.TrimSuffix(below, "/"), last
	return way, nil
}

// The attributes that an overlay gives to directories of its upper layer. No process without
// the daemon's rights can set them.
const (
	attrOpaque   = "trusted.overlay.opaque"
	attrRedirect = "trusted.overlay.redirect"
	attrOrigin   = "trusted.overlay.origin"
)

// read reads what a directory of a layer says about those below it, and gives its name there.
func read(fd int, name string) (below string, is origin, err error) {
	from, copied, err := attribute(fd, attrOrigin)
	if err != nil {
		return "", is, err
	}
	is.copied, is.handle = copied, handleOf([]byte(from)) // it is empty for a source without handles
	opaque, _, err := attribute(fd, attrOpaque)
	if err != nil {
		return "", is, err
	}
	if opaque == "y" {
		is.opaque = true
		return name, is, nil
	}
	to, _, err := attribute(fd, attrRedirect)
	if err != nil {
		return "", is, err
	}
	if to != "" {
		is.copied = true
		return to, is, nil
	}
	return name, is, nil
}

// Origin gives the handle, as beneath.Handle, of the directory from which an open one of a layer was
// copied; nil where none was kept.
func Origin(fd int) ([]byte, error) {
	from, _, err := attribute(fd, attrOrigin)
	return handleOf([]byte(from)), err
}

// Hides says whether an open directory of a layer hides what the layers below and the source have
// at its path, and whether it is one that was moved, with files that have another path there.
func Hides(fd int) (opaque, moved bool, err error) {
	below, is, err := read(fd, "")
	return is.opaque, below != "", err
}

// attribute is one of a directory, and whether it has one of that name.
func attribute(fd int, name string) (value string, there bool, err error) {
	var buf [beneath.MaxPath + 1]byte // an overlay writes 256 bytes at most, and mount.Weld whole paths
	n, err := unix.Fgetxattr(fd, name, buf[:])
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("%s: %w", name, err)
	}
	return string(buf[:n]), true, nil
}

// An overlay keeps the handle of what it has copied behind a head: version, magic number, length
// of all, flags, type of the handle, UUID of the file system.
const (
	originMagic = 0xfb
	originType  = 4
	originHead  = 21
)

// handleOf gives the type of the handle in such an attribute, and its bytes; nil for none.
func handleOf(attr []byte) []byte {
	if len(attr) <= originHead || attr[0] != 0 || attr[1] != originMagic || int(attr[2]) != len(attr) {
		return nil
	}
	return append([]byte{attr[originType]}, attr[originHead:]...)
}
