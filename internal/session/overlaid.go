package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/queue"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree/layers"
)

// Still implements trees.Live.
func (s *Session) Still(ctx context.Context) (release func(), err error) { return s.calls.Still(ctx) }

// Relays implements trees.Live.
func (s *Session) Relays() error {
	if err := diskFails(s); err != nil {
		return err
	}
	if err := s.unlaid.Load(); err != nil {
		return err
	}
	_, err := s.relaying()
	return err
}

func (s *Session) relaying() (sandbox.Relaying, error) {
	r, ok := s.sandbox().(sandbox.Relaying)
	if !ok {
		return nil, fmt.Errorf("its driver cannot lay the worktree of a live sandbox anew: %w", sandbox.ErrUnsupported)
	}
	return r, r.Relays()
}

// Relay implements trees.Live.
func (s *Session) Relay(ctx context.Context, t *layers.Tree, o *sandbox.Overlay) error {
	relaying, err := s.relaying()
	if err != nil {
		return err
	}
	target := s.Row().Worktree.Target
	source, err := t.Source.Open(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", trees.ErrSource, err)
	}
	defer source.Close()
	return relaying.Relay(ctx, &sandbox.Claim{Worktree: sandbox.Worktree{
		Source: source, Mode: client.WorktreeOverlay, Target: target, UID: t.UID, GID: t.GID, Overlay: o,
	}})
}

// layAgain gives a session the worktree that it was to have when the daemon began, where it could not be given that
// then, and cannot be still.
func layAgain(ctx context.Context, s *Session) {
	if s.unlaid.Load() == nil {
		return
	}
	row := s.Row()
	err := s.daemon.trees.Again(ctx, &row, s)
	if why, still := errors.AsType[*trees.UnlaidError](err); still {
		s.unlaid.Store(why)
	} else if err == nil {
		s.unlaid.Store(nil)
		s.log.Info("the session has the worktree again that it was to have")
	}
}

// overlaid are all sessions, for who answers about their worktrees.
type overlaid struct{ m *Manager }

// Find implements trees.Sessions.
func (o overlaid) Find(ctx context.Context, p auth.Principal, idOrName string) (*store.Session, trees.Live, error) {
	s, row, err := o.m.liveOrOver(ctx, p, idOrName)
	if s == nil {
		return row, nil, err
	}
	lookAtSources(s, seeSources)
	layAgain(ctx, s)
	live := s.Row()
	return &live, s, nil
}

// Begin implements trees.Sessions.
func (o overlaid) Begin(ctx context.Context, p auth.Principal, r client.SessionCreate, from trees.Seed) (*client.Session, trees.Live, error) {
	may := o.m.mayBegin
	if from.Internal { // it looks at what another session has
		may = o.m.Accepting
	}
	if err := may(); err != nil {
		return nil, nil, err
	}
	v, err := o.m.create(ctx, p, r, nil, from)
	if errors.Is(err, queue.ErrFull) {
		err = o.m.tenant(p.Tenant).places.None()
	}
	if err != nil {
		return nil, nil, err
	}
	if s := o.m.liveByID(v.ID); s != nil {
		return v, s, nil
	}
	return v, nil, nil // it has ended since
}

// Pin implements trees.Sessions.
func (o overlaid) Pin(p auth.Principal, path string) (*os.File, thread.User, error) {
	rules := o.m.settings.Load().worktreeRules(p)
	rules.Write = true
	d, err := o.m.pinDirectory(p, rules, path)
	if err != nil {
		return nil, thread.User{}, fmt.Errorf("the source of the worktree: %w", err)
	}
	user := thread.User{UID: d.UID, GID: d.GID}
	if !p.Admin {
		user.Groups = p.Groups
	}
	return d.File, user, nil
}

// End implements trees.Sessions.
func (o overlaid) End(ctx context.Context, p auth.Principal, id string) error {
	_, err := o.m.End(ctx, p, id, client.EndOptions{Force: true})
	return err
}

// Audit implements trees.Sessions.
func (o overlaid) Audit(p auth.Principal, row *store.Session, w record.Worktree) error {
	if o.m.cfg.Auditor == nil {
		return nil
	}
	return o.m.cfg.Auditor.Worktree(p, &row.Session, w)
}

// Publish implements trees.Sessions.
func (o overlaid) Publish(row *store.Session, typ string, data any) {
	o.m.publish(event.New(typ, row.Tenant, row.ID, "", data))
}

// Operated implements trees.Sessions.
func (o overlaid) Operated(operation, outcome string, took time.Duration) {
	o.m.observe(func(x Observer) { x.WorktreeOperation(operation, outcome, took) })
}

// Sensitive implements trees.Sessions.
func (o overlaid) Sensitive() []string { return o.m.settings.Load().Worktrees.Sensitive }

// Room implements trees.Sessions.
func (o overlaid) Room(bytes int64) error {
	err := o.m.diskRoom(bytes)
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Next("take less at once (paths, --exclude), or " + f.Hint)
	}
	return err
}

// Writes implements trees.Sessions.
func (o overlaid) Writes(ctx context.Context, bytes int64) (context.Context, func(), error) {
	return o.m.diskWork(ctx, bytes)
}

// Internal implements trees.Sessions.
func (o overlaid) Internal(what string, err error) error {
	if failed := trees.DiskFailed(err); failed != nil {
		if _, told := errors.AsType[*fault.Error](err); !told {
			err = failed
		}
	}
	return o.m.internal(what, err)
}

// AllTrees answers about the worktrees of mode overlay of all sessions.
func (m *Manager) AllTrees() *trees.Service { return m.trees }
