package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
)

// ProbeOverlay says why dir, which is root's, cannot have the layers of worktrees of mode
// overlay: it mounts one there over a directory of dir, renames a directory in it, which
// takes the attributes that no tool can set, and removes all of it again.
func ProbeOverlay(dir string) (err error) {
	tmp, err := os.MkdirTemp(dir, ".probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	below, layer, staging := filepath.Join(tmp, "source"), filepath.Join(tmp, "layer"), filepath.Join(tmp, "staging")
	if err := errors.Join(os.MkdirAll(filepath.Join(below, "old"), 0o755), os.Mkdir(layer, 0o700), os.Mkdir(staging, 0o700)); err != nil {
		return err
	}
	from, err := os.Open(below)
	if err != nil {
		return err
	}
	defer from.Close()
	upper, err := os.OpenFile(layer, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer upper.Close()
	d := Session{
		Claim:   &sandbox.Claim{Worktree: sandbox.Worktree{Source: from}},
		ToolUID: probeBase + sandbox.ToolUID, ToolGID: probeBase + sandbox.ToolGID, Staging: staging,
	}.detaching()
	defer d.close()
	tree, err := d.layered(source{from, 0, 0}, nil, upper, RenamesRedirect)
	if err != nil {
		return err
	}
	defer tree.Close()
	if err := unix.Renameat(int(tree.Fd()), "old", int(tree.Fd()), "new"); err != nil {
		return fmt.Errorf("rename a directory of the source: %w", err)
	}
	return nil
}

// probeBase is where host ids begin that stand for those of a sandbox.
const probeBase = 1 << 24
