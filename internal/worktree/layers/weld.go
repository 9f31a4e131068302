package layers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/toold/toold/internal/sandbox/mount"
)

// Welding makes one layer of several, without a look into their files.
type Welding struct{ *Store }

// ErrWeld: these layers cannot be made one without a look into their files.
var ErrWeld = mount.ErrWeld

// Welded is a layer that is the same as several others. It stays where a tree names it before
// Release.
type Welded struct {
	Layer string
	// Led are the directories that show what lies below it under another name, as paths.
	Led     []string
	Release func()
}

// Weld makes a layer that is the same as some that follow each other, the uppermost first,
// beside them: their files get one name more, and none is read, so that it takes hardly any
// room. mount.ErrWeld: that cannot be, for one where they lie on several disks. Nothing may
// write to them, and no call may be about to: change times move. What it has made so far when it
// fails goes with the next Sweep.
func (s Welding) Weld(ctx context.Context, from []string) (*Welded, error) {
	at := disksOf(from)
	if len(at) != 1 {
		return nil, fmt.Errorf("%w: they lie on %d disks", mount.ErrWeld, len(at))
	}
	w := &Welded{Layer: layerPrefix + strings.ToLower(rand.Text()[:20])}
	if at[0] != "" {
		w.Layer = at[0] + "." + w.Layer
	}
	w.Release = s.Hold([]string{w.Layer})
	if err := weld(ctx, s.Store, w, from); err != nil {
		w.Release()
		s.loosen(&Tree{Lower: []string{w.Layer}})
		return nil, err
	}
	return w, nil
}

func weld(ctx context.Context, s *Store, w *Welded, from []string) error {
	open, err := s.OpenLayers(from)
	if err != nil {
		return err
	}
	defer open.Close()
	path, release, err := s.at(w.Layer)
	if err != nil {
		return err
	}
	defer release()
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	into, err := os.Open(path)
	if err != nil {
		return err
	}
	w.Led, err = mount.Weld(ctx, into, open.Files)
	return errors.Join(err, into.Close())
}

// Hide has directories of a layer show nothing of what lies below it. Nobody may have it
// mounted yet.
func (s Welding) Hide(layer string, dirs []string) error {
	open, err := s.OpenLayers([]string{layer})
	if err != nil {
		return err
	}
	defer open.Close()
	return mount.Hide(open.Files[0], dirs)
}

// disksOf are the disks of some layers, each once; "" is the state directory.
func disksOf(layers []string) (all []string) {
	seen := map[string]bool{}
	for _, l := range layers {
		if disk, _ := split(l); !seen[disk] {
			seen[disk] = true
			all = append(all, disk)
		}
	}
	return all
}
