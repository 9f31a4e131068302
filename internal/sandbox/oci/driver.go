package oci

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/cgroup"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/seccomp"
	"github.com/toold/toold/internal/sandbox/state"
)

// Name is the driver's name in configuration and records.
const Name = "oci"

// Config is what New needs.
type Config struct {
	// Runtimes maps the names that a Spec may use to the paths of runtimes.
	Runtimes map[string]string
	// DefaultRuntime is the one for a Spec without a name; it may be left out
	// when there is just one.
	DefaultRuntime string
	// StateDir survives reboots; RunDir need not. Both are absolute. Every
	// directory above RunDir must be passable for others (o+x), because the
	// runtime enters the root filesystem with the ids of the session.
	StateDir, RunDir string
	// AgentBinary is the static agent to run as PID 1; it is copied.
	AgentBinary string
	// Ripgrep is the directory with the ripgrep that searches in sandboxes; it is copied.
	Ripgrep string
	// Rootfs is "host" or an absolute directory with a root filesystem.
	Rootfs string
	// HostPaths replaces the host directories that Rootfs "host" shows.
	HostPaths []string
	// CgroupParent is the cgroup above those of the sessions.
	CgroupParent string
	// UIDBase is the first of the host ids that sessions get, whichever: nobody
	// from there on is given to a sandbox as the owner of its worktree.
	UIDBase uint32
	Log     *slog.Logger
}

// Driver makes sandboxes with OCI runtimes. Its methods may be called from any
// goroutine; all its state is on disk.
type Driver struct {
	cfg      Config
	dir      string // RunDir/oci
	programs *inside.Programs
	root     *rootfs
	cg       *cgroup.Tree
	probes   runtimeProbes
	gvisors  sync.Map // by path of a runtime: whether it is gVisor
	log      *slog.Logger
	names    []string // of runtimes, default first
	seccomp  *specs.LinuxSeccomp
	disks    loopdisk.Probe
}

// New prepares the driver's directories, copies the agent and looks at the
// host's cgroups. It starts nothing.
func New(cfg Config) (*Driver, error) {
	names, err := runtimeNames(cfg)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		cfg: cfg, dir: filepath.Join(cfg.RunDir, "oci"), log: cfg.Log, names: names,
		probes: runtimeProbes{works: map[string]bool{}, alive: map[string]bool{}},
	}
	d.probes.life, d.probes.end = context.WithCancelCause(context.Background())
	for _, dir := range []string{d.dir, d.sandboxesDir(), d.rootsDir()} {
		if err := errors.Join(makeDir(dir, 0o711), state.Sweep(dir)); err != nil {
			return nil, err
		}
	}
	if err := passable(d.sandboxesDir()); err != nil {
		return nil, err
	}
	if d.programs, err = inside.CopyPrograms(cfg.AgentBinary, cfg.Ripgrep, cfg.StateDir); err != nil {
		return nil, err
	}
	if d.cg, err = cgroup.Open(cfg.CgroupParent); err != nil {
		return nil, whyNot(err, cfg.UIDBase)
	}
	if d.root, err = newRootfs(cfg.Rootfs, cfg.HostPaths); err != nil {
		return nil, err
	}
	d.root.places = d.places()
	if err := d.root.share(d.rootsDir()); err != nil {
		return nil, fmt.Errorf("skeleton: %w", whyNot(err, cfg.UIDBase))
	}
	if d.seccomp, err = seccomp.Profile(); err != nil {
		return nil, err
	}
	d.disks.Dir = d.disksDir()
	if err := d.sweepUnknown(); err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	return d, nil
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return Name }

// Disks implements sandbox.Disks.
func (d *Driver) Disks() error { return d.disks.Works() }

// Left implements sandbox.Contained.
func (d *Driver) Left() (memory, pids int64) { return d.cg.Left() }

func (d *Driver) sandboxesDir() string { return filepath.Join(d.dir, "sandboxes") }
func (d *Driver) rootsDir() string     { return filepath.Join(d.dir, "roots") }

func (d *Driver) disksDir() string { return filepath.Join(d.cfg.StateDir, "disks") }

func (d *Driver) bundle(id string) bundle {
	return bundle{state.Dir{Path: filepath.Join(d.sandboxesDir(), id)}}
}

func runtimeNames(cfg Config) ([]string, error) {
	if len(cfg.Runtimes) == 0 {
		return nil, errors.New("oci driver: no runtime is configured")
	}
	def := cfg.DefaultRuntime
	var rest []string
	for name, path := range cfg.Runtimes {
		if !state.IsName(name) {
			return nil, fmt.Errorf("oci driver: %q is no name for a runtime", name)
		}
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("oci driver: path of runtime %s is not absolute: %q", name, path)
		}
		if def == "" && len(cfg.Runtimes) == 1 {
			def = name
		}
		if name != def {
			rest = append(rest, name)
		}
	}
	if _, ok := cfg.Runtimes[def]; !ok {
		return nil, fmt.Errorf("oci driver: default runtime %q is none of the configured ones", def)
	}
	sort.Strings(rest)
	return append([]string{def}, rest...), nil
}

// makeDir makes dir with exactly this mode, whatever the umask.
func makeDir(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// passable checks that ids of sessions can get to dir.
func passable(dir string) error {
	for p := dir; ; p = filepath.Dir(p) {
		fi, err := os.Stat(p)
		if err != nil {
			return err
		}
		if fi.Mode()&0o001 == 0 {
			return fmt.Errorf("run directory %s: %s has mode %04o, but sessions must be able to pass it: chmod o+x %s",
				dir, p, fi.Mode().Perm(), p)
		}
		if p == "/" {
			return nil
		}
	}
}

// runtime finds the runtime of a spec or record.
func (d *Driver) runtime(ctx context.Context, name string) (runtime, error) {
	if name == "" {
		name = d.names[0]
	}
	path, ok := d.cfg.Runtimes[name]
	if !ok {
		return runtime{}, fmt.Errorf("runtime %q is not configured; there is %s: %w", name, strings.Join(d.names, ", "), sandbox.ErrUnsupported)
	}
	rt := runtime{name: name, path: path, root: d.runtimeRoot(name)}
	var err error
	rt.gvisor, err = d.isGVisor(ctx, rt)
	return rt, err
}

// runtimeRoot is where a runtime keeps its state.
func (d *Driver) runtimeRoot(name string) string { return filepath.Join(d.dir, "runtime", name) }

// places are those of cgroup.Views.
func (d *Driver) places() []entry {
	var list []entry
	for target := range d.cg.Views("") {
		list = append(list, entry{path: target, dir: slices.Contains(cgroup.ViewDirs(), target)})
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return list
}
