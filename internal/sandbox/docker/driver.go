package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/cgroup"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/seccomp"
	"github.com/toold/toold/internal/sandbox/state"
)

// Name is the driver's name in configuration and records.
const Name = "docker"

// Config is what New needs.
type Config struct {
	// Host is the Engine's address, unix:// and an absolute path; "" stands for
	// DefaultHost.
	Host string
	// Image is the one of sessions that name none, by a name that the Engine knows
	// or can pull. It may be empty: then each must name one.
	Image string
	// StateDir survives reboots, RunDir need not. Both are absolute. Every
	// directory above RunDir must be passable for others (o+x) where the Engine
	// maps users.
	StateDir, RunDir string
	// AgentBinary is the static agent to run as PID 1; it is copied.
	AgentBinary string
	// Ripgrep is the directory with the ripgrep that searches in sandboxes; it is copied.
	Ripgrep string
	// CgroupParent is the cgroup above those of the sessions.
	CgroupParent string
	Log          *slog.Logger
}

// DefaultHost is where the Engine listens unless it is told otherwise.
const DefaultHost = "unix:///var/run/docker.sock"

// Driver makes sandboxes with a Docker Engine. Its methods may be called from any
// goroutine; all its state is on disk and in the Engine.
type Driver struct {
	cfg      Config
	engine   *engine
	dir      string // RunDir/docker
	programs *inside.Programs
	files    map[string]string
	seccomp  string // as the Engine takes it
	log      *slog.Logger
	disks    loopdisk.Probe

	mu    sync.Mutex              // guards trees
	trees map[string]*cgroup.Tree // by the parent that the Engine really uses
}

// New prepares the driver's directories and copies the agent. It does not speak to
// the Engine, which may come later.
func New(cfg Config) (*Driver, error) {
	d := &Driver{cfg: cfg, dir: filepath.Join(cfg.RunDir, Name), log: cfg.Log, trees: map[string]*cgroup.Tree{}}
	d.disks.Dir = filepath.Join(cfg.StateDir, "disks")
	if !filepath.IsAbs(d.cfg.CgroupParent) || filepath.Clean(d.cfg.CgroupParent) != d.cfg.CgroupParent || d.cfg.CgroupParent == "/" {
		return nil, fmt.Errorf("docker driver: cgroup parent %q: must be an absolute, clean path below /", d.cfg.CgroupParent)
	}
	var err error
	if d.engine, err = newEngine(cmp.Or(cfg.Host, DefaultHost)); err != nil {
		return nil, fmt.Errorf("docker driver: %w", err)
	}
	for _, dir := range []string{d.dir, d.sandboxesDir()} {
		if err := errors.Join(os.MkdirAll(dir, 0o711), os.Chmod(dir, 0o711)); err != nil {
			return nil, fmt.Errorf("docker driver: %w", err)
		}
	}
	if err := d.bring(); err != nil {
		return nil, fmt.Errorf("docker driver: %w", err)
	}
	if d.files, err = writeFiles(filepath.Join(d.dir, "files")); err != nil {
		return nil, fmt.Errorf("docker driver: %w", err)
	}
	return d, nil
}

// bring copies what sandboxes are given, on this host or another, and removes what a killed
// daemon was making.
func (d *Driver) bring() (err error) {
	if err := errors.Join(d.onlyHere(), state.Sweep(d.sandboxesDir())); err != nil {
		return err
	}
	if d.programs, err = inside.CopyPrograms(d.cfg.AgentBinary, d.cfg.Ripgrep, d.cfg.StateDir); err != nil {
		return err
	}
	d.seccomp, err = seccomp.JSON()
	return err
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return Name }

// Disks implements sandbox.Disks. The Engine is on this host: its containers are given what is
// mounted here.
func (d *Driver) Disks() error { return d.disks.Works() }

// Left implements sandbox.Contained.
func (d *Driver) Left() (memory, pids int64) {
	t, err := d.tree(d.cfg.CgroupParent)
	if err != nil {
		return math.MaxInt64, math.MaxInt64
	}
	return t.Left()
}

// Close lets go of the connections to the Engine.
func (d *Driver) Close() error { return d.engine.close() }

func (d *Driver) sandboxesDir() string  { return sandboxesIn(d.dir) }
func (d *Driver) place(id string) place { return placeIn(d.dir, id) }

// writeFiles makes the files that every sandbox shows, and says where which is.
func writeFiles(dir string) (map[string]string, error) {
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return nil, err
	}
	files := map[string]string{}
	all := map[string]string{sandbox.MarkerFile: inside.Marker}
	maps.Copy(all, inside.Etc)
	for target, data := range all {
		file := filepath.Join(dir, filepath.Base(target))
		files[target] = file
		if old, err := os.ReadFile(file); err == nil && string(old) == data {
			continue
		}
		// Another one, not other content: sandboxes that are alive keep theirs.
		tmp := file + ".new"
		err := errors.Join(os.WriteFile(tmp, []byte(data), 0o644), os.Chmod(tmp, 0o644), os.Rename(tmp, file))
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Runtimes implements sandbox.Driver: those of the Engine that make containers of
// this host's processes, the Engine's default first. Others are refused when a
// sandbox of theirs has been made.
func (d *Driver) Runtimes(ctx context.Context) ([]string, error) {
	info, err := d.engine.info(ctx)
	if err != nil {
		return nil, err
	}
	return runtimes(info), nil
}

// Try implements sandbox.Driver: the Engine says which there are, and nothing of how they are.
func (d *Driver) Try(ctx context.Context, name string) error {
	names, err := d.Runtimes(ctx)
	if err != nil {
		return err
	}
	return sandbox.CheckRuntime(name, names)
}

func runtimes(info *engineInfo) []string {
	var names []string
	for name := range info.Runtimes {
		// The Engine lists its containerd shims among them by long names.
		if name != info.DefaultRuntime && state.IsName(name) && !strings.Contains(name, "runsc") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return append([]string{info.DefaultRuntime}, names...)
}

// tree gives the cgroups below parent.
func (d *Driver) tree(parent string) (*cgroup.Tree, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.trees[parent]; t != nil {
		return t, nil
	}
	t, err := cgroup.Open(parent)
	if err != nil {
		return nil, err
	}
	d.trees[parent] = t
	return t, nil
}
