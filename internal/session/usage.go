package session

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

const (
	// usageFresh is how old an answer of Usage may be: several scrapers, or an
	// admin who watches, do not make the cgroups of all sessions be read each time.
	usageFresh = time.Second
	// usageTime bounds one collection. Sessions that were not read by then count
	// with what they were last seen to use.
	usageTime = 2 * time.Second
)

// meter follows the counters of a sandbox.
type meter struct {
	mu   sync.Mutex // guards last
	last reading
}

// reading is what the counters of a sandbox say.
type reading struct {
	cpuMillis, ioBytes, oomKills int64 // since it was made
	memoryBytes, layerBytes      int64 // now
}

// read asks the sandbox; false when there is none, or none any more.
func (s *Session) read(ctx context.Context) (reading, bool) {
	s.mu.Lock()
	sb := s.sb
	s.mu.Unlock()
	if sb == nil {
		return reading{}, false
	}
	u, err := sb.Usage(ctx)
	if err != nil {
		return reading{}, false
	}
	r := reading{cpuMillis: u.CPUMillis, memoryBytes: u.MemoryBytes, layerBytes: u.DiskBytes, oomKills: sb.OOMKills() + s.starved.Load()}
	if m, ok := sb.(sandbox.Meter); ok {
		r.ioBytes = m.IOBytes()
	}
	return r, true
}

// measure adds what the sandbox used since the last time to what its tenant used,
// and says how much it has now.
func (s *Session) measure(ctx context.Context) (memoryBytes, layerBytes int64) {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	last := &s.meter.last
	if ctx.Err() != nil {
		return last.memoryBytes, last.layerBytes
	}
	now, ok := s.read(ctx)
	if !ok {
		return 0, 0
	}
	for _, c := range []struct {
		total *atomic.Int64
		last  *int64
		now   int64
	}{
		{&s.tenant.used.cpuMillis, &last.cpuMillis, now.cpuMillis},
		{&s.tenant.used.ioBytes, &last.ioBytes, now.ioBytes},
		{&s.tenant.used.oomKills, &last.oomKills, now.oomKills},
	} {
		if c.now > *c.last { // a counter that cannot be read any more says 0
			c.total.Add(c.now - *c.last)
			*c.last = c.now
		}
	}
	last.memoryBytes, last.layerBytes = now.memoryBytes, now.layerBytes
	return now.memoryBytes, now.layerBytes
}

// meterFrom counts what the sandbox uses from now on. What it used under an
// earlier daemon was counted by that one, whose counters have ended with it.
func (s *Session) meterFrom(ctx context.Context) {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	if now, ok := s.read(ctx); ok {
		s.meter.last = now
	}
}

// usageCache keeps the last answer of Usage.
type usageCache struct {
	mu   sync.Mutex // held while the next answer is collected; guards the fields below
	at   time.Time
	list []client.TenantUsage
}

// Usage is what tenants use.
type Usage struct {
	*roster
	usage usageCache
}

// Usage implements server.Usage. Its cost is that of reading a handful of small files for
// each session, at most once a second.
func (m *Usage) Usage(ctx context.Context) ([]client.TenantUsage, error) {
	c := &m.usage
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list == nil || time.Since(c.at) >= usageFresh {
		// For whoever asks next, too: it does not end with this request.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), usageTime)
		defer cancel()
		c.list, c.at = m.collectUsage(bounded), time.Now()
	}
	return slices.Clone(c.list), nil
}

// collectUsage asks all live sessions, in no order: when time is short it is not
// always the same ones that are left out.
func (m *Usage) collectUsage(ctx context.Context) []client.TenantUsage {
	memory, layers, disk := map[*tenant]int64{}, map[*tenant]int64{}, map[*tenant]int64{}
	for _, s := range m.live() {
		used, layer := s.measure(ctx)
		memory[s.tenant] += used
		layers[s.tenant] += layer
		disk[s.tenant] += s.calls.Spilled.Load()
	}
	list := []client.TenantUsage{}
	set := m.settings.Load()
	for name := range set.Tenants {
		m.tenant(name) // those that have done nothing yet are listed too
	}
	m.mu.RLock()
	for _, t := range m.tenants {
		sessions, queued := t.places.Count()
		list = append(list, client.TenantUsage{
			Tenant: t.Name, Sessions: sessions, Queued: queued, Calls: int(t.Calls.Load()),
			CPUMillis: t.used.cpuMillis.Load(), IOBytes: t.used.ioBytes.Load(), OOMKills: t.used.oomKills.Load(),
			MemoryBytes: memory[t], DiskBytes: disk[t], LayerBytes: layers[t], RecordBytes: t.Kept.Load(),
			MaxSessions: set.maxSessions(t.Name), MaxCalls: set.Tenants[t.Name].MaxCalls, MaxRecordBytes: set.maxRecords(t.Name),
		})
	}
	m.mu.RUnlock()
	slices.SortFunc(list, func(a, b client.TenantUsage) int { return strings.Compare(a.Tenant, b.Tenant) })
	return list
}
