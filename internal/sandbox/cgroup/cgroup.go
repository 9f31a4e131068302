// Package cgroup gives each session its cgroups on whatever hierarchies a host has:
// one that kills all its processes, the limits of the tools below it, and the
// counters of both.
//
//	<parent>/<id>          the session, with room for its agent
//	<parent>/<id>/agent    the agent, where it cannot stay above
//	<parent>/<id>/tools    all calls, with the limits that were asked for
//	<parent>/<id>.runtime  a runtime's own processes while they make it (v2 alone)
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Tree knows where this host keeps its cgroups. Controllers may be on v1
// hierarchies, on the v2 one, or spread over both (hybrid); killing is always
// done on v2, whose hierarchy every kernel has even when nothing is bound to it.
type Tree struct {
	parent   string            // cgroup above those of the sessions, e.g. /toold
	v2       string            // path to the root of the v2 hierarchy
	detached *os.File          // keeps v2 alive where it is mounted nowhere
	v2has    map[string]bool   // of the limited ones, those that are on v2
	v2io     bool              // v2 counts what is read from and written to devices
	v1       map[string]string // controller → mount point of its v1 hierarchy
	v1all    []string          // mount points of all v1 hierarchies
}

// runtimeSuffix tells the cgroup of the runtime's own processes from the
// session's; no session id has a dot.
const runtimeSuffix = ".runtime"

// limited are the controllers that carry the limits of a session.
var limited = []string{"memory", "pids", "cpu", "cpuset"}

// Open looks at this host's hierarchies and makes parent, the cgroup above those of
// the sessions: an absolute path as /proc/PID/cgroup shows it.
func Open(parent string) (*Tree, error) {
	t, err := find(parent)
	if err != nil {
		return nil, err
	}
	return t, t.prepareParent()
}

// find is Open that makes nothing.
func find(parent string) (*Tree, error) {
	if !filepath.IsAbs(parent) || filepath.Clean(parent) != parent || parent == "/" {
		return nil, fmt.Errorf("cgroup parent %q: must be an absolute, clean path below /", parent)
	}
	t := &Tree{parent: parent, v1: map[string]string{}, v2has: map[string]bool{}}
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	for _, m := range mounts {
		switch {
		case m.FSType == "cgroup2" && t.v2 == "":
			t.v2 = m.Mountpoint
		case m.FSType == "cgroup" && !slices.Contains(t.v1all, m.Mountpoint):
			t.v1all = append(t.v1all, m.Mountpoint)
			for o := range strings.SplitSeq(m.VFSOptions, ",") {
				if _, known := t.v1[o]; !known {
					t.v1[o] = m.Mountpoint
				}
			}
		}
	}
	if t.v2 == "" {
		if err := t.Detach(); err != nil {
			return nil, fmt.Errorf("no cgroup v2 hierarchy is mounted, and: %w", err)
		}
	}
	for name := range strings.FieldsSeq(readFile(filepath.Join(t.v2, "cgroup.controllers"))) {
		if slices.Contains(limited, name) {
			t.v2has[name] = true
		}
		t.v2io = t.v2io || name == "io"
	}
	return t, nil
}

// prepareParent makes the parent cgroup on v2 and hands its controllers down.
func (t *Tree) prepareParent() error {
	dir := t.v2
	for part := range strings.SplitSeq(strings.Trim(t.parent, "/"), "/") {
		for _, name := range limited {
			if t.v2has[name] {
				if err := write(filepath.Join(dir, "cgroup.subtree_control"), "+"+name); err != nil {
					delete(t.v2has, name) // then limits that need it are refused
				}
			}
		}
		if t.v2io && write(filepath.Join(dir, "cgroup.subtree_control"), "+io") != nil {
			t.v2io = false // then nobody knows
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		return fmt.Errorf("cgroup.kill is missing (Linux 5.14 or newer is needed): %w", err)
	}
	return nil
}

// Path is the cgroup of a session, as /proc/PID/cgroup shows it.
func (t *Tree) Path(id string) string { return filepath.Join(t.parent, id) }

// Dir is the session's directory on v2, by which it is killed; RuntimeDir that of the runtime's own
// processes while they make it. They are siblings, because a runtime refuses a
// cgroup that is not empty.
func (t *Tree) Dir(id string) string { return filepath.Join(t.v2, t.Path(id)) }

// RuntimeDir: see Dir.
func (t *Tree) RuntimeDir(id string) string { return t.Dir(id) + runtimeSuffix }

// mode is how doctor names the layout.
func (t *Tree) mode() string {
	switch {
	case len(t.v1all) == 0:
		return "v2"
	case t.detached != nil:
		return "v1"
	default:
		return "hybrid"
	}
}

// has says whether a controller can be used, on whatever hierarchy.
func (t *Tree) has(controller string) bool {
	_, v1 := t.v1[controller]
	return v1 || t.v2has[controller]
}

// File is a control file of a cgroup below the session: v1name on a v1
// hierarchy, v2name on v2. Empty when the controller is nowhere.
func (t *Tree) File(id, sub, controller, v1name, v2name string) string {
	if mount, ok := t.v1[controller]; ok {
		return filepath.Join(mount, t.Path(id), sub, v1name)
	}
	if t.v2has[controller] {
		return filepath.Join(t.Dir(id), sub, v2name)
	}
	return ""
}

// write sets a control file, which exists or there is no such control.
func write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// readFile reads a small control file, "" when there is none.
//
// Counters are read once for each program that a tool runs. Three system calls
// are enough; os.ReadFile takes ten, because control files can be polled and are
// put under Go's poller.
func readFile(file string) string {
	if file == "" {
		return ""
	}
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var buf [4096]byte // as much as one read of such a file gives
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(buf[:n]))
}

// readInt reads a control file with one number; 0 when there is none.
func readInt(file string) int64 {
	n, err := strconv.ParseInt(readFile(file), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readKey reads the number behind a key of a flat keyed control file.
func readKey(file, key string) int64 {
	for line := range strings.SplitSeq(readFile(file), "\n") {
		if k, v, ok := strings.Cut(line, " "); ok && k == key {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}
