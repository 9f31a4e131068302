package layers

import (
	"errors"
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

// Unused are the layers that no tree names and nobody holds. While one tree cannot be read
// there are none, and its UnreadableError is given.
func (s *Store) Unused() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unusedLocked()
}

func (s *Store) unusedLocked() ([]string, error) {
	trees, unreadable, err := s.All()
	if err == nil && len(unreadable) > 0 {
		err = unreadable[0]
	}
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, t := range trees {
		for _, l := range t.All() {
			used[l] = true
		}
	}
	entries, err := os.ReadDir(s.layers())
	var unused []string
	for _, e := range entries {
		if !used[e.Name()] && s.held[e.Name()] == 0 {
			unused = append(unused, e.Name())
		}
	}
	return unused, err
}

// removing marks a layer that is being removed: none has such a name.
const removing = ".old-"

// Sweep removes layers that no tree names, and what a store that was killed was writing.
func (s *Store) Sweep() error {
	old, err := s.retire()
	s.sizesMu.Lock()
	for _, l := range old {
		delete(s.sizes, strings.TrimPrefix(l, removing))
	}
	s.sizesMu.Unlock()
	for _, l := range old {
		err = errors.Join(err, beneath.RemoveAll(filepath.Join(s.layers(), l)))
	}
	return err
}

// retire gives layers that no tree names other names, and gives these. Nobody can begin
// with such a layer from then on.
func (s *Store) retire() (old []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unused, err := s.unusedLocked()
	for _, l := range unused {
		if !strings.HasPrefix(l, removing) {
			if e := os.Rename(filepath.Join(s.layers(), l), filepath.Join(s.layers(), removing+l)); e != nil {
				err = errors.Join(err, e)
				continue
			}
			l = removing + l
		}
		old = append(old, l)
	}
	half, e := filepath.Glob(filepath.Join(s.trees(), writing+"*"))
	for _, f := range half {
		e = errors.Join(e, os.Remove(f))
	}
	return old, errors.Join(err, e)
}

// Bytes is what a layer of the tree, or of no tree, uses on the disk; what cannot be
// counted is left out.
func (s *Store) Bytes(t *Tree, layer string) int64 {
	frozen := t != nil && (layer != t.Upper || !t.Ended.IsZero())
	s.sizesMu.Lock()
	n, known := s.sizes[layer]
	s.sizesMu.Unlock()
	if known && frozen {
		return n
	}
	n, err := beneath.Usage(filepath.Join(s.layers(), layer))
	if frozen && err == nil {
		s.sizesMu.Lock()
		s.sizes[layer] = n
		s.sizesMu.Unlock()
	}
	return n
}

// All are the layers of the tree and of its checkpoints, each once.
func (t *Tree) All() []string {
	all := slices.Clone(t.Layers())
	if t.MergedInto != "" {
		all = append(all, t.MergedInto)
	}
	for _, c := range t.Checkpoints {
		all = append(all, c.Layers...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
