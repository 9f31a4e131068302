package cgroup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
)

// labelName is the extended attribute of a session's v2 cgroup that holds its
// sandbox.Record. Only root can set or read it.
const labelName = "trusted.toold"

// Claim makes the session's v2 cgroup and labels it.
func (t *Tree) Claim(rec *sandbox.Record) error {
	dir := t.Dir(rec.SessionID)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := unix.Setxattr(dir, labelName, data, 0); err != nil {
		return &fs.PathError{Op: "setxattr", Path: dir, Err: err}
	}
	return nil
}

// Label reads what Claim has written; nil when there is none.
func (t *Tree) Label(id string) (*sandbox.Record, error) {
	buf := make([]byte, 4096)
	n, err := unix.Getxattr(t.Dir(id), labelName, buf)
	switch {
	case errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, &fs.PathError{Op: "getxattr", Path: t.Dir(id), Err: err}
	}
	rec := new(sandbox.Record)
	if err := json.Unmarshal(buf[:n], rec); err != nil {
		return nil, fmt.Errorf("label of cgroup %s: %w", id, err)
	}
	if rec.SessionID != id {
		return nil, fmt.Errorf("label of cgroup %s names %q", id, rec.SessionID)
	}
	return rec, nil
}

// IDs are the names of sessions that have a cgroup, some of them twice.
func (t *Tree) IDs() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(t.v2, t.parent))
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() {
			ids = append(ids, strings.TrimSuffix(e.Name(), runtimeSuffix))
		}
	}
	return ids, nil
}

// Owns checks that a process is in the session's cgroup on v2, where nothing else is
// born. The error is sandbox.ErrGone when it is not.
func (t *Tree) Owns(id string, p *process.Process) error {
	path, err := p.CgroupV2()
	if err != nil {
		return err
	}
	for _, dir := range []string{t.Path(id), t.Path(id) + runtimeSuffix} {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return nil
		}
	}
	return fmt.Errorf("process is not in the session's cgroup: %w", sandbox.ErrGone)
}

// Holds checks that a process which somebody else has put into a session's cgroup is
// in it on every hierarchy that carries limits.
func (t *Tree) Holds(id string, p *process.Process) error {
	data, err := p.Read("cgroup")
	if err != nil {
		return err
	}
	in := map[string]string{}
	for line := range strings.Lines(string(data)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		for name := range strings.SplitSeq(controllers, ",") {
			in[name] = path
		}
	}
	for name := range t.v1limited() {
		if in[name] != t.Path(id) {
			return fmt.Errorf("for %s, process %d is in cgroup %q and not in %q", name, p.PID(), in[name], t.Path(id))
		}
	}
	return t.Owns(id, p)
}
