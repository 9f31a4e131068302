package docker

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/near"
	"github.com/toold/toold/internal/sandbox/state"
)

// record is what is kept of a sandbox.
type record struct {
	near.Base
	Container string // the Engine's id; "" until it has given one
	// Engine is the address of an Engine on another host that has the container.
	Engine string
	// Group is the container's cgroup, as /proc shows it; "" where it was never
	// touched. Divided: the tools have one of their own in it.
	Group   string
	Divided bool
}

// containerID is the form of the Engine's ids.
var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// place is the directory of one sandbox.
type place struct{ state.Dir }

// sandboxesIn is where all of them are, below the directory of a driver.
func sandboxesIn(dir string) string { return filepath.Join(dir, "sandboxes") }

func placeIn(dir, id string) place {
	return place{state.Dir{Path: filepath.Join(sandboxesIn(dir), id), Sync: true}}
}

func (p place) control() string { return p.File("control") }

// claim makes the directory.
func (p place) claim(r *record) error {
	return p.Make(r, func(dir string) error { return os.Chmod(dir, 0o711) })
}

// read gives the record of a sandbox; fs.ErrNotExist when there is none.
func (p place) read() (*record, error) { return state.Read[record](p.Dir) }

// containerName is what the Engine calls the container of a session.
func containerName(session string) string { return "toold-" + session }

// labelled is the record in a container's labels. Labels can come from an image, and
// names cannot: it is one of ours only when both agree.
func labelled(name string, l map[string]string) (*sandbox.Record, bool) {
	rec, err := state.Labelled(l)
	return rec, err == nil && strings.TrimPrefix(name, "/") == containerName(rec.SessionID)
}
