package layers

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Laid says that the sandbox has the tree's layers now.
func (s *Store) Laid(session string) (*Tree, error) {
	t, err := s.change(session, func(t *Tree) error { t.Unlaid = false; return nil })
	if err == nil {
		s.refill(t.Disk)
	}
	return t, err
}

// Freeze adds a checkpoint of the tree as it is. When its upper layer has something in it,
// that becomes the uppermost lower one, and the tree has an empty one that is not laid.
func (s *Store) Freeze(session string, c Checkpoint) (*Tree, error) {
	return s.locked(session, func(t *Tree) error {
		if c.Name != "" && slices.ContainsFunc(t.Checkpoints, func(o Checkpoint) bool { return o.Name == c.Name }) {
			return fmt.Errorf("%q: %w", c.Name, ErrTaken)
		}
		layers := s.Present(t)
		if len(layers) > MaxLayers {
			layers = t.merged(layers)
		}
		if len(layers) > MaxLayers {
			return ErrDeep
		}
		c.ID, c.Created = "cp_"+strings.ToLower(rand.Text()[:20]), time.Now().UTC().Truncate(time.Millisecond)
		c.Layers, c.Incomplete = layers, t.Incomplete
		t.Checkpoints = append(t.Checkpoints, c)
		if len(layers) == len(t.Lower) || !t.Ended.IsZero() {
			return s.write(t)
		}
		t.Lower, t.Unlaid = t.merged(layers), true
		t.Merged, t.MergedInto = nil, ""
		return s.renew(t)
	})
}

// Unfreeze takes a checkpoint back whose tree was stored and never laid: what it froze is the
// upper layer again. Another tree that is not laid stays as it is.
func (t *Tree) Unfreeze() {
	last := len(t.Checkpoints) - 1
	if t.Unlaid && last >= 0 && len(t.Lower) > 0 && slices.Equal(t.Checkpoints[last].Layers, t.Lower) {
		t.Upper, t.Lower, t.Checkpoints, t.Unlaid = t.Lower[0], t.Lower[1:], t.Checkpoints[:last], false
	}
}

// merged are layers with that one in the place of those which were merged into it.
func (t *Tree) merged(layers []string) []string {
	n := len(t.Merged)
	for i := 0; n > 0 && i+n <= len(layers); i++ {
		if slices.Equal(layers[i:i+n], t.Merged) {
			return slices.Concat(layers[:i], []string{t.MergedInto}, layers[i+n:])
		}
	}
	return layers
}

// Merge says that a layer is the same as the uppermost n lower ones of a tree, as that was when
// this began, and what was known of moved directories at the end of it: the layer does not say it.
// ErrOther: the tree does not have those layers one over the other any more, and stays as it is.
func (s *Store) Merge(began *Tree, n int, into string, lost []Incomplete, origins map[string]string) error {
	from := began.Lower[:n]
	_, err := s.change(began.Session, func(t *Tree) error {
		was := *t
		if was.Merged, was.MergedInto = from, into; slices.Equal(was.merged(t.Lower), t.Lower) {
			return ErrOther
		}
		t.Merged, t.MergedInto = from, into
		t.Incomplete = slices.Clone(t.Incomplete)
		for _, i := range lost {
			// What was known at the beginning and is not now was discarded meanwhile.
			if !slices.Contains(began.Incomplete, i) && !slices.Contains(t.Incomplete, i) {
				t.Incomplete = append(t.Incomplete, i)
			}
		}
		t.know(origins)
		return nil
	})
	return err
}

// MaxOrigins bounds Tree.Origins.
const MaxOrigins = 10_000

// Know keeps what moved directories are in the source, for those of which nothing is known.
func Know(s *Store, session string, origins map[string]string) (*Tree, error) {
	return s.change(session, func(t *Tree) error { t.know(origins); return nil })
}

func (t *Tree) know(origins map[string]string) {
	all := maps.Clone(t.Origins)
	for from, is := range origins {
		if _, known := all[from]; known || len(all) >= MaxOrigins {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[from] = is
	}
	t.Origins = all
}

// Forgive forgets that directories are incomplete, where these paths are of no use any more.
func Forgive(s *Store, session string, paths []string) (*Tree, error) {
	return s.change(session, func(t *Tree) error {
		t.Incomplete = slices.DeleteFunc(slices.Clone(t.Incomplete), func(i Incomplete) bool {
			return slices.ContainsFunc(paths, func(p string) bool { return p == "." || i.Path == p || strings.HasPrefix(i.Path, p+"/") })
		})
		return nil
	})
}

// Restore gives the tree the layers of a checkpoint of its own, by its id, and an empty
// upper one. It is not laid, unless the session is over.
func (s *Store) Restore(session, checkpoint string) (*Tree, error) {
	return s.reset(session, func(t *Tree) ([]string, error) {
		i := t.index(checkpoint)
		if i < 0 {
			return nil, fmt.Errorf("checkpoint %q: %w", checkpoint, ErrNone)
		}
		for j := range t.Checkpoints[i:] {
			t.Checkpoints[i+j].Undone = true
		}
		t.Incomplete = t.Checkpoints[i].Incomplete
		return t.Checkpoints[i].Layers, nil
	})
}

// Reset drops all that the tree has, but for its checkpoints.
func (s *Store) Reset(session string) (*Tree, error) {
	return s.reset(session, func(t *Tree) ([]string, error) { t.Incomplete, t.Moved = nil, nil; return nil, nil })
}

func (s *Store) reset(session string, to func(*Tree) ([]string, error)) (*Tree, error) {
	return s.locked(session, func(t *Tree) (err error) {
		s.loosen(t)
		if t.Lower, err = to(t); err != nil {
			return err
		}
		t.Merged, t.MergedInto = nil, ""
		if !t.Ended.IsZero() {
			t.Upper = ""
			return s.write(t)
		}
		t.Unlaid = true
		if err = s.renew(t); !errors.Is(err, unix.ENOSPC) {
			return err
		}
		// What fills the disk are checkpoints, or what this is about to take away.
		size, err := s.diskSize(t.Disk)
		if err != nil {
			return err
		}
		disk, release, err := s.NewDisk(size)
		if err != nil {
			return err
		}
		defer release()
		t.Disk = disk
		return s.renew(t)
	})
}

// Settle gives the tree lower layers that are what all of its own are together, but for what
// is lost of moved directories. It is not laid, unless the session is over, and goes on on their
// disk. Of the layers those stay that have something in them.
func (s *Store) Settle(session string, lower []string, lost []Incomplete, moved map[string]string) (*Tree, error) {
	return s.reset(session, func(t *Tree) ([]string, error) {
		t.Incomplete, t.Moved = lost, moved
		lower = slices.DeleteFunc(slices.Clone(lower), s.empty)
		if len(lower) > 0 && t.Disk != "" {
			t.Disk, _ = split(lower[0])
		}
		return lower, nil
	})
}

// Outdate says that changes are about to be applied to the source: no checkpoint that was
// made before can come back. The tree is settled: no directory in it is moved.
func (s *Store) Outdate(session string) (*Tree, error) {
	return s.change(session, func(t *Tree) error {
		t.Wrote, t.Origins = Now(), nil
		for i := range t.Checkpoints {
			c := &t.Checkpoints[i]
			c.Stale, c.Layers, c.Incomplete = true, nil, nil
		}
		return nil
	})
}

// Applied says that the source has had all that the tree has since then, in ns: it goes on
// from there. One that is over has no checkpoint to come back to.
func (s *Store) Applied(session string, since int64) (*Tree, error) {
	return s.reset(session, func(t *Tree) ([]string, error) {
		if t.begin(since); !t.Ended.IsZero() {
			t.Checkpoints = nil
		}
		t.Incomplete, t.Origins, t.Moved = nil, nil, nil
		return nil, nil
	})
}

// Take gives a session that is over the layers of another one that is over and began with
// its own, and removes that one's tree.
func (s *Store) Take(session, from string) error {
	if session > from { // all take turns in one order
		defer s.turn(from)()
	}
	_, err := s.locked(session, func(t *Tree) error {
		if session < from {
			defer s.turn(from)()
		}
		other, err := s.Get(from)
		if errors.Is(err, ErrNone) {
			return nil // it has changed nothing
		}
		if err != nil {
			return err
		}
		s.loosen(t)
		t.Upper, t.Lower = other.Upper, other.Lower
		return errors.Join(s.write(t), os.Remove(s.file(from)))
	})
	return err
}

// Begun reports whether something has been written to the upper layer of a tree. That of one which
// is not laid has been mounted then, and whoever did it could not say so.
func Begun(s *Store, t *Tree) bool { return t.Upper != "" && !s.empty(t.Upper) }

// Retry gives a tree that is not laid another empty upper layer, where the one that it has may be
// mounted.
func (s *Store) Retry(session string) (*Tree, error) {
	return s.locked(session, func(t *Tree) error {
		if s.unused(t.Upper) {
			return nil
		}
		return s.renew(t)
	})
}

// unused reports whether a layer was never mounted, for certain.
func (s *Store) unused(layer string) bool {
	path, release, err := s.at(layer)
	if err != nil {
		return false
	}
	defer release()
	names, err := os.ReadDir(path)
	return err == nil && len(names) == 0
}
