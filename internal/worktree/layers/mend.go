package layers

import (
	"errors"
	"io/fs"
	"os"
	"slices"
)

// Mend takes out of the tree of a session that is over the layers that its disks do not have,
// and gives their names: what a disk had not written down yet when it failed, or the host stopped,
// is gone, the directory of a layer that was just begun too. Who has the tree keeps its layers.
func Mend(s *Store, t *Tree) (now *Tree, lost []string, err error) {
	for _, layer := range t.All() {
		missing, err := s.missing(layer)
		if err != nil {
			return t, nil, err
		}
		if missing {
			lost = append(lost, layer)
		}
	}
	if len(lost) == 0 {
		return t, nil, nil
	}
	without := func(layers []string) []string {
		return slices.DeleteFunc(slices.Clone(layers), func(l string) bool { return slices.Contains(lost, l) })
	}
	now, err = s.change(t.Session, func(t *Tree) error {
		if slices.Contains(lost, t.Upper) {
			t.Upper = ""
		}
		t.Lower = without(t.Lower)
		t.Checkpoints = slices.Clone(t.Checkpoints)
		for i := range t.Checkpoints {
			t.Checkpoints[i].Layers = without(t.Checkpoints[i].Layers)
		}
		if slices.Contains(lost, t.MergedInto) || len(without(t.Merged)) != len(t.Merged) {
			t.Merged, t.MergedInto = nil, ""
		}
		return nil
	})
	if err != nil {
		return t, nil, err
	}
	return now, lost, nil
}

// missing reports whether a layer's disk is there, and the layer is not on it.
func (s *Store) missing(layer string) (bool, error) {
	if disk, _ := split(layer); disk == "" {
		return false, nil // a tree names it only after the host's disk has it
	}
	path, release, err := s.at(layer)
	if err != nil {
		return false, err
	}
	defer release()
	_, err = os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}
