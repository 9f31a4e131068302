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
	ask func(context.Context) ([]client.TenantUsage, error)

	mu      sync.Mutex // guards the fields below
	tenants map[string]bool
	last    []client.TenantUsage // of the last time that asking worked
}

// usageMetric is one number of client.TenantUsage.
type usageMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	unit float64 // of is divided by it
	of   func(*client.TenantUsage) float64
}

func tenantDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"tenant"}, nil)
}

var usageMetrics = []usageMetric{
	{tenantDesc("toold_tenant_sessions", "Sessions that have not ended."), prometheus.GaugeValue, 1, func(u *client.TenantUsage) float64 { return float64(u.Sessions) }},
	{tenantDesc("toold_tenant_queued", "Requests that wait for a session of their tenant to end."), prometheus.GaugeValue, 1, func(u *client.TenantUsage) float64 { return float64(u.Queued) }},
	{tenantDesc("toold_tenant_calls", "Calls that have not ended."), prometheus.GaugeValue, 1, func(u *client.TenantUsage) float64 { return float64(u.Calls) }},
	{tenantDesc("toold_tenant_cpu_seconds_total", "CPU time of all sandboxes, from their cgroups."), prometheus.CounterValue, 1000, func(u *client.TenantUsage) float64 { return float64(u.CPUMillis) }},
	{tenantDesc("toold_tenant_memory_bytes", "Memory of all sandboxes, from their cgroups; files in /tmp and caches included."), prometheus.GaugeValue, 1, func(u *client.TenantUsage) float64 { return float64(u.MemoryBytes) }},
	{tenantDesc("toold_tenant_disk_bytes", "Kept outputs of live sessions."), prometheus.GaugeValue, 1, func(u *client.TenantUsage) float64 { return float64(u.DiskBytes) }},
	{tenantDesc("toold_tenant_layer_bytes", "What live sessions wrote into the writable layers of their images."), prometheus.GaugeValue, 1, func(u *client.TenantUsage) float64 { return float64(u.LayerBytes) }},
	{tenantDesc("toold_tenant_record_bytes", "Records of calls: their inputs and results."), prometheus.GaugeValue, 1, func(u *client.TenantUsage) float64 { return float64(u.RecordBytes) }},
	{tenantDesc("toold_tenant_worktree_bytes", "What sessions changed in worktrees of mode overlay, until it is dropped; it may be a minute old."), prometheus.GaugeValue, 1, func(u *client.TenantUsage) float64 { return float64(u.WorktreeBytes) }},
	{tenantDesc("toold_tenant_io_bytes_total", "Bytes that sandboxes read from and wrote to block devices, where the host counts them."), prometheus.CounterValue, 1, func(u *client.TenantUsage) float64 { return float64(u.IOBytes) }},
	{tenantDesc("toold_oom_kills_total", "Processes that the kernel killed for the memory of their sandbox."), prometheus.CounterValue, 1, func(u *client.TenantUsage) float64 { return float64(u.OOMKills) }},
	{tenantDesc("toold_tenant_max_sessions", "The most sessions at once; +Inf if there is no bound."), prometheus.GaugeValue, 1, func(u *client.TenantUsage) float64 { return most(int64(u.MaxSessions)) }},
	{tenantDesc("toold_tenant_max_calls", "The most calls at once; +Inf if there is no bound."), prometheus.GaugeValue, 1, func(u *client.TenantUsage) float64 { return most(int64(u.MaxCalls)) }},
	{tenantDesc("toold_tenant_max_record_bytes", "The most that records of calls may take; +Inf if there is no bound."), prometheus.GaugeValue, 1, func(u *client.TenantUsage) float64 { return most(u.MaxRecordBytes) }},
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
	for _, m := range usageMetrics {
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
	for tenant, values := range c.byTenantLocked() {
		for i, m := range usageMetrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, values[i]/m.unit, tenant)
		}
	}
}

// byTenantLocked is the last answer with all tenants whose names are in the set, in the
// order of usageMetrics, and the others together, which have no bounds. c.mu is held.
func (c *usageCollector) byTenantLocked() map[string][]float64 {
	others := valuesOf(&client.TenantUsage{})
	all := map[string][]float64{unknown: others}
	for n := range c.tenants {
		all[n] = valuesOf(&client.TenantUsage{})
	}
	for i := range c.last {
		u := &c.last[i]
		if c.tenants[u.Tenant] {
			all[u.Tenant] = valuesOf(u)
			continue
		}
		for k, v := range valuesOf(u) {
			others[k] += v // +Inf stays that
		}
	}
	return all
}

func valuesOf(u *client.TenantUsage) []float64 {
	values := make([]float64, len(usageMetrics))
	for i, m := range usageMetrics {
		values[i] = m.of(u)
	}
	return values
}
