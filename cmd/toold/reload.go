package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/toold/toold/internal/config"
)

// hangup is what SIGHUP does: a reload that reports to systemd and the log.
func (d *daemon) hangup(ctx context.Context) {
	d.notify.reloading()
	status := "serving"
	if err := d.reload(ctx); err != nil {
		status = "serving; the last reload was refused"
		d.log.Error("the configuration was not taken over, the old one stays", "error", err)
	}
	d.notify.ready(status)
}

// reload reads the configuration again and gives it to what can take it while
// running. On an error nothing changes.
func (d *daemon) reload(context.Context) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.metrics.Reloaded(err) }()
	cfg, err := d.opts.load(d.env)
	if err != nil {
		return err
	}
	id, err := identity(cfg)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	for _, key := range needRestart(d.cfg, cfg) {
		d.log.Warn("a changed setting takes effect at the next start", "key", key)
	}
	d.manager.Reload(sessionSettings(cfg, d.daemonPath, d.opts.ephemeral))
	d.server.SetIdentity(id)
	d.metrics.AddTenants(tenantNames(cfg))
	d.cfg = keepStarted(d.cfg, cfg)
	d.log.Info("the configuration was read again")
	d.lint(cfg)
	return nil
}

// settings are those that the daemon works with.
func (d *daemon) settings() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg.TOML()
}

// lint logs which settings may not mean what was meant. None of it is an error.
func (d *daemon) lint(cfg *config.Config) {
	for _, n := range cfg.Notes {
		d.log.Info("a note on the configuration", "at", fmt.Sprintf("%s:%d", n.Source, n.Line), "note", n.Message)
	}
	for _, w := range cfg.Policy.Warnings() {
		d.log.Warn("a rule may not do what it is meant to", "at", fmt.Sprintf("%s:%d", w.Source, w.Line), "warning", w.Message)
	}
}

// needRestart names the settings that differ and that only a start can change.
func needRestart(old, changed *config.Config) []string {
	var keys []string
	for _, s := range []struct {
		key  string
		same bool
	}{
		{"daemon.socket", old.Daemon.Socket == changed.Daemon.Socket},
		{"daemon.socket_group", old.Daemon.SocketGroup == changed.Daemon.SocketGroup},
		{"daemon.state_dir", old.Daemon.StateDir == changed.Daemon.StateDir},
		{"daemon.run_dir", old.Daemon.RunDir == changed.Daemon.RunDir},
		{"daemon.log", old.Daemon.Log == changed.Daemon.Log},
		{"metrics.listen", old.Metrics.Listen == changed.Metrics.Listen},
		{"sandbox.driver", old.Sandbox.Driver == changed.Sandbox.Driver},
		{"sandbox.runtime", old.Sandbox.Runtime == changed.Sandbox.Runtime},
		{"sandbox.rootfs", old.Sandbox.RootFS == changed.Sandbox.RootFS},
		{"sandbox.host_paths", slices.Equal(old.Sandbox.HostPaths, changed.Sandbox.HostPaths)},
		{"audit", old.Audit == changed.Audit},
		{"sandbox.uid_base", old.Sandbox.UIDBase == changed.Sandbox.UIDBase},
	} {
		if !s.same {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// keepStarted is changed with those settings of old that only a start can
// change: what the daemon now works with.
func keepStarted(old, changed *config.Config) *config.Config {
	c := *changed
	retention := c.Daemon.Retention
	c.Daemon, c.Metrics, c.Sandbox, c.Audit = old.Daemon, old.Metrics, old.Sandbox, old.Audit
	c.Daemon.Retention = retention
	return &c
}
