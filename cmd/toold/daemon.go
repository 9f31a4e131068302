package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/doctor"
	"github.com/toold/toold/internal/hardening"
	"github.com/toold/toold/internal/hostlock"
	"github.com/toold/toold/internal/metrics"
	"github.com/toold/toold/internal/replay"
	"github.com/toold/toold/internal/sandbox/cgroup"
	"github.com/toold/toold/internal/sandbox/oci"
	"github.com/toold/toold/internal/server"
	"github.com/toold/toold/internal/session"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/worktree/layers"
)

// orphanTime is how long the sandboxes of a private daemon outlive it when it
// is killed. It cannot be restarted, so there is nothing to wait for; the time
// only keeps a slow daemon from losing its sessions.
const orphanTime = 30 * time.Second

// stopTime bounds the end of everything.
const stopTime = 30 * time.Second

// daemon holds what was built, in the order in which it was.
type daemon struct {
	opts       *options
	daemonPath string // PATH of the daemon's own environment
	env        []string
	log        *slog.Logger
	notify     notifier
	manager    *session.Manager
	server     *server.Server
	metrics    *metrics.Metrics
	audit      *audit.Log
	address    string   // of the API's socket, which systemd may have chosen
	shows      error    // why it only shows what is on record (serveShowing); nil where it does all
	closers    []closer // run in reverse

	mu  sync.Mutex // guards cfg; held during a reload, so that there is one at a time
	cfg *config.Config
}

// newDaemon builds everything from cfg. It starts nothing but the store's writer. shows is why it
// is to show only what is on record; nil makes a whole one.
func newDaemon(cfg *config.Config, o *options, p process, shows error) (_ *daemon, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("toold must run as root: it makes containers with user namespaces of their own; start it with sudo or as a system service")
	}
	d := &daemon{opts: o, cfg: cfg, shows: shows, env: p.env, daemonPath: lookup(p.env, "PATH"), log: newLogger(cfg.Daemon.Log, p.stderr)}
	d.notify = notifier{d.log}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if err := d.prepareDirs(); err != nil {
		return nil, err
	}
	if err := d.newManager(); err != nil {
		return nil, err
	}
	d.log.Info("toold starts", "version", version, "state_dir", d.cfg.Daemon.StateDir, "driver", cfg.Sandbox.Driver, "runtime", cfg.Sandbox.Runtime)
	d.lint(cfg)
	return d, nil
}

func lookup(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// prepareDirs makes the daemon's directories and takes its lock.
func (d *daemon) prepareDirs() error {
	c := &d.cfg.Daemon
	gid, err := groupID(c.SocketGroup)
	if err != nil {
		return err
	}
	if err := ownDir(c.RunDir, 0o750); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	// Without a group of ours it keeps its own: where systemd holds the socket, its
	// units say whose that and the directory are.
	if c.SocketGroup != "" {
		if err := os.Lchown(c.RunDir, -1, gid); err != nil {
			return fmt.Errorf("run directory: %w", err)
		}
	}
	if err := ownDir(sandboxDir(c), 0o711); err != nil {
		return fmt.Errorf("directory of sandboxes: %w", err)
	}
	if err := ownDir(hostlock.Dir(), 0o700); err != nil {
		return fmt.Errorf("directory in which daemons claim uids: %w", err)
	}
	lock, err := lockDir(c.RunDir)
	if err != nil {
		return err
	}
	d.onClose("lock of the run directory", lock.Close)
	if err := d.showing(); err != nil {
		return fmt.Errorf("memory over the state directory: %w", err)
	}
	if err := ownDir(d.cfg.Daemon.StateDir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return d.useCgroups()
}

// useCgroups counts this daemon among those with sessions below its cgroup, which the
// last of them removes.
func (d *daemon) useCgroups() error {
	path := d.opts.cgroupParent
	parent, err := cgroup.OpenParent(filepath.Join(hostlock.Dir(), "cgroups"), path)
	if err != nil {
		return fmt.Errorf("lock of the cgroup %s: %w", path, err)
	}
	d.onClose("cgroup", func() error {
		if err := parent.Close(); err != nil {
			d.log.Warn("the cgroup above those of the sessions stays", "cgroup", path, "error", err)
		}
		return nil
	})
	return nil
}

// sandboxDir is where bundles and root directories are. It stands beside the run
// directory because the ids of sessions must be able to pass it, and nobody but
// its group may pass the one with the API's socket.
func sandboxDir(c *config.Daemon) string { return c.RunDir + "-sandboxes" }

// rootfs is the root filesystem of sessions without an image. Where the
// configuration names an image there are none but those of probes, which run
// nothing of anybody's.
func rootfs(s *config.Sandbox) string {
	if s.Image() != "" {
		return "host"
	}
	return s.RootFS
}

func (d *daemon) newManager() error {
	owner, err := ownerOf(d.cfg.Daemon.StateDir)
	if err != nil {
		return err
	}
	st, err := store.Open(store.Config{Path: filepath.Join(d.cfg.Daemon.StateDir, "toold.db"), Log: d.log})
	if err != nil {
		return err
	}
	d.onClose("records", st.Close)
	if err := d.openAudit(st); err != nil {
		return err
	}
	drivers, err := d.newDrivers(context.Background(), st)
	if err != nil {
		return err
	}
	trees, err := layers.Open(filepath.Join(d.cfg.Daemon.StateDir, "worktrees"))
	if err != nil {
		return err
	}
	d.onClose("layers of worktrees", trees.Close)
	caches, err := cache.Open(filepath.Join(d.cfg.Daemon.StateDir, "caches"))
	if err != nil {
		return err
	}
	tools := tool.NewRegistry()
	if err := d.newMetrics(tools, drivers, st); err != nil {
		return err
	}
	results, requests := budget.Sizes(memoryLimit())
	mc := session.Config{
		Memory:     budget.New(results),
		Store:      st,
		Tools:      tools,
		Drivers:    drivers.all,
		Driver:     d.cfg.Sandbox.Driver,
		Images:     drivers.images,
		Image:      d.cfg.Sandbox.Image(),
		Runtime:    drivers.runtime,
		Log:        d.log,
		Owner:      owner,
		Shows:      !oci.Programs(d.cfg.Sandbox.HostPaths),
		Private:    d.opts.ephemeral && d.cfg.Approvals.SelfApprove,
		OutputDir:  filepath.Join(d.cfg.Daemon.StateDir, "output"),
		JournalDir: filepath.Join(d.cfg.Daemon.StateDir, "transactions"),
		Trees:      trees,
		Caches:     caches,
		UIDBase:    d.cfg.Sandbox.UIDBase,
		UIDClaims:  filepath.Join(hostlock.Dir(), "ranges"),
		Settings:   sessionSettings(d.cfg, d.daemonPath, d.opts.ephemeral),
		Observers:  []session.Observer{d.metrics},
		Auditor:    d.audit,
	}
	if d.opts.ephemeral {
		mc.Orphan = orphanTime
	}
	if d.manager, err = session.New(mc); err != nil {
		return err
	}
	if d.shows != nil {
		d.manager.Show(d.shows)
	}
	d.server, err = server.New(server.Config{
		API: d.api(drivers, st, tools, trees), Identity: identity(d.cfg), Log: d.log, Version: versionInfo(drivers.ripgrep), Metrics: d.metrics.Handler(), Reload: d.reload, Settings: d.settings, MCPWait: d.mcpWait,
		Backup:    (&backups{dir: d.cfg.Daemon.StateDir, audit: d.cfg.AuditPath(), room: d.manager.Collector.Room, store: st, turn: make(chan struct{}, 1)}).write,
		Requests:  budget.New(requests),
		MayChange: d.manager.MayChange,
	})
	return err
}

// api is what answers requests.
func (d *daemon) api(ds *drivers, st *store.Store, tools *tool.Registry, trees *layers.Store) server.API {
	m := d.manager
	return server.API{
		Sessions: m, Calls: m.AllCalls(), Files: m.Files, Events: m.Events, Approvals: m.Approvals, Policy: m.Policy, Images: m.Images,
		Tools: m.Tools, Usage: m.Usage, Collector: m.Collector, Health: m, Trees: m.AllTrees(), Networks: m.Networks, Caches: m.Caches, Drainer: m.Door,
		Doctor: doctor.New(doctor.Config{
			Sessions: m, Drivers: ds.all, Driver: d.cfg.Sandbox.Driver,
			Host: func(ctx context.Context) []client.Check {
				return slices.Concat(m.Checks(ctx), hardening.Checks(os.DirFS("/"), m.Limits()), []client.Check{trees.Check(), m.Caches.Check(), m.Collector.Check()}, m.DiskRoom().Checks(), m.MemoryRoom().Checks())
			},
			Trees: trees,
		}),
		Replay: replay.New(replay.Config{Store: st, Tools: tools, Sessions: m}),
	}
}

// closer closes a part of the daemon.
type closer struct {
	what  string
	close func() error
}

// closeTime is how long one part may take. What is stuck in a file system that does not answer
// keeps the others from nothing.
const closeTime = 10 * time.Second

func (d *daemon) onClose(what string, f func() error) {
	d.closers = append(d.closers, closer{what, f})
}

func (d *daemon) close() error {
	var errs []error
	for _, c := range slices.Backward(d.closers) {
		errs = append(errs, c.closeWithin(closeTime))
	}
	return errors.Join(errs...)
}

func (c closer) closeWithin(most time.Duration) (err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), most, fmt.Errorf("it has not closed within %s", most))
	defer cancel()
	var work crew.Crew
	closed := make(chan error, 1)
	work.Go(c.what, func() { closed <- c.close() })
	if err := work.Close(ctx); err != nil {
		return err
	}
	return <-closed
}

// run serves until ctx ends (or, for a private daemon, until its standard input
// does), then stops in the reverse order of the start.
func (d *daemon) run(ctx context.Context, p process) (err error) {
	defer func() { err = errors.Join(err, d.close()) }()
	ln, err := listenAPI(&d.cfg.Daemon)
	if err != nil {
		return err
	}
	d.address = ln.Addr().String()
	metricsLn, err := listenMetrics(d.cfg.Metrics.Listen)
	if err != nil {
		return errors.Join(err, ln.Close())
	}

	// The servers end after the sessions are let go, so that what waits for a
	// call gets its answer: they have a context of their own.
	serving, stopServing := context.WithCancelCause(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	serveAPI := func() { wg.Go(func() { stopServing(d.server.Serve(serving, ln)) }) }
	if !ln.systemd {
		serveAPI()
	}
	wg.Go(func() { ln.watch(serving, d.log) })
	wg.Go(func() { serveMetrics(serving, metricsLn, d.cfg.Metrics.Listen, d.metrics.Handler(), d.log) })
	// Recovery cannot be cut short: what it began must be written down.
	waiting(ctx, d.notify, func() { err = d.manager.Start(context.WithoutCancel(ctx)) })
	if ln.systemd {
		// What came to systemd's socket meanwhile has waited there. Whoever starts
		// the daemon by connecting is not told that it is only starting.
		serveAPI()
	}
	if err == nil {
		status := "serving " + d.address
		if d.shows != nil {
			status = d.showStatus()
		}
		d.notify.ready(status)
		d.log.Info("toold serves", "socket", d.address, "metrics", addressOf(metricsLn))
		err = d.loop(ctx, serving, p)
	}
	if !errors.Is(context.Cause(ctx), errRoom) { // systemd does not take that back
		d.notify.stopping()
	}
	err = errors.Join(err, d.leave())
	stopServing(nil)
	wg.Wait()
	return err
}

// endSessions takes over what an earlier daemon left, ends all of it, and serves
// nobody: the full stop of a host, after the daemon's own.
func (d *daemon) endSessions(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.manager.Start(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, d.leave())
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	return errors.Join(d.manager.EndAll(ctx), d.leave())
}

// loop waits for what ends the daemon, and reloads on the way.
func (d *daemon) loop(ctx, serving context.Context, p process) error {
	watch, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { d.notify.watchdog(watch, d.alive) })
	input := make(chan struct{})
	if d.opts.ephemeral {
		// The reader ends with the process: nothing can take it from a read.
		go func() {
			_, _ = io.Copy(io.Discard, p.stdin)
			close(input)
		}()
	}
	for {
		select {
		case <-ctx.Done():
			d.log.Info("toold stops", "cause", context.Cause(ctx).Error())
			return nil
		case <-input:
			d.log.Info("toold stops", "cause", "its standard input was closed")
			return nil
		case <-serving.Done():
			return context.Cause(serving)
		case <-p.hup:
			d.hangup(ctx)
		}
	}
}

// leave lets go of the sessions: they go on without this process. A private
// daemon ends them.
func (d *daemon) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	var err error
	if d.opts.ephemeral {
		err = d.manager.EndAll(ctx)
	}
	return errors.Join(err, d.manager.Close(ctx))
}

// alive asks the daemon's own socket. Any answer will do: who may ask is not
// the question here.
func (d *daemon) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c := client.New(client.Options{Socket: d.address})
	defer c.Close()
	_, err := c.Health(ctx)
	if answered := new(client.Error); errors.As(err, &answered) {
		return nil
	}
	return err
}
