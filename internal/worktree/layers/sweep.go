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

// Hold keeps layers until release, though the trees that name them may go.
func (s *Store) Hold(names ...[]string) (release func()) {
	all := slices.Concat(names...)
	add := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, l := range all {
			if s.held[l] += n; s.held[l] == 0 {
				delete(s.held, l)
			}
		}
	}
	add(1)
	return sync.OnceFunc(func() { add(-1) })
}

// Unused are the layers in the state directory, and the disks, that no tree names and nobody
// holds. While one tree cannot be read there are none, and its UnreadableError is given.
func (s *Store) Unused() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unusedLocked()
}

func (s *Store) unusedLocked() ([]string, error) {
	trees, err := s.allLocked()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, t := range trees {
		for _, p := range t.Places() {
			used[p] = true
		}
	}
	var unused []string
	for _, p := range places(slices.Collect(maps.Keys(s.held))) {
		used[p] = true
	}
	for _, dir := range []string{s.layers(), s.disks.dir} {
		entries, e := os.ReadDir(dir)
		for _, f := range entries {
			n := f.Name()
			kind := strings.TrimPrefix(n, removing)
			if (dir != s.disks.dir || strings.HasPrefix(kind, diskPrefix) && !s.disks.used(n)) && !used[n] {
				unused = append(unused, n)
			}
		}
		err = errors.Join(err, e)
	}
	return unused, err
}

// allLocked is All where what cannot be read is an error.
func (s *Store) allLocked() ([]*Tree, error) {
	trees, unreadable, err := s.All()
	if err == nil && len(unreadable) > 0 {
		err = unreadable[0]
	}
	return trees, err
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

// Sweep removes layers and disks that no tree names, and what a store that was killed was
// writing.
func (s *Store) Sweep() error {
	old, err := s.retire()
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
	return errors.Join(err, s.sweepDisks())
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
func (s *Store) retire() (old []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unused, err := s.unusedLocked()
	for _, l := range unused {
		if !strings.HasPrefix(l, removing) {
			if e := os.Rename(s.place(l), s.place(removing+l)); e != nil {
				err = errors.Join(err, e)
				continue
			}
			l = removing + l
		}
		old = append(old, l)
	}
	return old, errors.Join(err, beneath.RemoveMatching(filepath.Join(s.trees(), writing+"*"), ""))
}

// sweepDisks removes layers that no tree names from the disks of trees that lost some.
func (s *Store) sweepDisks() (errs error) {
	s.mu.Lock()
	loose := slices.Collect(maps.Keys(s.loose))
	clear(s.loose)
	s.mu.Unlock()
	for _, d := range loose {
		root, err := s.disks.hold(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is gone as a whole
		}
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		old, err := s.retireOn(d, root)
		for _, l := range old {
			err = errors.Join(err, gone(beneath.RemoveAll(onDisk(root, l))))
			s.sizesMu.Lock()
			delete(s.sizes, d+"."+strings.TrimPrefix(l, removing))
			s.sizesMu.Unlock()
		}
		s.disks.release(d)
		errs = errors.Join(errs, err)
	}
	return errs
}

// retireOn is retire for the layers on a disk.
func (s *Store) retireOn(disk string, root *os.File) (old []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	trees, err := s.allLocked()
	if err != nil {
		s.loose[disk] = struct{}{}
		return nil, err
	}
	used := map[string]bool{}
	for _, t := range trees {
		for _, l := range t.All() {
			used[l] = true
		}
	}
	names, err := s.onDisk(disk)
	for _, n := range names {
		if used[disk+"."+n] {
			continue
		}
		if s.held[disk+"."+n] > 0 {
			s.loose[disk] = struct{}{} // it may be nobody's later
			continue
		}
		if !strings.HasPrefix(n, removing) {
			if e := os.Rename(onDisk(root, n), onDisk(root, removing+n)); e != nil {
				err = errors.Join(err, e)
				continue
			}
			n = removing + n
		}
		old = append(old, n)
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
