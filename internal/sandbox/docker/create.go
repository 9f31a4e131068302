package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/image"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/cgroup"
	"github.com/toold/toold/internal/sandbox/control"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/mount"
	"github.com/toold/toold/internal/sandbox/near"
	"github.com/toold/toold/internal/sandbox/process"
	"github.com/toold/toold/internal/sandbox/state"
)

// cleanupTime bounds what is done after a failed or cancelled Create.
const cleanupTime = 20 * time.Second

// Create implements sandbox.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (_ sandbox.Sandbox, err error) {
	defer sandbox.Failed(&err, "create", spec.SessionID)
	if err := check(&spec); err != nil {
		return nil, err
	}
	if l := spec.Limits.Disk; l > 0 && l < loopdisk.Least {
		return nil, fmt.Errorf("limits.disk %v: it is at least %v: %w", l, loopdisk.Least, sandbox.ErrUnsupported)
	} else if err := d.Disks(); l > 0 && err != nil {
		return nil, fmt.Errorf("limits.disk: %w: %w", err, sandbox.ErrUnsupported)
	}
	c, err := d.plan(ctx, &spec)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.make(ctx, c.run, func(ctx context.Context) error { return d.Destroy(ctx, c.rec.Record) })
}

// make claims the session's name and lets run make the sandbox; undo removes what that
// leaves after an error.
func (c *creation) make(ctx context.Context, run func(context.Context) (sandbox.Sandbox, error), undo func(context.Context) error) (sandbox.Sandbox, error) {
	if err := c.place.claim(&c.rec); err != nil {
		return nil, err
	}
	sb, err := run(ctx)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		return nil, errors.Join(err, undo(ctx))
	}
	return sb, nil
}

// check refuses what is wrong or cannot be had before anything is made.
func check(s *sandbox.Spec) error {
	if !state.IsName(s.SessionID) {
		return errors.New("the session id may have letters, digits, - and _ only")
	}
	if s.Root != nil {
		return fmt.Errorf("a root filesystem of this daemon's: the Docker Engine has its own images: %w", sandbox.ErrUnsupported)
	}
	return inside.CheckClaim(&s.Claim)
}

// creation is one Create under way.
type creation struct {
	d      *Driver
	spec   *sandbox.Spec
	info   *engineInfo
	image  *image.InspectResponse
	place  place
	rec    record
	base   ids
	sizes  inside.TmpfsSizes
	mounts []mount.Detached
}

func (c *creation) close() {
	for _, m := range c.mounts {
		_ = m.File.Close()
	}
}

// ids are those of the host that a container's 0 stands for.
type ids struct{ uid, gid uint32 }

// plan settles what the container will be. It makes nothing.
func (d *Driver) plan(ctx context.Context, spec *sandbox.Spec) (*creation, error) {
	if err := d.programs.Ready(); err != nil {
		return nil, err
	}
	info, err := d.engine.info(ctx)
	if err != nil {
		return nil, err
	}
	c := &creation{d: d, spec: spec, info: info, place: d.place(spec.SessionID)}
	return c, c.plan(ctx)
}

func (c *creation) plan(ctx context.Context) (err error) {
	runtime := c.spec.Runtime
	if known := runtimes(c.info); runtime == "" {
		runtime = known[0]
	} else if !slices.Contains(known, runtime) {
		return fmt.Errorf("runtime %q: the Docker Engine has %s: %w", runtime, strings.Join(known, ", "), sandbox.ErrUnsupported)
	}
	c.rec = record{Base: near.Base{Base: state.Begin(c.spec.ID, runtime)}}
	if c.base, err = remapped(c.info); err != nil {
		return err
	}
	if c.sizes, c.rec.Own, err = inside.SizeTmpfs(c.spec.Limits, &c.spec.Worktree, true); err != nil {
		return err
	}
	if err := c.checkLimits(); err != nil {
		return err
	}
	if c.image, err = c.d.imageOf(ctx, c.spec.Image); err != nil {
		return err
	}
	c.note("a container of a Docker Engine: a wall that is weaker than the default driver's, see docs/security.md")
	if c.base == (ids{}) {
		c.note("the Docker Engine maps no users: root in the sandbox is root of the host, held by capabilities, filters and mounts alone; tools have the host's uid 1000, the same in all sessions")
	}
	for _, p := range volumes(c.image) {
		c.note(fmt.Sprintf("the image's volume %q is empty and read-only", p))
	}
	return nil
}

// checkLimits refuses what the Engine says that it cannot enforce.
func (c *creation) checkLimits() error {
	l := c.spec.Limits
	for _, need := range []struct {
		limit     string
		set, here bool
	}{
		{"memory", l.Memory > 0, c.info.MemoryLimit},
		{"pids", l.PIDs > 0, c.info.PidsLimit},
		{"cpus", l.CPUs > 0, c.info.CPUCfsQuota},
	} {
		if need.set && !need.here {
			return fmt.Errorf("limits.%s: the Docker Engine cannot enforce it on this host: %w", need.limit, sandbox.ErrUnsupported)
		}
	}
	return nil
}

// remapped finds out what root of a container is on the host. An Engine that maps
// users keeps its files in a directory named for the mapping.
func remapped(info *engineInfo) (ids, error) {
	if !slices.Contains(info.SecurityOptions, "name=userns") {
		return ids{}, nil
	}
	dir := path.Base(info.DockerRootDir)
	uid, gid, ok := strings.Cut(dir, ".")
	u, err1 := strconv.ParseUint(uid, 10, 32)
	g, err2 := strconv.ParseUint(gid, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return ids{}, fmt.Errorf("the Docker Engine maps users (userns-remap), and its directory %q does not say to whom: %w", info.DockerRootDir, sandbox.ErrUnsupported)
	}
	return ids{uint32(u), uint32(g)}, nil
}

// run makes and starts the container. What it leaves after an error, Destroy finds.
func (c *creation) run(ctx context.Context) (sandbox.Sandbox, error) {
	if err := c.prepareMounts(); err != nil {
		return nil, err
	}
	if err := control.Prepare(c.place.control(), int(c.base.uid), int(c.base.gid), c.spec.Nonce); err != nil {
		return nil, err
	}
	id, err := c.d.engine.create(ctx, containerName(c.spec.SessionID), c.containerConfig(), c.hostConfig())
	if err != nil {
		return nil, err
	}
	c.rec.Container = id
	if err := c.place.Write(&c.rec); err != nil {
		return nil, err
	}
	agent := newPeer()
	l, err := control.Listen(c.place.control(), agent.check)
	if err != nil {
		return nil, err
	}
	sb, err := c.start(ctx, l)
	agent.known(c.rec.PID) // the listener waits for it
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return sb, nil
}

func (c *creation) start(ctx context.Context, l *control.Listener) (*Sandbox, error) {
	if err := c.d.engine.start(ctx, c.rec.Container); err != nil {
		return nil, err
	}
	proc, err := c.d.pinned(ctx, &c.rec)
	if err != nil {
		return nil, err
	}
	c.rec.PID, c.rec.PIDStart = proc.PID(), proc.Start()
	uid, gid := c.toolUser()
	c.rec.Owners = loopdisk.Owners{RootUID: int(c.base.uid), RootGID: int(c.base.gid), ToolUID: int(uid), ToolGID: int(gid)}
	sb := newSandbox(c.d, &c.rec, proc, l)
	if err := c.finish(ctx, sb); err != nil {
		return nil, errors.Join(err, proc.Close())
	}
	return sb, nil
}

// pinned opens the process that the Engine says is the container's.
func (d *Driver) pinned(ctx context.Context, rec *record) (*process.Process, error) {
	st, err := d.engine.inspect(ctx, rec.Container)
	if err != nil {
		return nil, err
	}
	if !st.State.Running || st.State.Pid <= 1 {
		return nil, fmt.Errorf("the agent has ended at once with status %d %.500q: %w", st.State.ExitCode, st.State.Error, sandbox.ErrGone)
	}
	proc, err := process.Open(st.State.Pid, 0, nil)
	if err != nil {
		return nil, fmt.Errorf("the Docker Engine says that the agent is process %d, which cannot be seen here; it must run in the pid namespace of this daemon: %w", st.State.Pid, err)
	}
	// The same answer again: the pid has been the container's all the time.
	again, err := d.engine.inspect(ctx, rec.Container)
	if err == nil && (!again.State.Running || again.State.Pid != st.State.Pid) {
		err = fmt.Errorf("the agent has ended at once: %w", sandbox.ErrGone)
	}
	if err != nil {
		return nil, errors.Join(err, proc.Close())
	}
	return proc, nil
}

// finish makes sure that the Engine has made what it was asked for, and does what
// can be done only with a live agent.
func (c *creation) finish(ctx context.Context, sb *Sandbox) error {
	if err := c.isAgent(ctx, sb.Proc); err != nil {
		return err
	}
	if err := c.mapsUsers(sb.Proc); err != nil {
		return err
	}
	if err := errors.Join(isOf(sb.Proc, c.rec.Container), confined(sb.Proc)); err != nil {
		return err
	}
	if err := c.settleTmpfs(sb.Proc); err != nil {
		return err
	}
	if err := c.divide(sb); err != nil {
		return err
	}
	if err := mount.Attach(sb.Proc.Dir(), c.mounts); err != nil {
		return err
	}
	if err := sb.Proc.Alive(); err != nil {
		return err
	}
	return c.place.Write(&c.rec)
}

// execTime is how long a container's process may take from its start to our file.
const execTime = 10 * time.Second

// isAgent waits until the process runs our file. A runtime with a kernel of its own,
// or an Engine with other files, would show another.
func (c *creation) isAgent(ctx context.Context, p *process.Process) error {
	var want, got unix.Stat_t
	if err := unix.Stat(c.d.programs.Agent, &want); err != nil {
		return err
	}
	end := time.Now().Add(execTime)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if err := p.Alive(); err != nil {
			return fmt.Errorf("the agent has ended at once: %w", err)
		}
		err := unix.Fstatat(int(p.Dir().Fd()), "exe", &got, 0)
		if err == nil && want.Dev == got.Dev && want.Ino == got.Ino {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("runtime %q of the Docker Engine does not run the agent as a process of this host: %w", c.rec.Runtime, sandbox.ErrUnsupported)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mapsUsers checks that root of the container is who the Engine has said.
func (c *creation) mapsUsers(p *process.Process) error {
	for file, want := range map[string]uint32{"uid_map": c.base.uid, "gid_map": c.base.gid} {
		data, err := p.Read(file)
		if err != nil {
			return err
		}
		f := strings.Fields(string(data))
		if len(f) < 3 || f[0] != "0" || f[1] != strconv.FormatUint(uint64(want), 10) {
			return fmt.Errorf("the container's %s is %q, and %d was expected for 0: %w", file, string(data), want, sandbox.ErrUnsupported)
		}
		if n, err := strconv.ParseUint(f[2], 10, 32); err != nil || n <= sandbox.ToolUID {
			return fmt.Errorf("the container's %s is %q, which has no place for %d: %w", file, string(data), sandbox.ToolUID, sandbox.ErrUnsupported)
		}
	}
	return nil
}

// divide puts the tools into a cgroup beside the agent. Where that cannot be, the
// Engine's limits hold for both together.
func (c *creation) divide(sb *Sandbox) error {
	group, err := sb.Proc.CgroupV2()
	if err == nil {
		err = c.divideAt(sb, group)
	}
	if err == nil {
		return c.show(sb)
	}
	c.d.log.Warn("cgroup of a container cannot be divided", "sandbox", c.spec.SessionID, "cgroup", group, "error", err)
	c.note(fmt.Sprintf("the container's cgroup cannot be divided (%v): the limits of memory and processes hold for tools and agent together, so that tools can end the session", err))
	return nil
}

func (c *creation) divideAt(sb *Sandbox, group string) error {
	parent, name := path.Split(group)
	if parent = path.Clean(parent); parent == "/" || strings.Contains(group, "/..") {
		return fmt.Errorf("it is at %q", group)
	}
	t, err := c.d.tree(parent)
	if err != nil {
		return err
	}
	if err := errors.Join(t.Check(c.spec.Limits), t.Holds(name, sb.Proc)); err != nil {
		return err
	}
	c.rec.Group = group // from here on there is something to remove
	if err := t.Divide(name, sb.Proc, int(c.base.uid), c.spec.Limits, c.sizes.Sum()); err != nil {
		return err
	}
	// The Engine's quota is for both; the tools have theirs by now.
	if err := t.Unthrottle(name); err != nil {
		return err
	}
	c.rec.Divided, sb.Tree, sb.Group = true, t, name
	return nil
}

// show adds the container's own cgroups to what is mounted in it. The processors that
// its tools may use are not among it: there is no file to mount them over.
func (c *creation) show(sb *Sandbox) error {
	places := sb.Tree.Views(sb.Group)
	maps.DeleteFunc(places, func(target, _ string) bool { return !slices.Contains(cgroup.ViewDirs(), target) })
	views, err := mount.Views(places)
	c.mounts = append(views, c.mounts...)
	return err
}
