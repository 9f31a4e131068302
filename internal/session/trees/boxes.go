package trees

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/toold/toold/internal/fault"
)

// Sandboxes that the daemon makes for its own work with changes count in no quota of sessions. So many
// are there at a time for one tenant and for all; who wants another waits for boxTime.
const (
	maxTenantBoxes = 4
	maxBoxes       = 16
	boxTime        = 2 * time.Second
)

// boxes are the places of such sandboxes.
type boxes struct {
	all  *semaphore.Weighted
	wait time.Duration

	mu sync.Mutex                     // guards of
	of map[string]*semaphore.Weighted // by tenant
}

func newBoxes() *boxes {
	return &boxes{all: semaphore.NewWeighted(maxBoxes), wait: boxTime, of: make(map[string]*semaphore.Weighted)}
}

func (b *boxes) tenant(name string) *semaphore.Weighted {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[name] == nil {
		b.of[name] = semaphore.NewWeighted(maxTenantBoxes)
	}
	return b.of[name]
}

// take takes a place for a sandbox of a tenant.
func (b *boxes) take(ctx context.Context, tenant string) (release func(), err error) {
	soon, cancel := context.WithTimeout(ctx, b.wait)
	defer cancel()
	own := b.tenant(tenant)
	if !acquire(soon, own) {
		return nil, noBox(ctx, maxTenantBoxes, "of tenant "+tenant)
	}
	if !acquire(soon, b.all) {
		own.Release(1)
		return nil, noBox(ctx, maxBoxes, "of all tenants")
	}
	return func() {
		b.all.Release(1)
		own.Release(1)
	}, nil
}

// acquire waits for a place, and takes one that is free however late it is.
func acquire(ctx context.Context, of *semaphore.Weighted) bool {
	return of.TryAcquire(1) || of.Acquire(ctx, 1) == nil
}

// noBox is why there is no place.
func noBox(ctx context.Context, most int, whose string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fault.Overloaded.Errorf("%d sandboxes %s look at changes of sessions, the maximum", most, whose).
		Next("read the diffs that are under way to their end, or close them, and try again")
}
