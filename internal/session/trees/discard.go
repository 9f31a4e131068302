package trees

import (
	"context"
	"errors"
	"fmt"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/worktree/layers"
)

// Discard implements server.Trees.
func (s *Service) Discard(ctx context.Context, p auth.Principal, id string, r client.DiscardRequest) (v *client.Discarded, err error) {
	defer s.watch(opDiscard)(&err)
	r.Paths = plain.Unquoted(r.Paths)
	x, err := s.take(ctx, p, id)
	if err != nil {
		return nil, s.sessions.Internal("discard changes", err)
	}
	defer x.release()
	if err := s.sessions.Audit(p, x.row, record.Worktree{Operation: opDiscard, Paths: len(r.Paths)}); err != nil {
		return nil, err
	}
	if v, err = x.discard(ctx, p, r.Paths); err != nil {
		if err = asked(err); errors.Is(err, fault.BadPath) || errors.Is(err, fault.Invalid) {
			err = fault.In(err, "paths")
		}
		return nil, s.sessions.Internal("discard the changes of session "+x.row.ID, err)
	}
	s.sessions.Publish(x.row, client.EventWorktreeDiscarded, v)
	return v, nil
}

func (x *subject) discard(ctx context.Context, p auth.Principal, paths []string) (*client.Discarded, error) {
	resume, err := x.quiet(ctx)
	if err != nil {
		return nil, err
	}
	defer resume()
	if len(x.tree.Layers()) == 0 {
		return &client.Discarded{}, nil
	}
	if len(paths) == 0 {
		n, unread := counted(ctx, x, p)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		x.Step("counted")
		return &client.Discarded{Count: n, Uncounted: unread}, x.discardAll(ctx)
	}
	v, err := x.write(ctx, p)
	if err != nil {
		return nil, err
	}
	defer v.drop()
	v.tree = x.tree
	n, err := revert(ctx, v, paths)
	x.Step("reverted")
	if err == nil && v.session != "" {
		v.close()
		err = x.store.Take(x.row.ID, v.session)
	}
	if err == nil && len(x.tree.Incomplete) > 0 {
		x.tree, err = layers.Forgive(x.store, x.row.ID, paths)
	}
	return &client.Discarded{Count: n.Files - n.LeftOut, Left: n.LeftOut}, err
}

// counted counts the changes of a tree that are about to go. They go with their layers, whatever
// is in the way of a look at them; then it says why the count is not whole.
func counted(ctx context.Context, x *subject, p auth.Principal) (n int, uncounted string) {
	x.shows = true
	v, err := x.look(ctx, p, "")
	x.shows = false
	if err == nil {
		defer v.close()
		v.tree = x.tree
		var unread int
		if n, unread, err = v.differ(ctx); v.void {
			return 0, "the source was moved or removed, and what the session has removed of it is not known"
		} else if err == nil && unread == 0 {
			return n, ""
		} else if err == nil {
			return n, fmt.Sprintf("the tools of the session may not read %d of its files and directories", unread)
		}
	}
	return 0, "they could not be looked at: " + plain.Cut(plain.Cause(err), 512)
}

// write gives a sandbox in which the worktree can be changed: for a session that is over
// one that is made for it, whose layers are to be taken afterwards.
func (x *subject) write(ctx context.Context, p auth.Principal) (*view, error) {
	if x.live != nil {
		return x.look(ctx, p, "")
	}
	room, err := x.store.Room(x.tree)
	if err != nil {
		return nil, err
	}
	return x.open(ctx, p, Seed{Lower: x.tree.Layers(), From: x.tree, Internal: true, Room: room})
}

// drop closes a view, and what was written in it is gone.
func (v *view) drop() {
	v.close()
	if v.session == "" {
		return
	}
	if err := v.store.Remove(v.session); err != nil && !errors.Is(err, layers.ErrNone) {
		v.log.Error("remove layers of a session that worked on changes", "session", v.session, "error", err)
	}
}

// discardAll drops all changes of a session that is quiet: it is back to its source.
func (x *subject) discardAll(ctx context.Context) (err error) {
	if err := layable(x); err != nil {
		return err
	}
	before := x.tree
	if x.tree, err = x.store.Reset(x.row.ID); err != nil {
		return err
	}
	x.dumped = true
	return x.lay(ctx, before)
}
