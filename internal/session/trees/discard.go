package trees

import (
	"context"
	"errors"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/worktree/layers"
)

// Discard implements server.Trees.
func (s *Service) Discard(ctx context.Context, p auth.Principal, id string, r client.DiscardRequest) (*client.Discarded, error) {
	x, err := s.take(ctx, p, id)
	if err != nil {
		return nil, s.sessions.Internal("discard changes", err)
	}
	defer x.release()
	if err := s.sessions.Audit(p, x.row, record.Worktree{Operation: opDiscard, Paths: len(r.Paths)}); err != nil {
		return nil, err
	}
	v, err := s.discard(ctx, p, x, r.Paths)
	if err != nil {
		return nil, s.sessions.Internal("discard the changes of session "+x.row.ID, asked(err))
	}
	s.sessions.Publish(x.row, client.EventWorktreeDiscarded, v)
	return v, nil
}

func (s *Service) discard(ctx context.Context, p auth.Principal, x *subject, paths []string) (*client.Discarded, error) {
	resume, err := x.quiet(ctx)
	if err != nil {
		return nil, err
	}
	defer resume()
	v, err := s.write(ctx, p, x)
	if err != nil {
		return nil, err
	}
	defer s.drop(v)
	if len(paths) > 0 {
		n, err := v.TreeRevert(ctx, paths, "")
		if err == nil && v.session != "" {
			v.close()
			err = s.store.Take(x.row.ID, v.session)
		}
		return &client.Discarded{Count: n.Files - n.LeftOut, Left: n.LeftOut}, err
	}
	c, err := v.TreeChanges(ctx, client.DiffQuery{Limit: 1})
	if err != nil {
		return nil, err
	}
	v.close()
	return &client.Discarded{Count: c.Files}, s.discardAll(ctx, x)
}

// write gives a sandbox in which the worktree can be changed: for a session that is over
// one that is made for it, whose layers are to be taken afterwards.
func (s *Service) write(ctx context.Context, p auth.Principal, x *subject) (*view, error) {
	if x.live != nil {
		return s.look(ctx, p, x, "")
	}
	return s.open(ctx, p, x, Seed{Lower: x.tree.Layers(), From: x.tree, Internal: true})
}

// drop closes a view, and what was written in it is gone.
func (s *Service) drop(v *view) {
	v.close()
	if v.session == "" {
		return
	}
	if err := s.store.Remove(v.session); err != nil && !errors.Is(err, layers.ErrNone) {
		s.log.Error("remove layers of a session that worked on changes", "session", v.session, "error", err)
	}
}

// discardAll drops all changes of a session that is quiet: it is back to its source.
func (s *Service) discardAll(ctx context.Context, x *subject) (err error) {
	before := x.tree
	if x.tree, err = s.store.Reset(x.row.ID); err != nil {
		return err
	}
	if err := s.lay(ctx, x, before); err != nil {
		return err
	}
	return s.store.Sweep()
}
