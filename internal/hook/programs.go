package hook

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/toold/toold/client"
)

// atOnce bounds how many programs of hooks run at a time on the host. The
// others wait; each of them ends by its timeout.
const atOnce = 16

// Programs are the hooks of a daemon.
type Programs struct {
	hooks func() []Hook
	log   *slog.Logger
	tell  func(on, outcome string, took time.Duration)
	slots chan struct{} // one for each that runs
}

// NewPrograms makes Programs of those that hooks gives at the moment, in the order of the
// configuration. tell is told each that ran: ok, denied, replaced, failed.
func NewPrograms(hooks func() []Hook, log *slog.Logger, tell func(on, outcome string, took time.Duration)) *Programs {
	return &Programs{hooks: hooks, log: log, tell: tell, slots: make(chan struct{}, atOnce)}
}

// Any reports whether there are any at all.
func (p *Programs) Any() bool { return len(p.hooks()) > 0 }

// For gives those of a moment that match.
func (p *Programs) For(on string, a About) []*Hook { return For(p.hooks(), on, a) }

// Run runs a hook's program on the host when there is room for one more, and
// reads its answer. An error means that it failed, or is the cause for which ctx ended.
func (p *Programs) Run(ctx context.Context, h *Hook, e *Event) (*Answer, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-p.slots }()
	begun := time.Now()
	a, err := h.Run(ctx, e)
	p.Ran(h, a, err, time.Since(begun))
	return a, err
}

// Ran tells how a hook ended.
func (p *Programs) Ran(h *Hook, a *Answer, err error, took time.Duration) {
	if err != nil {
		a = nil
		args := []any{"on", h.On, "hook", h.Name(), "error", err, "fail_open", h.FailOpen}
		if he, ok := errors.AsType[*Error](err); ok && he.Stderr != "" {
			args = append(args, "stderr", he.Stderr)
		}
		p.log.Warn("a hook failed", args...)
	}
	p.tell(h.On, a.Outcome(), took)
}

// NewEvent makes the event of a session of this user's.
func NewEvent(on string, row *client.Session, owner uint32) *Event {
	return &Event{
		Version: Version, Event: on, Time: time.Now().UTC(),
		Session: Session{
			ID: row.ID, Name: row.Name, Tenant: row.Tenant, Profile: row.Profile, OwnerUID: owner,
			State: row.State, Reason: row.Reason, Labels: row.Labels, Worktree: row.Worktree,
		},
	}
}
