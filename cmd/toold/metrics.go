package main

import (
	"context"
	"maps"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/metrics"
	"github.com/toold/toold/internal/sandbox/oci"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// newMetrics makes the metrics with the closed sets of their labels.
func (d *daemon) newMetrics(tools *tool.Registry, ds *drivers, st *store.Store) (err error) {
	room := newSpace(d.cfg.Daemon.StateDir, d.cfg.AuditPath(), func(s *metrics.Space) { // see Usage below
		s.Worktrees, _ = d.manager.Usage.Worktrees()
		s.Caches, s.CacheLayers = d.manager.Caches.Bytes()
		r := d.manager.DiskRoom()
		s.Floor, s.Promised, s.Unwritten, s.Stopped = r.Floor, r.Promised, r.Unwritten, r.Stopped
		left := d.manager.MemoryRoom()
		s.Memory = metrics.Memory{Available: left.Free, Floor: left.Floor, Stopped: left.Stopped}
	})
	if images := ds.images[oci.Name]; images != nil { // those of an Engine are the Engine's
		room.images = images.List
	}
	d.onClose("metrics", room.close)
	d.metrics, err = metrics.New(metrics.Config{
		Version: versionInfo(""), Tools: toolNames(tools), Aliases: aliasNames(tools), Runtimes: ds.runtimes,
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

// aliasNames are the names of other systems that calls of each tool may be made with.
func aliasNames(r *tool.Registry) map[string][]string {
	names := make(map[string][]string)
	for _, t := range r.List() {
		names[t.Name] = t.Aliases()
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
	return append(slices.Sorted(maps.Keys(c.Tenants)), auth.DefaultTenant)
}
