package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// remoteDir is where sandboxes of Engines on other hosts have their records.
func remoteDir(stateDir string) string { return filepath.Join(stateDir, "docker-remote") }

// onlyHere makes sure that no other Engine than this one has sandboxes of ours. What
// that has would be taken for gone, with what was changed in its worktrees, and live on
// there.
func (d *Driver) onlyHere() error {
	host, remote := d.engine.host, IsRemote(d.engine.host)
	elsewhere := Driver{dir: remoteDir(d.cfg.StateDir)}
	err := elsewhere.eachRecord(func(r *record) error {
		if remote && (r.Engine == host || r.Engine == "") {
			return nil
		}
		return fmt.Errorf("the sandbox %s is at the Docker Engine %q: set DOCKER_HOST to that until its session is over and nothing is left (toolctl session rm --all, toolctl gc); if that Engine is gone for good, remove %s",
			r.SessionID, r.Engine, elsewhere.place(r.SessionID))
	})
	if err != nil || !remote || d.cfg.RunDir == "" {
		return err
	}
	local := Driver{dir: filepath.Join(d.cfg.RunDir, Name)}
	return local.eachRecord(func(r *record) error {
		if r.BootID != bootID() {
			return nil // it died with the host
		}
		return fmt.Errorf("the sandbox %s is at the Docker Engine of this host: unset DOCKER_HOST until its session is over and nothing is left (toolctl session rm --all, toolctl gc); if that Engine is gone for good, remove %s",
			r.SessionID, local.place(r.SessionID))
	})
}

// eachRecord calls f for all records that can be read.
func (d *Driver) eachRecord(f func(*record) error) error {
	dirs, err := os.ReadDir(d.sandboxesDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range dirs {
		if !safeName.MatchString(e.Name()) {
			continue
		}
		r, err := d.place(e.Name()).read()
		if err != nil {
			continue // List tells
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}
