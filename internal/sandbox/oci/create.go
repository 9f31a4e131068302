package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/mount"
	"github.com/toold/toold/internal/sandbox/near"
	"github.com/toold/toold/internal/sandbox/state"
)

// cleanupTime bounds what is done after a failed or cancelled Create.
const cleanupTime = 20 * time.Second

// Create implements sandbox.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (_ sandbox.Sandbox, err error) {
	defer sandbox.Failed(&err, "create", spec.SessionID)
	if err := d.check(&spec); err != nil {
		return nil, whyNot(err, d.cfg.UIDBase)
	}
	if err := d.programs.Ready(); err != nil {
		return nil, err
	}
	c, err := d.begin(ctx, &spec)
	if err != nil {
		return nil, whyNot(err, d.cfg.UIDBase)
	}
	defer c.close()
	sb, err := c.run(ctx)
	if err != nil {
		err = whyNot(err, d.cfg.UIDBase)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		return nil, errors.Join(err, d.Destroy(ctx, c.rec.Record))
	}
	return sb, nil
}

// check refuses what is wrong or cannot be had before anything is made.
func (d *Driver) check(s *sandbox.Spec) error {
	if !state.IsName(s.SessionID) {
		return errors.New("the session id may have letters, digits, - and _ only")
	}
	if err := d.checkRoot(&s.Shape); err != nil {
		return err
	}
	if s.UIDBase < d.cfg.UIDBase || uint64(s.UIDBase)+sandbox.RangeSize > 1<<32-2 {
		return fmt.Errorf("uid range from %d is not usable", s.UIDBase)
	}
	if err := inside.CheckClaim(&s.Claim); err != nil {
		return err
	}
	if err := d.checkTargets(&s.Shape, &s.Claim); err != nil {
		return err
	}
	return d.cg.Check(s.Limits)
}

// checkTargets keeps worktree and mounts away from the places of the root
// filesystem.
func (d *Driver) checkTargets(s *sandbox.Shape, c *sandbox.Claim) error {
	targets := c.Targets()
	for _, e := range d.entries(s) {
		for _, t := range targets {
			if inside.Within(t, e.path) || inside.Within(e.path, t) {
				return fmt.Errorf("%w: %s belongs to the root filesystem", sandbox.ErrMountTarget, t)
			}
		}
	}
	return nil
}

// creation is one Create under way.
type creation struct {
	d        *Driver
	spec     *sandbox.Spec
	runtime  runtime
	bundle   bundle
	rec      *record
	sizes    inside.TmpfsSizes
	mounts   []mount.Detached
	files    []*os.File // closed at the end
	disk     inside.Disk
	oneToOne bool // the worktree's owner is in the id mapping instead
}

func (c *creation) close() {
	for _, f := range c.files {
		f.Close()
	}
}

func (c *creation) keep(f *os.File) *os.File {
	c.files = append(c.files, f)
	return f
}

// begin claims the session's name on disk.
func (d *Driver) begin(ctx context.Context, s *sandbox.Spec) (*creation, error) {
	rt, err := d.runtime(ctx, s.Runtime)
	if err != nil {
		return nil, err
	}
	if other, err := d.lookup(s.SessionID); other != nil || err != nil {
		return nil, errors.Join(err, errors.New("there is a sandbox of that name"))
	}
	c := &creation{d: d, spec: s, runtime: rt, bundle: d.bundle(s.SessionID)}
	c.rec = &record{Base: near.Base{Base: state.Begin(s.ID, rt.name)}}
	return c, c.bundle.create(c.rec, int(s.UIDBase))
}

func (c *creation) run(ctx context.Context) (*Sandbox, error) {
	if err := c.d.cg.Claim(&c.rec.Record); err != nil {
		return nil, err
	}
	var err error
	if c.sizes, c.disk, err = inside.SizeTmpfs(c.spec.Limits, &c.spec.Worktree, c.d.Disks() == nil); err != nil {
		return nil, err
	}
	if err := c.prepareMounts(); err != nil {
		return nil, err
	}
	if err := c.preparePlaces(); err != nil {
		return nil, err
	}
	if err := c.writeBundle(); err != nil {
		return nil, err
	}
	stdio, err := newStdio()
	if err != nil {
		return nil, err
	}
	sb, err := c.start(ctx, stdio)
	if err != nil {
		return nil, errors.Join(withOutput(err, stdio), stdio.Close())
	}
	if err := c.finish(sb); err != nil {
		return nil, errors.Join(withOutput(err, stdio), sb.Close())
	}
	return sb, nil
}

// writeBundle makes the root directory and config.json.
func (c *creation) writeBundle() error {
	root, err := c.makeRoot()
	if err != nil {
		return fmt.Errorf("root file system: %w", err)
	}
	spec := c.bundleSpec(root)
	if c.runtime.gvisor {
		c.forGVisor(spec)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(c.bundle.File(configName), data, 0o600)
}

// makeRoot makes the directory that the runtime takes for the root: the skeleton,
// the common one where that fits, or what an image lies below.
func (c *creation) makeRoot() (string, error) {
	targets := []string{c.spec.Worktree.Target}
	for _, m := range c.spec.Mounts {
		// What lies in the worktree has its mount point there, or is refused.
		if !inside.Within(m.Target, c.spec.Worktree.Target) {
			targets = append(targets, m.Target)
		}
	}
	common := slices.Equal(targets, []string{sandbox.Workspace})
	if c.spec.Root != nil {
		return c.bundle.rootfs(), c.makeImageRoot(targets, common)
	}
	if common {
		return c.d.root.shared, nil
	}
	if err := os.Mkdir(c.bundle.rootfs(), 0o755); err != nil {
		return "", err
	}
	return c.bundle.rootfs(), c.d.root.skeleton(c.bundle.rootfs(), targets)
}

// idMappings maps the session's range, and where the worktree's file system has
// no id-mapped mounts, its owner (a uid or a gid) in the place of the tool's id.
func (c *creation) idMappings(tool, owner uint32) []specs.LinuxIDMapping {
	base := c.spec.UIDBase
	if !c.oneToOne {
		return []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: sandbox.RangeSize}}
	}
	return []specs.LinuxIDMapping{
		{ContainerID: 0, HostID: base, Size: tool},
		{ContainerID: tool, HostID: owner, Size: 1},
		{ContainerID: tool + 1, HostID: base + tool + 1, Size: sandbox.RangeSize - tool - 1},
	}
}

// start runs the runtime and opens what it has made. The sandbox takes over
// stdio, unless there is an error.
func (c *creation) start(ctx context.Context, stdio *os.File) (*Sandbox, error) {
	if c.runtime.gvisor {
		return c.startGVisor(ctx, stdio)
	}
	socket, err := listen(c.bundle)
	if err != nil {
		return nil, err
	}
	c.keep(socket)
	nonce, err := noncePipe(c.spec.Nonce)
	if err != nil {
		return nil, err
	}
	c.keep(nonce)
	cgroup, err := c.d.cg.MakeRuntime(c.spec.SessionID)
	if err != nil {
		return nil, err
	}
	c.keep(cgroup)
	if err := os.MkdirAll(c.runtime.root, 0o700); err != nil {
		return nil, err
	}
	if err := c.runtime.start(ctx, c.runtime.flags(), c.spec.SessionID, c.bundle.Path, cgroup, stdio, socket, nonce); err != nil {
		return nil, err
	}
	pid, err := c.bundle.pid()
	if err != nil {
		return nil, err
	}
	return c.d.open(pid, c.rec, stdio)
}

// finish does what can be done only with a live agent.
func (c *creation) finish(sb *Sandbox) error {
	id := c.spec.SessionID
	if !c.runtime.gvisor {
		if err := c.d.cg.Divide(id, sb.Proc, int(c.spec.UIDBase), c.spec.Limits, c.sizes.Sum()); err != nil {
			return err
		}
		views, err := mount.Views(c.d.cg.Views(id))
		for _, v := range views {
			c.keep(v.File)
		}
		if err != nil {
			return err
		}
		if err := mount.Attach(sb.Proc.Dir(), append(views, c.mounts...)); err != nil {
			return err
		}
	}
	if c.spec.Root != nil {
		// The sandbox has its own by now. Without this one, nothing keeps the
		// session's file system when the sandbox ends, whatever becomes of us.
		if err := mount.UnmountBelow(c.bundle.rootfs()); err != nil {
			return err
		}
	}
	// The runtime's helpers may take a moment to be gone; then Destroy does it.
	if err := unix.Rmdir(c.d.cg.RuntimeDir(id)); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := sb.Proc.Alive(); err != nil {
		return err
	}
	return c.bundle.Write(c.rec)
}
