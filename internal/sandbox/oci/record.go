package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
)

// Files of a bundle. The name of the second is the runtimes'.
const (
	recordName = "record.json"
	configName = "config.json"
)

// record is the content of record.json.
type record struct {
	sandbox.Record
	// BootID tells a record of before a reboot, whose pid means nothing.
	BootID string
	Notes  []string
	IDMap  string
	Dials  bool // the agent dials: the sandbox is gVisor's
	Disk   bool // the session writes to a file system of its own
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// bundle is the directory of one sandbox.
type bundle string

func (d *Driver) bundle(id string) bundle { return bundle(filepath.Join(d.sandboxesDir(), id)) }

func (b bundle) path(name string) string { return filepath.Join(string(b), name) }
func (b bundle) rootfs() string          { return b.path("rootfs") }
func (b bundle) control() string         { return b.path("control") }

// create makes the directory and its record appear in one step: a directory
// without a record is never seen. gid is the session's group 0, which may pass.
func (b bundle) create(r *record, gid int) error {
	lock, err := lockNames(filepath.Dir(string(b)), unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer lock.Close()
	tmp, err := os.MkdirTemp(filepath.Dir(string(b)), newPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // a no-op after the rename
	err = errors.Join(
		os.Chown(tmp, 0, gid),
		os.Chmod(tmp, 0o710),
		bundle(tmp).write(r),
		os.Mkdir(bundle(tmp).control(), 0o700))
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, string(b)); err != nil {
		if errors.Is(err, os.ErrExist) || isNotEmpty(err) {
			return fmt.Errorf("sandbox %s exists already", r.SessionID)
		}
		return err
	}
	return nil
}

func (b bundle) write(r *record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	tmp := b.path(recordName + ".new")
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, b.path(recordName))
}

func (b bundle) read() (*record, error) {
	data, err := os.ReadFile(b.path(recordName))
	if err != nil {
		return nil, err
	}
	r := new(record)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", b.path(recordName), err)
	}
	if want := filepath.Base(string(b)); r.SessionID != want {
		return nil, fmt.Errorf("%s: it is of %q", b.path(recordName), r.SessionID)
	}
	return r, nil
}

// annotated reads from the runtime's configuration whose a bundle is.
func (b bundle) annotated(id string) (*sandbox.Record, error) {
	data, err := os.ReadFile(b.path(configName))
	if err != nil {
		return nil, err
	}
	var spec struct{ Annotations map[string]string }
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("%s: %w", b.path(configName), err)
	}
	a := spec.Annotations
	if a[annotationSession] != id || a[annotationOwner] == "" || a[annotationIncarnation] == "" {
		return nil, fmt.Errorf("%s: it does not say that it is of %s", b.path(configName), id)
	}
	base, err := strconv.ParseUint(a[annotationUIDBase], 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.path(configName), err)
	}
	return &sandbox.Record{
		ID:      sandbox.ID{SessionID: id, Incarnation: a[annotationIncarnation], Owner: a[annotationOwner], UIDBase: uint32(base)},
		Runtime: a[annotationRuntime],
	}, nil
}
