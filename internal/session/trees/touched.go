package trees

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree/apply"
	"github.com/toold/toold/internal/worktree/layers"
)

// maxTouched bounds the paths of layers that are judged without the sandbox, maxTouchedBytes what
// they have together, and touchedDeep the directories in each other, which are open at once.
const (
	maxTouched      = 100_000
	maxTouchedBytes = 16 << 20
	touchedDeep     = 64
)

// errHides: the layers of a tree hide what they do not name, or name too much.
var errHides = errors.New("a layer hides what it does not name")

// touched gives what open layers of a tree say something of, the uppermost first: of what the
// source does not have all count as added. Deep names also what is in directories of the session's
// own.
func touched(ctx context.Context, opened []*os.File, deep bool) (*touching, error) {
	k := &touching{own: make(map[string]bool), deep: deep}
	for _, layer := range slices.Backward(opened) { // a directory is new by the lowest that has it
		root, err := openRoot(layer)
		if err == nil && root >= 0 {
			err = k.list(ctx, os.NewFile(uintptr(root), ""), 0)
		}
		if err != nil {
			return nil, err
		}
	}
	return k, nil
}

// touching goes through layers.
type touching struct {
	places []apply.Place
	bytes  int             // of their paths
	own    map[string]bool // directories that hide what the source has there
	moved  bool            // some of them have files that the source has at another path
	deep   bool
}

// list lists a directory of a layer, whose name is its path there, and closes it.
func (k *touching) list(ctx context.Context, d *os.File, depth int) error {
	defer d.Close()
	for {
		entries, err := d.ReadDir(1000)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		for i := 0; err == nil && i < len(entries); i++ {
			name := entries[i].Name()
			p := apply.Place{Path: path.Join(d.Name(), name), Status: client.ChangeAdded, Kind: beneath.File}
			k.bytes += len(p.Path)
			switch {
			case len(k.places) >= maxTouched || k.bytes > maxTouchedBytes || len(p.Path) > treediff.MaxPath || depth >= touchedDeep:
				err = errHides
			case entries[i].IsDir():
				err = k.dir(ctx, int(d.Fd()), name, p, depth)
			default:
				k.places = append(k.places, p) // also what is removed
			}
		}
		if err != nil {
			return err
		}
	}
}

func (k *touching) dir(ctx context.Context, parent int, name string, p apply.Place, depth int) error {
	fd, err := beneath.Open(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err // also when it is just being moved
	}
	d := os.NewFile(uintptr(fd), p.Path)
	opaque, moved, err := layers.Hides(fd)
	if err != nil {
		_ = d.Close()
		return errors.Join(errHides, err)
	}
	p.Kind, k.moved = beneath.Dir, k.moved || moved
	if opaque || moved || k.own[p.Path] || k.own[path.Dir(p.Path)] {
		k.own[p.Path] = true
	} else {
		p.Status = client.ChangeModified
	}
	k.places = append(k.places, p)
	if k.own[p.Path] && !k.deep {
		return d.Close()
	}
	return k.list(ctx, d, depth+1)
}

// maxPacked bounds what an agent is told to look at, in bytes: an input has 16 MiB at most, of which
// this takes four thirds.
const maxPacked = 8 << 20

// pack gives what an agent has to look at; nil where that is more than it can be told.
func (k *touching) pack() []byte {
	spots := make([]treediff.Spot, len(k.places))
	for i, p := range k.places {
		spots[i] = treediff.Spot{Path: p.Path, Whole: p.Kind != beneath.Dir || p.Status != client.ChangeModified}
	}
	if text := treediff.PackTouched(spots); len(text) <= maxPacked {
		return append([]byte{}, text...)
	}
	return nil
}
