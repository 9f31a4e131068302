package main

import (
	"context"
	"maps"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/metrics"
	"github.com/toold/toold/internal/sandbox/oci"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// newMetrics makes the metrics with the closed sets of their labels.
func (d *daemon) newMetrics(tools *tool.Registry, ds *drivers, st *store.Store) (err error) {
	room := newSpace(d.cfg.Daemon.StateDir, d.cfg.AuditPath())
	if images := ds.images[oci.Name]; images != nil { // those of an Engine are the Engine's
		room.images = images.List
	}
	room.worktrees = func() int64 { all, _ := d.manager.Usage.Worktrees(); return all } // see Usage below
	d.onClose(room.close)
	d.metrics, err = metrics.New(metrics.Config{
		Version: versionInfo(""), Tools: toolNames(tools), Runtimes: ds.runtimes,
		Permissions: permissionNames(tools), Tenants: tenantNames(d.cfg),
		// The manager is made after the metrics, which observe it, and before
		// anybody can scrape.
		Usage:       func(ctx context.Context) ([]client.TenantUsage, error) { return d.manager.Usage.Usage(ctx) },
		Space:       room.ask,
		StoreErrors: st.Errors,
		AuditErrors: d.audit.Errors,
	})
	return err
}

func toolNames(r *tool.Registry) []string {
	var names []string
	for _, t := range r.All() { // those of the file routes are not listed
		names = append(names, t.Name)
	}
	return names
}

// permissionNames are the permissions that calls of the tools ask for.
func permissionNames(r *tool.Registry) []string {
	names := map[string]bool{}
	for _, t := range r.All() {
		for _, p := range t.Permissions() {
			names[p] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// tenantNames are those of the configuration, and that of the admins.
func tenantNames(c *config.Config) []string {
	return append(slices.Sorted(maps.Keys(c.Tenants)), config.DefaultTenant)
}
