package layers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// A tree with a thousand checkpoints has sixty thousand names of layers, and each change of
// the tree reads and writes them all. Most checkpoints have the layers of the one before and
// one more, so the file has what is new alone.

// mostRead bounds the trees that a shelf remembers.
const mostRead = 64

// shelf reads trees from their files, and remembers them: one that has many checkpoints is read
// several times for each. That is 5 ms of 28 of the thousandth checkpoint (bench/README.md). A
// change of a tree is another file.
type shelf struct {
	mu   sync.Mutex // guards the field below
	last map[string]readFile
}

type readFile struct {
	is   os.FileInfo
	tree *Tree // which nobody changes
}

// read gives a tree that is the caller's. Names of layers in it are shared, and stay.
func (f *shelf) read(path string) (*Tree, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	is, err := file.Stat()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last, ok := f.last[path]
	if !ok || !os.SameFile(last.is, is) || !last.is.ModTime().Equal(is.ModTime()) || last.is.Size() != is.Size() {
		last = readFile{is: is, tree: &Tree{}}
		data, err := io.ReadAll(file)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, last.tree); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(f.last) >= mostRead || f.last == nil {
			f.last = map[string]readFile{}
		}
		f.last[path] = last
	}
	t := *last.tree
	t.Lower, t.Checkpoints = slices.Clone(t.Lower), slices.Clone(t.Checkpoints)
	return &t, nil
}

// forget is for who has written a file: another one may get what it is told by.
func (f *shelf) forget(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.last, path)
}

// plainTree is a Tree without its methods.
type plainTree Tree

// treeFile is a Tree in its file.
type treeFile struct {
	plainTree
	Checkpoints []checkpointFile `json:"checkpoints,omitempty"`
	// Apart: checkpoints say what is incomplete of theirs. Without it an older daemon wrote the file,
	// and what is incomplete of the tree may be of any of them.
	Apart bool `json:"incomplete_apart,omitempty"`
}

// checkpointFile is a Checkpoint there.
type checkpointFile struct {
	Checkpoint
	// Below is how many of the lowest layers of the checkpoint before follow on Layers.
	Below int `json:"below,omitempty"`
	// Incomplete is nil where the checkpoint before has the same; before the first one there are
	// none.
	Incomplete *[]Incomplete `json:"incomplete,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (t *Tree) MarshalJSON() ([]byte, error) {
	f := treeFile{plainTree: plainTree(*t), Apart: len(t.Checkpoints) > 0}
	var before Checkpoint
	for _, c := range t.Checkpoints {
		n := 0
		for n < min(len(before.Layers), len(c.Layers)) && before.Layers[len(before.Layers)-1-n] == c.Layers[len(c.Layers)-1-n] {
			n++
		}
		in := checkpointFile{Checkpoint: c, Below: n}
		in.Layers = c.Layers[:len(c.Layers)-n]
		if !slices.Equal(c.Incomplete, before.Incomplete) {
			lost := append([]Incomplete{}, c.Incomplete...) // none is not null, which would be the same
			in.Incomplete = &lost
		}
		before = c
		f.Checkpoints = append(f.Checkpoints, in)
	}
	return json.Marshal(&f)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Tree) UnmarshalJSON(data []byte) error {
	var f treeFile
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	*t = Tree(f.plainTree)
	var before Checkpoint
	if !f.Apart {
		before.Incomplete = t.Incomplete
	}
	for _, in := range f.Checkpoints {
		c := in.Checkpoint
		if in.Below < 0 || in.Below > len(before.Layers) {
			return errors.New("a checkpoint has layers of one before that does not have them")
		}
		if in.Below > 0 {
			c.Layers = slices.Concat(c.Layers, before.Layers[len(before.Layers)-in.Below:])
		}
		switch {
		case in.Incomplete == nil:
			c.Incomplete = before.Incomplete
		case len(*in.Incomplete) > 0:
			c.Incomplete = *in.Incomplete
		}
		before = c
		t.Checkpoints = append(t.Checkpoints, c)
	}
	return nil
}
