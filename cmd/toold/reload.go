package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/tomltext"
)

// hangup is what SIGHUP does: a reload that reports to systemd and the log.
func (d *daemon) hangup(ctx context.Context) {
	d.notify.reloading()
	status := "serving"
	if d.shows != nil { // the daemon that comes after it reads the configuration
		d.notify.ready(d.showStatus())
		return
	}
	if _, err := d.reload(ctx, false); err != nil {
		status = "serving; the last reload was refused"
		d.log.Error("the configuration was not taken over, the old one stays", "error", err)
	}
	d.notify.ready(status)
}

// reload reads the configuration again and gives it to what can take it while
// running. On an error nothing changes, nor does anything with dryRun.
func (d *daemon) reload(_ context.Context, dryRun bool) (said *client.Reloaded, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() {
		if !dryRun {
			d.metrics.Reloaded(err)
		}
	}()
	cfg, err := d.opts.load(d.env)
	if err != nil {
		return nil, err
	}
	if unmet := tomltext.Join(cfg.Policy.Unmet()); unmet != nil { // no start is stopped by these, but here are the old rules
		return nil, fmt.Errorf("configuration:\n%w", unmet)
	}
	said = &client.Reloaded{Warnings: []string{}, AtStart: append([]string{}, cfg.KeepStarted(d.cfg)...)}
	for _, w := range allWarnings(cfg) {
		said.Warnings = append(said.Warnings, w.String())
	}
	if dryRun {
		return said, nil
	}
	for _, key := range said.AtStart {
		d.log.Warn("a changed setting takes effect at the next start", "key", key)
	}
	d.manager.Reload(sessionSettings(cfg, d.daemonPath, d.opts.ephemeral))
	d.server.SetIdentity(identity(cfg))
	d.metrics.AddTenants(tenantNames(cfg))
	d.cfg = cfg
	d.log.Info("the configuration was read again")
	d.lint(cfg)
	return said, nil
}

// settings are those that the daemon works with.
func (d *daemon) settings() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg.TOML()
}

// mcpWait is [mcp_server] wait of the moment.
func (d *daemon) mcpWait() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.cfg.MCPServer.Wait)
}

// allWarnings are those of the settings and of the rules, as people are told them.
func allWarnings(cfg *config.Config) []tomltext.Problem {
	return slices.Concat(cfg.Warnings, cfg.Policy.Warnings())
}

// lint logs which settings may not mean what was meant. None of it is an error.
func (d *daemon) lint(cfg *config.Config) {
	for _, n := range cfg.Notes {
		d.log.Info("a note on the configuration", "at", fmt.Sprintf("%s:%d", n.Source, n.Line), "note", n.Message)
	}
	for _, w := range cfg.Warnings {
		d.log.Warn("a variable is no setting", "name", w.Source, "warning", w.Message)
	}
	for _, w := range cfg.Policy.Warnings() {
		d.log.Warn("a rule may not do what it is meant to", "at", fmt.Sprintf("%s:%d", w.Source, w.Line), "warning", w.Message)
	}
}
