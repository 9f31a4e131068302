package metrics

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toold/toold/client"
)

// usageTime bounds how long a scrape waits for what the tenants use.
const usageTime = 5 * time.Second

// usageCollector asks at each scrape what the tenants use.
type usageCollector struct {
	ask     func(context.Context) ([]client.TenantUsage, error)
	metrics []usageMetric

	mu      sync.Mutex // guards the fields below
	tenants map[string]bool
	last    []client.TenantUsage // of the last time that asking worked
}

// usageMetric is one number of client.TenantUsage.
type usageMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*client.TenantUsage) float64
}

func newUsageCollector(ask func(context.Context) ([]client.TenantUsage, error)) *usageCollector {
	if ask == nil {
		ask = func(context.Context) ([]client.TenantUsage, error) { return nil, nil }
	}
	c := &usageCollector{ask: ask, tenants: map[string]bool{}}
	for _, x := range []struct {
		name, help string
		kind       prometheus.ValueType
		of         func(*client.TenantUsage) float64
	}{
		{"toold_tenant_sessions", "Sessions that have not ended.", prometheus.GaugeValue, func(u *client.TenantUsage) float64 { return float64(u.Sessions) }},
		{"toold_tenant_queued", "Requests that wait for a session of their tenant to end.", prometheus.GaugeValue, func(u *client.TenantUsage) float64 { return float64(u.Queued) }},
		{"toold_tenant_calls", "Calls that have not ended.", prometheus.GaugeValue, func(u *client.TenantUsage) float64 { return float64(u.Calls) }},
		{"toold_tenant_cpu_seconds_total", "CPU time of all sandboxes, from their cgroups.", prometheus.CounterValue, func(u *client.TenantUsage) float64 { return float64(u.CPUMillis) / 1000 }},
		{"toold_tenant_memory_bytes", "Memory of all sandboxes, from their cgroups; files in /tmp and caches included.", prometheus.GaugeValue, func(u *client.TenantUsage) float64 { return float64(u.MemoryBytes) }},
		{"toold_tenant_disk_bytes", "Kept outputs of live sessions.", prometheus.GaugeValue, func(u *client.TenantUsage) float64 { return float64(u.DiskBytes) }},
		{"toold_tenant_layer_bytes", "What live sessions wrote into the writable layers of their images.", prometheus.GaugeValue, func(u *client.TenantUsage) float64 { return float64(u.LayerBytes) }},
		{"toold_tenant_record_bytes", "Records of calls: their inputs and results.", prometheus.GaugeValue, func(u *client.TenantUsage) float64 { return float64(u.RecordBytes) }},
		{"toold_tenant_worktree_bytes", "What sessions changed in worktrees of mode overlay, until it is dropped; it may be a minute old.", prometheus.GaugeValue, func(u *client.TenantUsage) float64 { return float64(u.WorktreeBytes) }},
		{"toold_tenant_io_bytes_total", "Bytes that sandboxes read from and wrote to block devices, where the host counts them.", prometheus.CounterValue, func(u *client.TenantUsage) float64 { return float64(u.IOBytes) }},
		{"toold_oom_kills_total", "Processes that the kernel killed for the memory of their sandbox.", prometheus.CounterValue, func(u *client.TenantUsage) float64 { return float64(u.OOMKills) }},
		{"toold_tenant_max_sessions", "The most sessions at once; +Inf if there is no bound.", prometheus.GaugeValue, func(u *client.TenantUsage) float64 { return most(int64(u.MaxSessions)) }},
		{"toold_tenant_max_calls", "The most calls at once; +Inf if there is no bound.", prometheus.GaugeValue, func(u *client.TenantUsage) float64 { return most(int64(u.MaxCalls)) }},
		{"toold_tenant_max_record_bytes", "The most that records of calls may take; +Inf if there is no bound.", prometheus.GaugeValue, func(u *client.TenantUsage) float64 { return most(u.MaxRecordBytes) }},
	} {
		c.metrics = append(c.metrics, usageMetric{prometheus.NewDesc(x.name, x.help, []string{"tenant"}, nil), x.kind, x.of})
	}
	return c
}

// most is a bound as a number that what is used can be divided by.
func most(n int64) float64 {
	if n <= 0 {
		return math.Inf(1)
	}
	return float64(n)
}

// AddTenants makes these tenants' usage visible by their names, as a reload of
// the configuration may bring new ones. Names are never taken out again: counters
// that vanish and come back look like a restart.
func (m *Metrics) AddTenants(names []string) {
	c := m.usage
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range names {
		c.tenants[n] = true
	}
}

// Describe implements prometheus.Collector.
func (c *usageCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector. When asking fails the last answer
// stays: a counter must not vanish for a moment.
func (c *usageCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), usageTime)
	defer cancel()
	now, err := c.ask(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.last = now
	}
	for tenant, u := range c.byTenantLocked() {
		for _, m := range c.metrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(&u), tenant)
		}
	}
}

// byTenantLocked is the last answer with all tenants whose names are in the set,
// and the others together, which have no bounds in common. c.mu is held.
func (c *usageCollector) byTenantLocked() map[string]client.TenantUsage {
	all := map[string]client.TenantUsage{unknown: {}}
	for n := range c.tenants {
		all[n] = client.TenantUsage{}
	}
	for _, u := range c.last {
		name := u.Tenant
		if !c.tenants[name] {
			name = unknown
		}
		t := all[name]
		t.Sessions += u.Sessions
		t.Queued += u.Queued
		t.Calls += u.Calls
		t.CPUMillis += u.CPUMillis
		t.MemoryBytes += u.MemoryBytes
		t.DiskBytes += u.DiskBytes
		t.LayerBytes += u.LayerBytes
		t.RecordBytes += u.RecordBytes
		t.WorktreeBytes += u.WorktreeBytes
		t.IOBytes += u.IOBytes
		t.OOMKills += u.OOMKills
		if name != unknown {
			t.MaxSessions, t.MaxCalls, t.MaxRecordBytes = u.MaxSessions, u.MaxCalls, u.MaxRecordBytes
		}
		all[name] = t
	}
	return all
}
