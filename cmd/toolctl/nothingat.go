package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// nothingAt says that a session has changed nothing at the paths that were asked for, none for
// all. It is an error
// where one is not in the source either, as far as that can be seen from here: then it is misspelt.
func (a *app) nothingAt(ctx context.Context, c *client.Client, session string, paths []string) error {
	if len(paths) == 0 {
		a.say("nothing differs: the session has changed nothing in its worktree")
		return nil
	}
	s, err := c.GetSession(ctx, session)
	if err != nil {
		return err
	}
	var missing []string
	source := s.Worktree.Source
	if _, err := os.Stat(source); source != "" && err == nil {
		for _, p := range paths {
			if _, err := os.Lstat(filepath.Join(source, plain.Unquote(p))); errors.Is(err, fs.ErrNotExist) {
				missing = append(missing, line(p))
			}
		}
	}
	next := fmt.Sprintf("toolctl diff %s --name-status lists what differs", line(session))
	if len(missing) > 0 {
		return fmt.Errorf("no such path: %s; %s", strings.Join(missing[:min(len(missing), maxNamed)], ", "), next)
	}
	a.say("nothing differs there; %s", next)
	return nil
}
