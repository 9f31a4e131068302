package oci

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/toold/toold/internal/sandbox/mount"
	"github.com/toold/toold/internal/sandbox/near"
	"github.com/toold/toold/internal/sandbox/state"
)

// configName is the file of a bundle that the runtimes look for.
const configName = "config.json"

// record is what is kept of a sandbox.
type record struct {
	near.Base
	Dials bool // the agent dials: the sandbox is gVisor's
	Disk  bool // the session writes to a file system of its own
}

// bundle is the directory of one sandbox.
type bundle struct{ state.Dir }

func (b bundle) rootfs() string  { return b.File("rootfs") }
func (b bundle) control() string { return controlIn(b.Path) }

func controlIn(dir string) string { return filepath.Join(dir, "control") }

// create makes the directory. gid is the session's group 0, which may pass.
func (b bundle) create(r *record, gid int) error {
	return b.Make(r, func(dir string) error {
		return errors.Join(os.Chown(dir, 0, gid), os.Chmod(dir, 0o710), os.Mkdir(controlIn(dir), 0o700))
	})
}

func (b bundle) read() (*record, error) { return state.Read[record](b.Dir) }

// remove removes the directory, with all that is mounted in it.
func (b bundle) remove() error {
	if err := mount.UnmountBelow(b.Path); err != nil {
		return err
	}
	return b.Remove()
}
