package main

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sensitive"
)

// sayInPatch names what of a patch is to be looked at before it is applied: git leaves
// nothing out, as "toolctl apply" does.
func (r *runCommand) sayInPatch(ctx context.Context, c *client.Client, s *client.Session) error {
	list := r.report.Diff
	if list.Next != "" {
		var err error
		if list, err = listChanges(ctx, c, s.ID, client.DiffQuery{}); err != nil {
			return err
		}
	}
	onSight, build := inPatch(list.Items)
	if len(onSight) > 0 {
		r.say("programs of the host run or obey these on sight; look at them before you apply the patch")
		sayPaths(r.app, onSight, len(onSight))
	}
	sayBuild(r.app, build)
	return nil
}

// inPatch gives the names of the changes in a patch that programs of a host run or obey on
// sight, with directories that become repositories, and of build files. Nothing below .git
// is in a patch, and no directory.
func inPatch(changes []client.Change) (onSight, build []string) {
	parts := make(map[string]map[string]bool) // of repositories, by their directories
	for i := range changes {
		c := &changes[i]
		name := rawPath(c)
		if dir, base := path.Split(name); c.Status == client.ChangeAdded && sensitive.Of(base) == sensitive.Part {
			if parts[dir] == nil {
				parts[dir] = make(map[string]bool)
			}
			parts[dir][strings.ToLower(base)] = true
			if sensitive.Repository(parts[dir]) {
				onSight = append(onSight, gitQuoted(path.Clean(dir)))
				delete(parts, dir)
			}
		}
		switch {
		case c.Kind == "dir" || slices.Contains(strings.Split(name, "/"), ".git"):
		case c.Sensitive:
			onSight = append(onSight, changeName(c))
		case c.Build:
			build = append(build, changeName(c))
		}
	}
	return onSight, build
}
