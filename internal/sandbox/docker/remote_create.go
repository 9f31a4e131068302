package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/inside"
)

// copyTime bounds a worktree's way there, backTime its way back: that begins anew when
// a daemon is started, for which systemd gives five minutes.
const (
	copyTime = 10 * time.Minute
	backTime = 4 * time.Minute
)

// runDir is where the sandbox has what the daemon brings, in a volume.
const runDir = "/run/toold"

// Create implements sandbox.Driver.
func (r *Remote) Create(ctx context.Context, spec sandbox.Spec) (_ sandbox.Sandbox, err error) {
	defer sandbox.Failed(&err, "create", spec.SessionID)
	if err := check(&spec); err != nil {
		return nil, err
	}
	if spec.Limits.Disk > 0 {
		return nil, fmt.Errorf("limits.disk: a Docker Engine on another host takes no disk of this one, and what a container writes there is in memory or in the worktree, which has no bound: leave it out: %w", sandbox.ErrUnsupported)
	}
	if len(spec.Mounts) > 0 {
		return nil, fmt.Errorf("mounts: a Docker Engine on another host sees no directory of this one; put them into the image: %w", sandbox.ErrUnsupported)
	}
	c, err := r.d.plan(ctx, &spec)
	if err != nil {
		return nil, err
	}
	c.rec.Engine = r.d.engine.host
	r.notes(c)
	return c.make(ctx,
		func(ctx context.Context) (sandbox.Sandbox, error) { return r.run(ctx, c) },
		func(ctx context.Context) error { return r.discard(ctx, &c.rec) })
}

// notes say what is weaker than with an Engine on this host.
func (r *Remote) notes(c *creation) {
	c.note(fmt.Sprintf("the Docker Engine is on another host (%s): who has it in hand can see and change all that the session does", r.d.engine.host))
	c.note("limits of memory and processes hold for tools and agent together, so that tools can end the session")
	c.note("whole outputs are not seen inside; the API has them")
	c.note("the names of users are the image's own; tools have uid 1000")
	switch c.spec.Worktree.Mode {
	case client.WorktreeEmpty:
	case client.WorktreeRO:
		c.rec.IDMap = "copied"
		c.note("the worktree is a copy: what changes on this host meanwhile is not seen")
	default:
		c.rec.IDMap = "copied"
		for _, l := range c.spec.Worktree.Linked {
			c.note(l.Note("what is removed in the copy is removed here when it comes back"))
		}
		c.note("the worktree is a copy, whose size has no bound: changes are copied back when the session ends, and what was changed on both sides stays as it is here")
	}
}

func (r *Remote) run(ctx context.Context, c *creation) (sandbox.Sandbox, error) {
	if c.spec.Worktree.Overlay != nil {
		return nil, fmt.Errorf("worktree.mode overlay: the worktree is a copy on the Engine's host, and its changes come back when the session ends; take the mode bind: %w", sandbox.ErrUnsupported)
	}
	if c.spec.Worktree.GuardGit {
		return nil, fmt.Errorf("worktrees.guard_git: the worktree is a copy on the Engine's host, where nothing is mounted over git's files; turn it off: %w", sandbox.ErrUnsupported)
	}
	id, err := r.d.engine.create(ctx, containerName(c.spec.SessionID), remoteContainer(c), remoteHost(c))
	if err != nil {
		return nil, err
	}
	c.rec.Container = id
	if err := c.place.Write(&c.rec); err != nil {
		return nil, err
	}
	if err := r.bring(ctx, c); err != nil {
		return nil, err
	}
	if err := r.copyIn(ctx, c); err != nil {
		return nil, err
	}
	if err := r.d.engine.start(ctx, id); err != nil {
		return nil, err
	}
	if err := r.running(ctx, id); err != nil {
		return nil, err
	}
	return newRemoteSandbox(r, &c.rec), nil
}

func remoteContainer(c *creation) *container.Config {
	cfg := c.containerConfig()
	cfg.Cmd = []string{"listen", sandbox.ControlDir}
	return cfg
}

// remoteHost puts volumes in the place of what is mounted from this host. They have
// no names, so that they end with the container.
func remoteHost(c *creation) *container.HostConfig {
	h := c.hostConfig()
	h.CgroupParent = "" // the other host's own affair
	volume := func(target string) mount.Mount {
		return mount.Mount{Type: mount.TypeVolume, Target: target, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}
	}
	h.Mounts = []mount.Mount{volume(runDir)}
	delete(h.Tmpfs, sandbox.OutputDir)
	delete(h.Tmpfs, sandbox.JournalDir)
	if c.spec.Worktree.Mode != client.WorktreeEmpty {
		delete(h.Tmpfs, c.spec.Worktree.Target)
		h.Mounts = append(h.Mounts, volume(c.spec.Worktree.Target))
	}
	return h
}

// bring copies in the agent, what the daemon will show it, and the marker. All of it
// is root's: tools can read it but the nonce, and change none of it.
func (r *Remote) bring(ctx context.Context, c *creation) error {
	agent, err := os.ReadFile(r.d.programs.Agent)
	if err != nil {
		return err
	}
	ripgrep, err := os.ReadDir(r.d.programs.Ripgrep)
	if err != nil {
		return err
	}
	type file struct {
		name string
		mode int64
		data []byte
	}
	searcher := path.Base(sandbox.RipgrepDir) + "/"
	files := []file{
		{"./", 0o755, nil},
		{searcher, 0o755, nil},
		{path.Base(sandbox.AgentPath), 0o555, agent},
		{path.Base(sandbox.MarkerFile), 0o444, []byte(inside.Marker)},
		{path.Base(sandbox.OutputDir) + "/", 0o755, nil},
		{path.Base(sandbox.ControlDir) + "/", 0o700, nil},
		{path.Base(sandbox.ControlDir) + "/nonce", 0o400, c.spec.Nonce},
	}
	for _, e := range ripgrep {
		data, err := os.ReadFile(filepath.Join(r.d.programs.Ripgrep, e.Name()))
		if err != nil {
			return err
		}
		files = append(files, file{searcher + e.Name(), 0o555, data})
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg}
		if f.data == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return r.d.engine.copyTo(ctx, c.rec.Container, runDir, &b)
}

func (e *engine) copyTo(ctx context.Context, id, dir string, archive io.Reader) error {
	return e.do(ctx, copyTime, "copy into container "+id, func(ctx context.Context) error {
		return e.c.CopyToContainer(ctx, id, dir, archive, container.CopyToContainerOptions{})
	})
}

// copyIn packs the worktree straight into the container.
func (r *Remote) copyIn(ctx context.Context, c *creation) error {
	w := &c.spec.Worktree
	skipped, err := r.trees.Send(ctx, c.place.Dir, w, func(archive io.Reader) error {
		return r.d.engine.copyTo(ctx, c.rec.Container, w.Target, archive)
	})
	if err != nil || skipped == 0 {
		return err
	}
	c.note(plain.Count(skipped, "entry of the worktree was", "entries of the worktree were") + " not copied: what the session may not read stays behind, and what is no file, directory or link")
	return c.place.Write(&c.rec)
}
