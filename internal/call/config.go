package call

import (
	"context"

	"github.com/toold/toold/internal/approval"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/store"
)

// Config is what a Service needs of the daemon. All of it is required, but Auditor.
type Config struct {
	Store     *store.Store
	Tools     Tools
	Hub       *event.Hub
	Approvals *approval.Desk
	Hooks     *hook.Programs
	Quota     Quota
	Observers []Observer
	Auditor   Auditor
	Settings  func() *Settings
	// OutputDir is the host directory below which each session has its outputs.
	OutputDir string
	// Memory bounds that of large results of all sessions on their way to the store and
	// to clients. Calls wait for it.
	Memory *budget.Memory
	// Work are goroutines that must have ended before the daemon does, Context its life.
	Work    *crew.Crew
	Context context.Context //nolint:containedctx // the life of the daemon
	// Internal makes an error that is our own one that clients may see.
	Internal func(doing string, err error) error
}

// observe tells every observer.
func (c *Config) observe(fn func(Observer)) {
	for _, o := range c.Observers {
		fn(o)
	}
}
