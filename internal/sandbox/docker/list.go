package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/state"
)

// List implements sandbox.Driver. A sandbox is found by its directory, or by the
// labels of its container. While the Engine is down, only the former are seen, which
// is an error.
func (d *Driver) List(ctx context.Context, owner string) ([]sandbox.Record, error) {
	list, err := d.places(owner)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	seen := map[string]bool{}
	for _, rec := range list {
		seen[rec.SessionID] = true
	}
	containers, err := d.containers(ctx, owner)
	if err != nil {
		return list, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, rec := range containers {
		if !seen[rec.SessionID] {
			list = append(list, rec)
		}
	}
	return list, nil
}

func (d *Driver) places(owner string) ([]sandbox.Record, error) {
	dirs, err := os.ReadDir(d.sandboxesDir())
	if err != nil {
		return nil, err
	}
	var list []sandbox.Record
	for _, e := range dirs {
		if !state.IsName(e.Name()) {
			continue
		}
		r, err := d.place(e.Name()).read()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			_ = os.Remove(d.place(e.Name()).Path) // empty, if its remover was killed
		case err != nil:
			d.log.Warn("sandbox record cannot be read", "sandbox", e.Name(), "error", err)
		case r.Owner == owner:
			list = append(list, r.Record)
		}
	}
	return list, nil
}

// containers are those that have an owner's labels, dead ones included.
func (d *Driver) containers(ctx context.Context, owner string) ([]sandbox.Record, error) {
	opts := container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", state.LabelOwner+"="+owner))}
	all, err := ask(ctx, d.engine, askTime, "list containers", func(ctx context.Context) ([]container.Summary, error) {
		return d.engine.c.ContainerList(ctx, opts)
	})
	if err != nil {
		return nil, err
	}
	var list []sandbox.Record
	for _, c := range all {
		if len(c.Names) == 0 {
			continue
		}
		if rec, ok := labelled(c.Names[0], c.Labels); ok && rec.Owner == owner {
			list = append(list, *rec)
		}
	}
	return list, nil
}
