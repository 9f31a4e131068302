package trees

import (
	"context"
	"errors"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree/apply"
	"github.com/toold/toold/internal/worktree/layers"
)

// inSource gives what the source has in directories that a session has removed or replaced: they take
// that along. Of what is a directory again it gives that as well, for its permissions.
func inSource(ctx context.Context, t *layers.Tree, gone []apply.Place) ([]apply.Place, error) {
	source, err := t.Source.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	var found []apply.Place // set in the end: a look that hangs shares nothing
	err = beneath.As(ctx, thread.User{UID: t.UID, GID: t.GID}, source, func(root int) error {
		k := new(touching)
		for _, p := range gone {
			if p.Kind == beneath.Dir {
				k.places = append(k.places, apply.Place{Path: p.Path, Status: client.ChangeModified, Kind: beneath.Dir})
			}
			if err := k.source(ctx, root, p.Path); err != nil {
				return err
			}
		}
		found = k.places
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// source lists a directory of the source, as what a session has deleted. A name alone does not tell
// what it is of: whoever judges it sees that.
func (k *touching) source(ctx context.Context, root int, dir string) error {
	fd, err := beneath.Open(root, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	for {
		names, err := d.Readdirnames(1000)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		for i := 0; err == nil && i < len(names); i++ {
			p := apply.Place{Path: path.Join(dir, names[i]), Status: client.ChangeDeleted}
			k.bytes += len(p.Path)
			k.places = append(k.places, p)
			if len(k.places) > maxTouched || k.bytes > maxTouchedBytes || len(p.Path) > treediff.MaxPath {
				err = errHides
			}
		}
		if err != nil {
			return err
		}
	}
}
