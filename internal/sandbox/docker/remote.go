package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/cgroup"
	"github.com/toold/toold/internal/sandbox/far"
	"github.com/toold/toold/internal/sandbox/state"
)

// RemoteConfig is what NewRemote needs.
type RemoteConfig struct {
	// Config is that of an Engine on this host, but that Host is tcp:// or ssh://,
	// and RunDir and CgroupParent have no meaning.
	Config
	// CertDir holds ca.pem, cert.pem and key.pem for tcp://.
	CertDir string
}

// Remote makes sandboxes with a Docker Engine on another host, by its API alone.
// Nothing of this host can be mounted there: agent, nonce and worktree are copied
// into volumes of the container before it starts, and what changed in the worktree
// is copied back when it ends. The agent listens; each connection to it is one
// process that the Engine starts in the container, which carries bytes to the
// agent's socket. No call is run that way.
//
// Its methods may be called from any goroutine.
type Remote struct {
	d     *Driver
	trees *far.Trees
	ends  crew.Turns // by session: what one copies back, another would overwrite
}

// NewRemote prepares the driver. It does not speak to the Engine.
func NewRemote(cfg RemoteConfig) (*Remote, error) {
	d := &Driver{cfg: cfg.Config, dir: remoteDir(cfg.StateDir), log: cfg.Log, trees: map[string]*cgroup.Tree{}}
	var err error
	if d.engine, err = newRemoteEngine(cfg.Host, cfg.CertDir); err != nil {
		return nil, fmt.Errorf("docker driver: %w", err)
	}
	if err := os.MkdirAll(d.sandboxesDir(), 0o700); err != nil {
		return nil, fmt.Errorf("docker driver: %w", err)
	}
	if err := d.bring(); err != nil {
		return nil, fmt.Errorf("docker driver: %w", err)
	}
	return newRemote(d), nil
}

func newRemote(d *Driver) *Remote {
	return &Remote{d: d, trees: far.NewTrees(filepath.Join(d.dir, "changes"), d.log)}
}

// AskRoom has room asked before so many bytes of a worktree that comes back are written here.
func (r *Remote) AskRoom(room func(bytes int64) error) { r.trees.Room = room }

// Name implements sandbox.Driver.
func (r *Remote) Name() string { return Name }

// Close lets go of the connections to the Engine and of the worktrees.
func (r *Remote) Close() error {
	r.trees.Close()
	return r.d.Close()
}

// Runtimes implements sandbox.Driver.
func (r *Remote) Runtimes(ctx context.Context) ([]string, error) { return r.d.Runtimes(ctx) }

// Try implements sandbox.Driver.
func (r *Remote) Try(ctx context.Context, name string) error { return r.d.Try(ctx, name) }

// List implements sandbox.Driver.
func (r *Remote) List(ctx context.Context, owner string) ([]sandbox.Record, error) {
	return r.d.List(ctx, owner)
}

// Adopt implements sandbox.Driver.
func (r *Remote) Adopt(ctx context.Context, rec sandbox.Record) (_ sandbox.Sandbox, err error) {
	defer sandbox.Failed(&err, "adopt", rec.SessionID)
	if !state.IsName(rec.SessionID) {
		return nil, sandbox.ErrGone
	}
	found, err := r.d.place(rec.SessionID).read()
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("nothing is left of it: %w", sandbox.ErrGone)
	}
	if err != nil {
		return nil, err
	}
	if !found.Same(&rec.ID) || found.Container == "" {
		return nil, fmt.Errorf("the name is taken by another, or it was never finished: %w", sandbox.ErrGone)
	}
	if err := r.running(ctx, found.Container); errors.Is(err, sandbox.ErrGone) {
		return nil, err
	} else if err != nil {
		// It may be back by the time that the agent is dialled.
		r.d.log.Warn("the Docker Engine does not say whether a sandbox lives", "sandbox", rec.SessionID, "error", err)
	}
	return newRemoteSandbox(r, found), nil
}

// running says whether a container runs; the error is ErrGone where it does not.
func (r *Remote) running(ctx context.Context, id string) error {
	st, err := r.d.engine.inspect(ctx, id)
	switch {
	case errors.Is(err, errNotFound):
		return sandbox.ErrGone
	case err != nil:
		return err
	case !st.State.Running:
		return fmt.Errorf("its container has ended with status %d %.500q: %w", st.State.ExitCode, st.State.Error, sandbox.ErrGone)
	}
	return nil
}

// Images gives the Engine's.
func (r *Remote) Images() *Images { return r.d.Images() }

// Host implements sandbox.Prober.
func (r *Remote) Host(ctx context.Context) []client.Check {
	version, err := r.d.engine.version(ctx)
	if err != nil {
		return []client.Check{{
			Group: "docker", Name: "engine", Status: client.CheckFail, Detail: err.Error(),
			Hint: "sessions cannot be made; those whose containers live go on",
		}}
	}
	return []client.Check{
		r.d.programs.Check(),
		{Group: "docker", Name: "engine", Status: client.CheckOK, Detail: version + ", at " + r.d.engine.host},
		{
			Group: "worktree", Name: "mode overlay with docker", Status: client.CheckWarn, Detail: "refused: the Engine is on another host, where worktrees are copies",
			Hint: "take the mode bind, or the driver oci",
		},
		{
			Group: "docker", Name: "elsewhere", Status: client.CheckWarn, Detail: "the Engine is on another host: worktrees are copied, limits hold for tools and agent together, and whoever has that host in hand has the sessions",
			Hint: "use an Engine on this host, or the driver oci, where that matters",
		},
	}
}
