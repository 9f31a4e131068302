package session

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/session/room"
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
	for _, s := range u.live() {
		used, layer := s.measure(ctx)
		memory[s.tenant] += used
		layers[s.tenant] += layer
		disk[s.tenant] += s.calls.Spilled.Load()
	}
	list := []client.TenantUsage{}
	_, worktrees := u.Worktrees()
	set := u.settings.Load()
	here, why := u.fits(set)
	for name := range set.Tenants {
		u.tenant(name) // those that have done nothing yet are listed too
	}
	u.mu.RLock()
	for _, t := range u.tenants {
		sessions, queued := t.places.Count()
		more, bound := here, why
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
	u.mu.RUnlock()
	slices.SortFunc(list, func(a, b client.TenantUsage) int { return strings.Compare(a.Tenant, b.Tenant) })
	return list
}

// fits is how many sessions that ask for nothing fit on this host, if each uses what it may, and
// what bounds that.
func (u *Usage) fits(set *Settings) (more int, bound string) {
	if err := u.mayBegin(); err != nil {
		return 0, err.Error()
	}
	memory, err := u.memory.look()
	if err != nil {
		return 0, err.Error()
	}
	disk, err := room.At(u.disk.dir)
	if err != nil {
		return 0, err.Error()
	}
	if err := enough(set, disk, "the host's disk"); err != nil {
		return 0, err.Error()
	}
	floor := set.HostMemory.Of(memory.Size)
	left, bound := memory.Free-floor-floor/2, "memory"
	each := max(int64(set.Limits.Memory), 1)
	if size := int64(set.Limits.Disk); size > 0 && set.DiskOvercommit > 0 {
		u.disk.mu.Lock()
		promised := int64(u.disk.promisedLocked())
		u.disk.mu.Unlock()
		if free := int64(set.DiskOvercommit*float64(disk.Free)) - promised; free/size < left/each {
			left, each, bound = free, size, "disk"
		}
	}
	return int(max(0, left/each)), bound
}
