package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/control"
	"github.com/toold/toold/internal/sandbox/mount"
)

// gVisor is a kernel in user space. It takes the same bundle, with these
// differences, each of which was tried:
//
//   - It accepts no connections on an inherited listening socket. The agent dials
//     a socket in a directory that is mounted read-only.
//   - Its mounts are its own: nothing can be moved into a running sandbox. What is
//     to be mounted is attached in a mount namespace in which runsc is started,
//     and which ends with it.
//   - The host sees the kernel and not the programs in it. Cgroups of the host are
//     a wall around the whole; those of calls, and their limits, are of gVisor's
//     own cgroup file system, mounted where only the agent can go.
//   - It makes files as root of the sandbox and then gives them away, so that the
//     id map of a worktree needs a place for that id too.
//   - Hooks, masked paths and the host's seccomp filter have nothing to act on.
const (
	// gvisorRoot is where runsc, in its own mount namespace, finds its state
	// directory. It puts a socket there, and paths of sockets are limited to 107
	// bytes; with a longer one it would use /run, and leave it there. Nothing that
	// a session shows is ever below /dev.
	gvisorRoot   = "/dev/shm"
	cgroupDir    = privateDir + "/cgroup"
	gvisorPlaces = "mounts" // of a bundle: where mounts are staged
	gvisorState  = "runsc"  // of a bundle: gvisorRoot
)

// gvisorFlags are those of every sandbox.
var gvisorFlags = []string{
	"--root", gvisorRoot,
	"--platform", "systrap",
	"--network", "none",
	"--ignore-cgroups", // it is born in the right one
	"--host-uds", "open",
	"--overlay2", "none", // what is read-only is read-only
	"--in-sandbox-cgroup", "v2",
	"--oci-seccomp",
	"--host-settings", "ignore", // the host is the administrator's
}

// isGVisor asks a runtime what it is, until it has said so. Its name says nothing: it may be
// configured by any path.
func (d *Driver) isGVisor(ctx context.Context, rt runtime) (bool, error) {
	if is, ok := d.gvisors.Load(rt.path); ok {
		return is.(bool), nil
	}
	version, err := rt.version(ctx)
	if err != nil {
		return false, err
	}
	is := strings.HasPrefix(version, "runsc ")
	d.gvisors.Store(rt.path, is)
	return is, nil
}

// forGVisor changes a bundle's configuration into one for gVisor.
func (c *creation) forGVisor(s *specs.Spec) {
	s.Process.Args = []string{sandbox.AgentPath, "dial", sandbox.ControlDir, cgroupDir}
	s.Process.OOMScoreAdj = nil
	s.Hooks = nil
	s.Linux.CgroupsPath, s.Linux.Resources = "", nil
	s.Linux.MaskedPaths, s.Linux.ReadonlyPaths = nil, nil
	s.Mounts = slices.DeleteFunc(s.Mounts, func(m specs.Mount) bool {
		return m.Destination == "/dev" || m.Destination == "/dev/pts" // it makes its own
	})
	s.Mounts = append(s.Mounts,
		specs.Mount{Destination: privateDir, Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "noexec", "mode=700", "size=4k", "nr_inodes=16"}},
		specs.Mount{Destination: cgroupDir, Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "nodev", "noexec"}},
		readOnly(sandbox.ControlDir, c.bundle.control()))
	for _, m := range mount.Plan(c.bundle.File(gvisorPlaces), c.mounts) {
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: m.Target, Type: "bind", Source: m.Source,
			Options: append([]string{"rbind", "nosuid", "nodev", "rprivate"}, c.options(m.Target)...),
		})
	}
}

// options are those that the mount for a target has on the host, which hold
// whatever gVisor does: it only has to say the same.
func (c *creation) options(target string) []string {
	i := slices.IndexFunc(c.mounts, func(m mount.Detached) bool { return m.Target == target })
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(c.mounts[i].File.Fd()), &st); err != nil {
		return nil
	}
	var list []string
	if st.Flags&unix.ST_RDONLY != 0 {
		list = append(list, "ro")
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		list = append(list, "noexec")
	}
	return list
}

// startGVisor starts a sandbox in its cgroup and opens it.
func (c *creation) startGVisor(ctx context.Context, stdio *os.File) (*Sandbox, error) {
	id, base := c.spec.SessionID, int(c.spec.UIDBase)
	if err := control.Prepare(c.bundle.control(), base, base, c.spec.Nonce); err != nil {
		return nil, err
	}
	if err := c.d.cg.Enclose(id, c.spec.Limits, c.sizes.Sum()); err != nil {
		return nil, err
	}
	cgroup, err := c.d.cg.OpenEnclosed(id)
	if err != nil {
		return nil, err
	}
	c.keep(cgroup)
	places, state := c.bundle.File(gvisorPlaces), c.bundle.File(gvisorState)
	if err := errors.Join(os.Mkdir(places, 0o755), os.Mkdir(state, 0o700)); err != nil {
		return nil, err
	}
	err = mount.Stage(places, c.mounts, func() error {
		if err := mount.Bind(state, gvisorRoot); err != nil {
			return err
		}
		if err := c.d.cg.Enter(id); err != nil {
			return err
		}
		return c.runtime.start(ctx, gvisorFlags, id, c.bundle.Path, cgroup, stdio)
	})
	if err != nil {
		return nil, err
	}
	pid, err := c.bundle.pid()
	if err != nil {
		return nil, err
	}
	c.rec.Dials = true
	return c.d.open(pid, c.rec, stdio)
}

// listenControl takes the daemon's place on a control socket.
func (d *Driver) listenControl(rec *record) (*control.Listener, error) {
	return control.Listen(d.bundle(rec.SessionID).control(), d.agentOf(rec))
}

// agentOf lets the agent of a sandbox alone connect.
func (d *Driver) agentOf(rec *record) func(*unix.Ucred) error {
	base := rec.UIDBase
	return func(peer *unix.Ucred) error {
		if peer.Uid != base {
			return fmt.Errorf("uid %d dials the control socket of %s, whose agent is %d", peer.Uid, rec.SessionID, base)
		}
		return nil
	}
}
