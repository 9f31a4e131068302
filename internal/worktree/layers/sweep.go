package layers

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/toold/toold/internal/beneath"
)

// Hold keeps layers until release, though the trees that name them may go. They must be named by
// one or held already, or not be there yet.
func (s *Store) Hold(names ...[]string) (release func()) {
	all := slices.Concat(names...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range all {
		s.held[l]++
		for w := range s.sweeps {
			w.held[l] = true
		}
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, l := range all {
			if s.held[l]--; s.held[l] == 0 {
				delete(s.held, l)
			}
		}
	})
}

// sweep is a look for what no tree names. Trees are read one after the other, while others write
// some: a layer may come to be named by one that was read already, and no longer by one that is not.
// Who does that holds it, as whoever writes a tree holds all that it names. So what is held while a
// sweep goes on, if only for a moment, stays.
type sweep struct {
	*Store
	held map[string]bool // since it began; guarded by Store.mu
}

// sweep begins one. What it looks at must be listed after that, and before used is called.
func (s *Store) sweep() *sweep {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &sweep{s, make(map[string]bool, len(s.held))}
	for l := range s.held {
		w.held[l] = true
	}
	s.sweeps[w] = struct{}{}
	return w
}

func (w *sweep) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sweeps, w)
}

// used are the layers that trees name, and those that are held. While one tree cannot be read nobody
// knows, and its UnreadableError is given.
func (w *sweep) used() (named, held map[string]bool, err error) {
	trees, unreadable, err := w.All()
	if err == nil && len(unreadable) > 0 {
		err = unreadable[0]
	}
	if err != nil {
		return nil, nil, err
	}
	named = map[string]bool{}
	for _, t := range trees {
		for _, l := range t.All() {
			named[l] = true
		}
		if t.Disk != "" && t.Ended.IsZero() {
			named[t.Disk+"."] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return named, maps.Clone(w.held), nil
}

// Unused are the layers in the state directory, and the disks, that no tree names and nobody
// holds. While one tree cannot be read there are none, and its UnreadableError is given.
func (s *Store) Unused() ([]string, error) {
	w := s.sweep()
	defer w.end()
	return w.unused()
}

func (w *sweep) unused() (unused []string, err error) {
	var there []string
	for _, dir := range []string{w.layers(), w.disks.dir} {
		entries, e := os.ReadDir(dir)
		for _, f := range entries {
			n := f.Name()
			if dir != w.disks.dir || strings.HasPrefix(strings.TrimPrefix(n, removing), diskPrefix) && !w.disks.used(n) {
				there = append(there, n)
			}
		}
		err = errors.Join(err, e)
	}
	named, held, e := w.used()
	if e != nil {
		return nil, errors.Join(err, e)
	}
	used := map[string]bool{}
	for _, p := range places(slices.Concat(slices.Collect(maps.Keys(named)), slices.Collect(maps.Keys(held)))) {
		used[p] = true
	}
	return slices.DeleteFunc(there, func(n string) bool { return used[n] }), err
}

// place is where an unused one is.
func (s *Store) place(name string) string {
	if strings.HasPrefix(strings.TrimPrefix(name, removing), diskPrefix) {
		return filepath.Join(s.disks.dir, name)
	}
	return filepath.Join(s.layers(), name)
}

// removing marks a layer that is being removed: none has such a name.
const removing = ".old-"

// Sweep removes layers and disks that no tree names. Disks on which layers may be nobody's are all
// waited for; with trees, those alone that these have layers on. A tree may be nil.
func (s *Store) Sweep(of ...*Tree) error {
	w := s.sweep()
	defer w.end()
	old, err := w.retire()
	s.sizesMu.Lock()
	for _, l := range old {
		delete(s.sizes, strings.TrimPrefix(l, removing))
	}
	s.sizesMu.Unlock()
	for _, l := range old {
		remove := beneath.RemoveAll
		if filepath.Dir(s.place(l)) == s.disks.dir {
			remove = os.Remove
		}
		err = errors.Join(err, gone(remove(s.place(l))))
	}
	return errors.Join(err, w.onDisks(of))
}

// gone is the error of a removal; none where another Sweep has done it.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// retire gives layers and disks that no tree names other names, and gives these. Nobody can
// begin with such a layer from then on.
func (w *sweep) retire() (old []string, err error) {
	unused, err := w.unused()
	for _, l := range unused {
		now, e := rename(l, w.place)
		if err = errors.Join(err, e); now != "" {
			old = append(old, now)
		}
	}
	return old, err
}

// rename marks what is to be removed, and gives the name that it has then; "" where another sweep
// was first.
func rename(name string, at func(string) string) (now string, err error) {
	if strings.HasPrefix(name, removing) {
		return name, nil
	}
	if err := os.Rename(at(name), at(removing+name)); err != nil {
		return "", gone(err)
	}
	return removing + name, nil
}

// onDisks is Sweep for the layers on disks of trees that lost some.
func (w *sweep) onDisks(of []*Tree) (errs error) {
	var loose, some []string
	for _, t := range of {
		if t != nil {
			some = append(some, t.Places()...)
		}
	}
	w.mu.Lock()
	for d := range w.loose {
		if len(of) == 0 || slices.Contains(some, d) {
			loose = append(loose, d)
			delete(w.loose, d)
		}
	}
	w.mu.Unlock()
	for _, d := range loose {
		root, err := w.disks.hold(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is gone as a whole
		}
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		old, err := w.retireOn(d, root)
		for _, l := range old {
			err = errors.Join(err, gone(beneath.RemoveAll(onDisk(root, l))))
			w.sizesMu.Lock()
			delete(w.sizes, d+"."+strings.TrimPrefix(l, removing))
			w.sizesMu.Unlock()
		}
		w.disks.release(d)
		errs = errors.Join(errs, err)
	}
	return errs
}

// retireOn is retire for the layers on a disk.
func (w *sweep) retireOn(disk string, root *os.File) (old []string, err error) {
	names, err := w.onDisk(disk)
	named, held, e := w.used()
	if e != nil {
		w.loosen(&Tree{Disk: disk})
		return nil, errors.Join(err, e)
	}
	for _, n := range names {
		switch l := disk + "." + n; {
		case named[l]:
		case held[l]:
			w.loosen(&Tree{Disk: disk}) // it may be nobody's later
		default:
			now, e := rename(n, func(name string) string { return onDisk(root, name) })
			if err = errors.Join(err, e); now != "" {
				old = append(old, now)
			}
		}
	}
	return old, err
}

// Bytes is what a layer of the tree, or a layer or disk of Places or Unused, uses on the host's
// disk; what cannot be counted is left out.
func (s *Store) Bytes(t *Tree, layer string) int64 {
	if on, _ := split(layer); on == "" && filepath.Dir(s.place(layer)) == s.disks.dir {
		return s.diskBytes(layer)
	}
	frozen := t != nil && (layer != t.Upper || !t.Ended.IsZero())
	s.sizesMu.Lock()
	n, known := s.sizes[layer]
	s.sizesMu.Unlock()
	if known && frozen {
		return n
	}
	path, release, err := s.at(layer)
	if err != nil {
		return 0
	}
	defer release()
	n, err = beneath.Usage(path)
	if frozen && err == nil {
		s.sizesMu.Lock()
		s.sizes[layer] = n
		s.sizesMu.Unlock()
	}
	return n
}

// All are the layers of the tree and of its checkpoints, each once.
func (t *Tree) All() []string {
	all := map[string]struct{}{} // a thousand checkpoints name each of theirs again and again
	add := func(names ...string) {
		for _, l := range names {
			all[l] = struct{}{}
		}
	}
	add(t.Layers()...)
	if t.MergedInto != "" {
		add(t.MergedInto)
	}
	for _, c := range t.Checkpoints {
		add(c.Layers...)
	}
	return slices.Sorted(maps.Keys(all))
}
