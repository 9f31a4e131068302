package session

import (
	"context"
	"errors"
	"log/slog"

	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/store"
)

// hooksCreated runs the hooks of session.created, when the sandbox is there and
// before anybody can make a call in it. An error is why there must be no session.
func (dm *daemon) hooksCreated(ctx context.Context, row store.Session, log *slog.Logger) error {
	e := hook.NewEvent(hook.SessionCreated, &row.Session, row.OwnerUID)
	for _, h := range dm.hooks.For(hook.SessionCreated, e.About()) {
		a, err := dm.hooks.Run(ctx, h, e)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && h.FailOpen:
			log.Warn("the session begins without its hook", "hook", h.Name())
		case err != nil:
			return refusedByHook(h, err.Error(), "its hook must work before sessions can be made; the daemon's log says more")
		case a.Deny:
			return refusedByHook(h, a.Reason, "ask for a session that the hook allows")
		}
	}
	return nil
}

func refusedByHook(h *hook.Hook, why, hint string) error {
	if why != "" {
		why = ": " + why
	}
	return fault.Denied.Errorf("the session was refused by hook %s%s", h.Name(), why).Next(hint)
}

// hooksEnded runs the hooks of session.ended, when all of the session is gone and
// its end is on record. There is nothing left that a failure could refuse. They
// run to their end or timeout also when whoever ended the session goes away.
func (dm *daemon) hooksEnded(row store.Session, log *slog.Logger) {
	e := hook.NewEvent(hook.SessionEnded, &row.Session, row.OwnerUID)
	for _, h := range dm.hooks.For(hook.SessionEnded, e.About()) {
		if _, err := dm.hooks.Run(context.Background(), h, e); err != nil && !errors.As(err, new(*hook.Error)) {
			log.Error("run a hook", "hook", h.Name(), "error", err)
		}
	}
}
