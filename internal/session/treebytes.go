package session

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/toold/toold/internal/beneath"
)

// treesFresh is how old a count of what worktrees take may be.
const treesFresh = time.Minute

// treeBytes is what the layers of worktrees take on the disk, counted beside whoever asks.
type treeBytes struct {
	mu       sync.Mutex // guards the fields below
	at       time.Time
	counting bool
	all      int64
	tenants  map[string]int64
}

// Worktrees is what the layers of all worktrees take, in bytes, and those of each tenant, as
// they were a minute ago at most, or at the last count where one takes its time.
func (u *Usage) Worktrees() (all int64, tenants map[string]int64) {
	c := &u.treeBytes
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.counting && (c.at.IsZero() || time.Since(c.at) >= treesFresh) {
		c.counting = u.work.Go("count of worktrees", func() {
			all, tenants := u.countTrees(u.ctx)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.all, c.tenants, c.at, c.counting = all, tenants, time.Now(), false
		})
	}
	return c.all, maps.Clone(c.tenants)
}

// countTrees adds up layers and disks, which count once for each tenant that has them, and what is kept
// beside them: what the sources had of the files that sessions have changed, and the changes of an apply
// that is under way.
func (u *Usage) countTrees(ctx context.Context) (all int64, tenants map[string]int64) {
	list, _, err := u.cfg.Trees.All() // gc and doctor name those that cannot be read
	if err != nil {
		u.log.Error("read the layers of worktrees", "error", err)
	}
	tenants = map[string]int64{}
	seen := map[[2]string]bool{} // tenant and layer, and "*" and layer
	for _, t := range list {
		tenant := u.tenantOf(ctx, t.Session)
		for _, l := range t.Places() {
			if ctx.Err() != nil || seen[[2]string{tenant, l}] {
				continue
			}
			n := u.cfg.Trees.Bytes(t, l)
			tenants[tenant] += n
			if !seen[[2]string{"*", l}] {
				all += n
			}
			seen[[2]string{tenant, l}], seen[[2]string{"*", l}] = true, true
		}
		if ctx.Err() == nil {
			n, _ := beneath.Usage(u.cfg.Trees.ApplyDir(t.Session)) // most have none
			tenants[tenant] += n
			all += n
		}
	}
	return all, tenants
}

// tenantOf is whose session it is, "" of one that is not on record.
func (u *Usage) tenantOf(ctx context.Context, session string) string {
	if s := u.liveByID(session); s != nil {
		return s.tenant.Name
	}
	row, err := u.store.Session(ctx, session)
	if err != nil {
		return ""
	}
	return row.Tenant
}
