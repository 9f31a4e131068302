package apply

import (
	"bytes"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// Begun gives the handle, as beneath.Handle, of the directory of the source over which the session's
// changes at a path lie; nil where that is not known. It is asked in the order of a walk, with the
// daemon's own ids.
type Begun func(dir string) ([]byte, error)

// maxBegun bounds the directories whose handles are remembered: of the others times tell.
const maxBegun = 200_000

// begun has the handles of directories, by path.
type begun map[string][]byte

// lead adds those of the directories that lead to a path, or that it is itself. Before is the path
// before, whose directories are known already.
func (f Begun) lead(all begun, before, path string, self bool) error {
	if f == nil {
		return nil
	}
	for i := range len(path) + 1 {
		switch {
		case i < len(path) && path[i] != '/', i == len(path) && !self, len(all) >= maxBegun, i < len(path) && strings.HasPrefix(before, path[:i+1]):
			continue
		}
		handle, err := f(path[:i])
		if err != nil {
			return err
		}
		if handle != nil {
			all[path[:i]] = handle
		}
	}
	return nil
}

// but takes out what jobs of the session have made.
func (b begun) but(all map[string]own) {
	for p, o := range all {
		if !o.Lent {
			delete(b, p)
		}
	}
}

// another reports whether an open directory is surely not the one that the session's changes lie over,
// whatever its times are: one that was moved there may be of any age.
func (b begun) another(fd int, path string) bool {
	was := b[path]
	if was == nil {
		return false
	}
	now, err := beneath.Handle(fd)
	return err != nil || now != nil && !bytes.Equal(now, was)
}

// begun gives the handles of directories that notes have.
func (b *bases) begun() begun {
	all := make(begun)
	for p, n := range b.notes {
		if n.Handle != "" {
			all[p] = []byte(n.Handle)
		}
	}
	return all
}

// handleAt is the handle of a directory, which has that name in another one; "" where it has none.
func handleAt(parent int, name string) raw {
	fd, err := beneath.Open(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	handle, _ := beneath.Handle(fd) // times tell then
	return raw(handle)
}

// anotherAt is another of what a directory has by a name.
func (b begun) anotherAt(parent int, name, path string) bool {
	if b[path] == nil {
		return false
	}
	fd, err := beneath.Open(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false // it is none, which is seen elsewhere
	}
	defer unix.Close(fd)
	return b.another(fd, path)
}

// swapped reports whether a directory that leads to where a walk is is another one than the session's
// changes lie over: then all that is in it is somebody's.
func (s *dirs) swapped() bool {
	for i := 1; i < len(s.open); i++ {
		d := &s.open[i]
		if d.err == nil && !d.compared {
			d.compared, d.swapped = true, s.begun.another(d.fd, d.path)
		}
		if d.swapped {
			return true
		}
	}
	return false
}

// unsure reports whether a directory that leads to where a walk is may be another one than the session's
// changes lie over: it has changed since then, and nobody knows which one it was. One that is moved changes.
func (s *dirs) unsure(began int64) bool {
	for i := 1; i < len(s.open); i++ {
		d := &s.open[i]
		if d.err == nil && !d.timed {
			var st unix.Stat_t
			d.timed, d.unsure = true, s.begun[d.path] == nil && (unix.Fstat(d.fd, &st) != nil || st.Ctim.Nano() > began)
		}
		if d.unsure {
			return true
		}
	}
	return false
}
