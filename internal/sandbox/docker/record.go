package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/mount"
)

// record is the content of record.json.
type record struct {
	sandbox.Record
	// BootID tells a record of before a reboot, whose pid means nothing.
	BootID    string
	Container string // the Engine's id; "" until it has given one
	// Engine is the address of an Engine on another host that has the container.
	Engine string
	// Group is the container's cgroup, as /proc shows it; "" where it was never
	// touched. Divided: the tools have one of their own in it.
	Group   string
	Divided bool
	Notes   []string
	IDMap   string
}

// containerID is the form of the Engine's ids.
var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// place is the directory of one sandbox.
type place string

const (
	recordName  = "record.json"
	controlName = "control"
)

func (d *Driver) place(id string) place { return place(filepath.Join(d.sandboxesDir(), id)) }

func (p place) control() string { return filepath.Join(string(p), controlName) }

// claim makes the directory with its record in one step: one without a record is
// never seen under a session's name.
func (p place) claim(r *record) error {
	tmp, err := os.MkdirTemp(filepath.Dir(string(p)), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // a no-op after the rename
	if err := errors.Join(os.Chmod(tmp, 0o711), place(tmp).write(r)); err != nil {
		return err
	}
	err = os.Rename(tmp, string(p))
	if errors.Is(err, fs.ErrExist) {
		return errors.New("there is a sandbox of that name")
	}
	return err
}

func (p place) write(r *record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return p.keep(recordName, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// keep writes a file of the directory, which is there whole, also after a loss of
// power, or as it was.
func (p place) keep(name string, write func(io.Writer) error) error {
	dir, err := os.Open(string(p))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := os.OpenFile(filepath.Join(string(p), name+".new"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(f.Name(), filepath.Join(string(p), name)), dir.Sync())
}

// read gives the record of a sandbox; fs.ErrNotExist when there is none.
func (p place) read() (*record, error) {
	file := filepath.Join(string(p), recordName)
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(record)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if want := filepath.Base(string(p)); r.SessionID != want {
		return nil, fmt.Errorf("%s: it is of %q", file, r.SessionID)
	}
	return r, nil
}

// remove removes the directory, with the record at last.
func (p place) remove() error {
	all, err := os.ReadDir(string(p))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range all {
		if e.Name() == recordName {
			continue
		}
		if err := mount.RemoveTree(filepath.Join(string(p), e.Name())); err != nil {
			return err
		}
	}
	return mount.RemoveTree(string(p))
}

// Labels of a container say whose it is.
const (
	labelOwner       = "toold.owner"
	labelSession     = "toold.session"
	labelIncarnation = "toold.incarnation"
	labelUIDBase     = "toold.uid-base"
	labelRuntime     = "toold.runtime"
)

func labels(r *sandbox.Record) map[string]string {
	return map[string]string{
		labelOwner: r.Owner, labelSession: r.SessionID, labelIncarnation: r.Incarnation,
		labelRuntime: r.Runtime, labelUIDBase: strconv.FormatUint(uint64(r.UIDBase), 10),
	}
}

// containerName is what the Engine calls the container of a session.
func containerName(session string) string { return "toold-" + session }

// labelled is the record in a container's labels. Labels can come from an image, and
// names cannot: it is one of ours only when both agree.
func labelled(name string, l map[string]string) (*sandbox.Record, bool) {
	id := l[labelSession]
	if !safeName.MatchString(id) || strings.TrimPrefix(name, "/") != containerName(id) || l[labelOwner] == "" || l[labelIncarnation] == "" {
		return nil, false
	}
	base, err := strconv.ParseUint(l[labelUIDBase], 10, 32)
	if err != nil {
		return nil, false
	}
	return &sandbox.Record{
		ID:      sandbox.ID{SessionID: id, Incarnation: l[labelIncarnation], Owner: l[labelOwner], UIDBase: uint32(base)},
		Runtime: l[labelRuntime],
	}, true
}

// same says whether two records name one sandbox, and not just one name.
func same(a, b *sandbox.Record) bool {
	return a.SessionID == b.SessionID && a.Owner == b.Owner && a.Incarnation == b.Incarnation
}
