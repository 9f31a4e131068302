package root

import (
	"context"
	"runtime/debug"
	"sync"
)

// defaultMemory is what calls may hold of whole files at a time. The agent lives
// in a cgroup that has little room beside the tools', and a call's deadline is
// a better end than the agent's.
const defaultMemory = 128 << 20

// largeWork is from where on memory is given back to the system at once: the
// next call may not find the remains of the one before beside its own.
const largeWork = 16 << 20

// Reservation is a share of the memory that all calls together may hold of whole
// files.
type Reservation struct {
	r    *Root
	mu   sync.Mutex // guards held
	held int64
}

// Reserve waits until bytes of memory may be used, at most all that there is,
// and fails with Aborted when ctx ends before. A caller must not reserve twice.
func (r *Root) Reserve(ctx context.Context, bytes int64) (*Reservation, error) {
	bytes = min(max(bytes, 1), r.most)
	if err := r.memory.Acquire(ctx, bytes); err != nil {
		return nil, aborted(ctx)
	}
	return &Reservation{r: r, held: bytes}, nil
}

// Shrink gives all but bytes back.
func (v *Reservation) Shrink(bytes int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	back := v.held - min(max(bytes, 0), v.held)
	if back == 0 {
		return
	}
	v.held -= back
	if back >= largeWork {
		debug.FreeOSMemory()
	}
	v.r.memory.Release(back)
}

// Release gives back what is held; only the first call counts.
func (v *Reservation) Release() { v.Shrink(0) }
