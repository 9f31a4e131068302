package trees

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree/apply"
	"github.com/toold/toold/internal/worktree/layers"
)

// Apply implements server.Trees. It writes with the rights of who asks; an administrator's
// are those of the source's owner.
func (s *Service) Apply(ctx context.Context, p auth.Principal, id string, r client.ApplyRequest) (v *client.Applied, err error) {
	defer s.watch(opApply)(&err)
	x, err := s.take(ctx, p, id)
	if err != nil {
		return nil, s.sessions.Internal("apply changes", err)
	}
	defer x.release()
	if !r.DryRun {
		err = s.sessions.Audit(p, x.row, record.Worktree{
			Operation: opApply, Paths: len(r.Paths), Force: r.Force, Merge: r.Merge, IncludeSensitive: r.IncludeSensitive,
		})
		if err != nil {
			return nil, err
		}
	}
	if v, err = x.apply(ctx, p, r); err != nil {
		return nil, s.sessions.Internal("apply the changes of session "+x.row.ID, inTheWay(err))
	}
	if !r.DryRun {
		s.sessions.Publish(x.row, client.EventWorktreeApplied, v)
	}
	return v, nil
}

// inTheWay lists what is in the way of an apply.
func inTheWay(err error) error {
	var c *apply.ConflictError
	if !errors.As(err, &c) {
		return err
	}
	var places []fault.Place
	for _, one := range c.Conflicts {
		places = append(places, fault.Place{Path: one.Path, Message: one.Why})
	}
	return fault.Conflict.Errorf("%w", c).At(places).
		Next("look at them: toolctl diff; then apply with --merge, or with --force to overwrite them")
}

func (x *subject) apply(ctx context.Context, p auth.Principal, r client.ApplyRequest) (*client.Applied, error) {
	source, owner, err := x.source(p)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	resume, err := x.quiet(ctx)
	if err != nil {
		return nil, err
	}
	defer resume()
	if !r.DryRun {
		if err := x.settle(ctx, p); err != nil {
			return nil, err
		}
	}
	v, err := x.look(ctx, p, "")
	if err != nil {
		return nil, err
	}
	archive := v.stream(ctx, treediff.Archive, r.Paths, func(*error) {})
	defer archive.Close()
	job := apply.Job{Dir: x.store.ApplyDir(x.row.ID), Source: source, Owner: owner, Since: x.tree.Since, Request: r}
	applied, err := job.Run(ctx, archive)
	if r.DryRun || err != nil && applied == nil && !errors.Is(err, apply.ErrUnfinished) {
		return applied, err
	}
	var outdated error
	if x.tree, outdated = x.store.Outdate(x.row.ID); outdated != nil {
		x.log.Error("mark checkpoints that are from before an apply", "session", x.row.ID, "error", outdated)
	}
	x.dumped = true
	return applied, err
}

// source opens the source of a tree for p to write to. It must be the directory that the
// tree was made over.
func (x *subject) source(p auth.Principal) (*os.File, thread.User, error) {
	f, owner, err := x.sessions.Pin(p, x.tree.Source.Path)
	if err != nil {
		return nil, owner, err
	}
	now, err := layers.SourceOf(x.tree.Source.Path, f)
	if err == nil && now != x.tree.Source {
		err = fault.Conflict.Errorf("%s is not the directory that session %s began with", x.tree.Source.Path, x.row.ID).
			Next("put that one back in its place, or take the changes as a patch: toolctl diff")
	}
	if err != nil {
		return nil, owner, errors.Join(err, f.Close())
	}
	return f, owner, nil
}

// RecoverAll carries out what applies of an earlier daemon have decided on.
func (s *Service) RecoverAll(ctx context.Context) {
	dirs, err := s.store.ApplyDirs()
	if err != nil {
		s.log.Error("look for applies that were not finished", "error", err)
	}
	for session, dir := range dirs {
		r, err := apply.Recover(ctx, dir)
		switch {
		case err != nil:
			s.log.Error("finish an apply", "session", session, "error", err)
		case r.Source != "":
			s.log.Warn("finished an apply of an earlier daemon", "session", session, "outcome", fmt.Sprintf("%+v", *r))
		}
	}
}
