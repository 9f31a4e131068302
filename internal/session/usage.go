package session

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/limits"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/session/trees"
)

const (
	// usageFresh is how old an answer of Usage may be: several scrapers, or an
	// admin who watches, do not make the cgroups of all sessions be read each time.
	usageFresh = time.Second
	// usageTime bounds one collection. Sessions that were not read by then count
	// with what they were last seen to use.
	usageTime = 2 * time.Second
)

// usageCache keeps the last answer of Usage.
type usageCache struct {
	mu   sync.Mutex // held while the next answer is collected; guards the fields below
	at   time.Time
	list []client.TenantUsage
}

// Usage is what tenants use.
type Usage struct {
	*roster
	usage     usageCache
	treeBytes treeBytes
}

// Usage implements server.Usage. Its cost is that of reading a handful of small files for
// each session, at most once a second.
func (u *Usage) Usage(ctx context.Context) ([]client.TenantUsage, error) {
	c := &u.usage
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list == nil || time.Since(c.at) >= usageFresh {
		// For whoever asks next, too: it does not end with this request.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), usageTime)
		defer cancel()
		c.list, c.at = u.collectUsage(bounded), time.Now()
	}
	return slices.Clone(c.list), nil
}

// collectUsage asks all live sessions, in no order: when time is short it is not
// always the same ones that are left out.
func (u *Usage) collectUsage(ctx context.Context) []client.TenantUsage {
	memory, layers, disk := map[*tenant]int64{}, map[*tenant]int64{}, map[*tenant]int64{}
	set := u.settings.Load()
	free, err := u.left(set)
	if err != nil {
		free.why = err.Error()
	}
	for _, s := range u.live() {
		used, layer := s.measure(ctx)
		free.less(s, used)
		memory[s.tenant] += used
		layers[s.tenant] += layer
		disk[s.tenant] += s.calls.Spilled.Load()
	}
	list := []client.TenantUsage{}
	_, worktrees := u.Worktrees()
	for name := range set.Tenants {
		u.tenant(name) // those that have done nothing yet are listed too
	}
	u.mu.RLock()
	tenants := slices.Collect(maps.Values(u.tenants))
	u.mu.RUnlock()
	for _, t := range tenants {
		sessions, queued := t.places.Count()
		more, bound := u.fits(set, t, free)
		if most := set.Tenants[t.Name].MaxSessions; most > 0 && most-sessions < more {
			more, bound = max(0, most-sessions), "max_sessions"
		}
		list = append(list, client.TenantUsage{
			MoreSessions: more, MoreBound: bound,
			Tenant: t.Name, Sessions: sessions, Queued: queued, Calls: int(t.Calls.Load()),
			CPUMillis: t.used.cpuMillis.Load(), IOBytes: t.used.ioBytes.Load(), OOMKills: t.used.oomKills.Load(),
			MemoryBytes: memory[t], DiskBytes: disk[t], LayerBytes: layers[t], RecordBytes: t.Kept.Load(), WorktreeBytes: worktrees[t.Name],
			MaxSessions: set.Tenants[t.Name].MaxSessions, MaxCalls: set.Tenants[t.Name].MaxCalls, MaxRecordBytes: set.maxRecords(t.Name),
		})
	}
	slices.SortFunc(list, func(a, b client.TenantUsage) int { return strings.Compare(a.Tenant, b.Tenant) })
	return list
}

// spare is what this host has for sessions that begin.
type spare struct {
	memory, disk, pids int64
	why                string // none begins; "" where some may
}

// less takes away what a session may still take, beside what it has.
func (r *spare) less(s *Session, used int64) {
	if _, here := s.driver.(sandbox.Contained); !here {
		return
	}
	r.memory -= max(0, int64(s.limits.Memory)-used)
	r.disk -= s.promised.Load()
	r.pids -= s.limits.PIDs
}

// left is what there is beside what sessions have.
func (u *Usage) left(set *Settings) (r spare, err error) {
	if err := u.mayBegin(); err != nil {
		return r, err
	}
	memory, err := u.memory.look()
	if err != nil {
		return r, err
	}
	disk, err := room.At(u.disk.dir)
	if err != nil {
		return r, err
	}
	if err := enough(set, disk, "the host's disk"); err != nil {
		return r, err
	}
	floor := set.HostMemory.Of(memory.Size)
	r = spare{memory: memory.Free - floor - floor/2, disk: math.MaxInt64, pids: math.MaxInt64}
	if d, err := u.driver(u.cfg.Driver); err == nil {
		if d, ok := d.(sandbox.Contained); ok {
			bytes, pids := d.Left()
			r.memory, r.pids = min(r.memory, bytes), pids
		}
	}
	if set.DiskOvercommit > 0 {
		u.disk.mu.Lock()
		r.disk = int64(set.DiskOvercommit*float64(disk.Free)) - int64(u.disk.promisedLocked())
		u.disk.mu.Unlock()
	}
	return r, nil
}

// fits is how many sessions of a tenant that ask for nothing may begin, if each uses what it may, and what bounds
// that.
func (u *Usage) fits(set *Settings, t *tenant, r spare) (more int, bound string) {
	var l client.Limits
	if _, err := limits.Fill(&l, u.bounds(auth.Principal{Tenant: t.Name}, set, trees.Seed{})); r.why == "" && err != nil {
		r.why = err.Error()
	}
	if r.why != "" {
		return 0, r.why
	}
	least := int64(math.MaxInt64)
	for _, b := range []struct {
		name       string
		left, each int64
	}{{"memory", r.memory, int64(l.Memory)}, {"disk", r.disk, int64(l.Disk)}, {"processes", r.pids, l.PIDs}} {
		if n := max(0, b.left) / max(1, b.each); n < least {
			least, bound = n, b.name
		}
	}
	return int(least), bound
}
