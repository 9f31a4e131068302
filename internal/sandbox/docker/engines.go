package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toold/toold/internal/sandbox/state"
)

// remoteDir is where sandboxes of Engines on other hosts have their records.
func remoteDir(stateDir string) string { return filepath.Join(stateDir, "docker-remote") }

// onlyHere makes sure that no other Engine than this one has sandboxes of ours. What
// that has would be taken for gone, with what was changed in its worktrees, and live on
// there.
func (d *Driver) onlyHere() error {
	host, remote := d.engine.host, IsRemote(d.engine.host)
	there := remoteDir(d.cfg.StateDir)
	err := eachRecord(there, func(r *record) error {
		if remote && (r.Engine == host || r.Engine == "") {
			return nil
		}
		return fmt.Errorf("the sandbox %s is at the Docker Engine %q: set DOCKER_HOST to that until its session is over and nothing is left (toolctl session rm --all, toolctl gc); if that Engine is gone for good, remove %s",
			r.SessionID, r.Engine, placeIn(there, r.SessionID).Path)
	})
	if err != nil || !remote || d.cfg.RunDir == "" {
		return err
	}
	here := filepath.Join(d.cfg.RunDir, Name)
	return eachRecord(here, func(r *record) error {
		if r.BootID != state.BootID() {
			return nil // it died with the host
		}
		return fmt.Errorf("the sandbox %s is at the Docker Engine of this host: unset DOCKER_HOST until its session is over and nothing is left (toolctl session rm --all, toolctl gc); if that Engine is gone for good, remove %s",
			r.SessionID, placeIn(here, r.SessionID).Path)
	})
}

// eachRecord calls f for all records of a driver's directory that can be read.
func eachRecord(dir string, f func(*record) error) error {
	dirs, err := os.ReadDir(sandboxesIn(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range dirs {
		if !state.IsName(e.Name()) {
			continue
		}
		r, err := placeIn(dir, e.Name()).read()
		if err != nil {
			continue // List tells
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}
