package trees

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree"
	"github.com/toold/toold/internal/worktree/apply"
	"github.com/toold/toold/internal/worktree/layers"
)

// Apply implements server.Trees. It writes with the rights of who asks; an administrator's
// are those of the source's owner.
func (s *Service) Apply(ctx context.Context, p auth.Principal, id string, r client.ApplyRequest) (v *client.Applied, err error) {
	defer s.watch(opApply)(&err)
	r.Paths, r.Exclude = plain.Unquoted(r.Paths), plain.Unquoted(r.Exclude)
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
	var earlier string
	v, err = x.apply(ctx, p, r, func() { earlier = s.CutOff(x.row.ID) })
	apply.Told(s.store.ApplyDir(x.row.ID), err == nil && !r.DryRun)
	if err != nil {
		return nil, s.sessions.Internal("apply the changes of session "+x.row.ID, asked(err))
	}
	v.Earlier = earlier
	if !r.DryRun {
		s.sessions.Publish(x.row, client.EventWorktreeApplied, v)
	}
	return v, nil
}

// apply calls earlier when no apply before it is under way any more: one of a daemon that was killed is
// finished first, here or in RecoverAll, and what is left to apply is looked for behind that.
func (x *subject) apply(ctx context.Context, p auth.Principal, r client.ApplyRequest, earlier func()) (*client.Applied, error) {
	source, owner, err := x.source(ctx, p)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	if _, err := apply.Recover(ctx, x.store.ApplyDir(x.row.ID)); err != nil {
		return nil, err
	}
	earlier()
	resume, err := x.quiet(ctx)
	if err != nil {
		return nil, err
	}
	defer resume()
	x.keep(ctx, x.tree)
	m, err := x.moved(ctx, x.tree)
	if err == nil {
		err = coupled(m, &r)
	}
	if err == nil {
		err = complete(m, r)
	}
	if err != nil {
		return nil, err
	}
	if len(x.store.Present(x.tree)) == 0 {
		return &client.Applied{DryRun: r.DryRun}, nil
	}
	begun, err := (&view{shared: x.shared, tree: x.tree}).cover() // before they are settled, which forgets it
	if err != nil {
		return nil, err
	}
	defer begun.close()
	if !r.DryRun {
		if err := layable(x); err != nil { // what has all been applied is laid anew
			return nil, err
		}
		if err := x.settle(ctx, p, m); err != nil {
			return nil, err
		}
		if len(x.store.Present(x.tree)) == 0 {
			return &client.Applied{}, nil
		}
	}
	var v *view
	if r.DryRun {
		v, err = lookAnew(ctx, x, p, m)
	} else {
		v, err = x.write(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	defer v.drop()
	v.tree = x.tree
	of, err := v.cover()
	if err != nil {
		return nil, err
	}
	defer of.close()
	var merged []string
	job := apply.Job{
		Dir: x.store.ApplyDir(x.row.ID), Source: source, Owner: owner, Since: x.tree.Since, Back: x.tree.SetBack(), Others: x.others(x.tree), Request: r,
		Merged: func(path string) { merged = append(merged, path) }, Room: x.sessions.Room, Sensitive: x.sessions.Sensitive(),
		Begun: begun.begun, Ask: true,
		Own: func(path string) (bool, error) { return of.has(ctx, path) },
	}
	applied, err := v.apply(ctx, &job)
	x.Step("written to the source")
	if r.DryRun || err != nil && applied == nil && !errors.Is(err, apply.ErrUnfinished) {
		return applied, err
	}
	if failed := outdated(x, job.Dir); failed != nil { // whoever has the tree next tries again
		x.log.Error("mark checkpoints that are from before an apply", "session", x.row.ID, "error", failed)
	} else if err == nil {
		x.Step("outdated")
		if failed := x.applied(ctx, v, merged); failed != nil {
			x.log.Error("bring a session up to its source after an apply", "session", x.row.ID, "error", failed)
		}
	}
	x.dumped = true
	return applied, err
}

// apply runs a job on what differs in a view, which stays open.
func (v *view) apply(ctx context.Context, job *apply.Job) (*client.Applied, error) {
	again := &view{Errand: v.Errand, shared: v.shared, close: func() {}}
	q := run.DiffQuery{Format: treediff.Archive, Paths: job.Request.Paths, Exclude: job.Request.Exclude}
	archive := again.stream(ctx, q.Paths, func(*error) {}, func(ctx context.Context, w *stepping) (*patched, error) {
		t, err := v.TreeDiff(ctx, q, 0, w)
		if refused(err) && len(q.Exclude) > 0 && !w.begun {
			q.Exclude = nil // an agent of an older version gives all of it
			t, err = v.TreeDiff(ctx, q, 0, w)
		}
		return &patched{Totals: t}, err
	})
	defer func() { _ = archive.Close() }() // its error is that of the job
	applied, err := job.Run(ctx, archive)
	if applied != nil && err == nil {
		applied.SkippedCount += archive.known().Unnamed
	}
	return applied, err
}

// others are the other sessions over the source of a tree that may read there what it may: they are
// given what an apply replaces. Those of other users have no base there then, and a conflict.
func (s *shared) others(tree *layers.Tree) (others []apply.Other) {
	all, _, err := s.store.All()
	if err != nil {
		s.log.Error("look for other sessions over a source", "session", tree.Session, "error", err)
	}
	for _, t := range all {
		if t.Source == tree.Source && t.Session != tree.Session && t.UID == tree.UID && t.GID == tree.GID {
			others = append(others, apply.Other{Dir: s.store.ApplyDir(t.Session), Since: t.Since, Back: t.SetBack()})
		}
	}
	return others
}

// applied gives a session what was merged, and lets it go on from the source where that
// has all of its changes by now. What is in the way of that leaves the changes as they are:
// they show, and are no harm.
func (x *subject) applied(ctx context.Context, v *view, merged []string) error {
	left := 0
	for some := range slices.Chunk(merged, run.MaxTreePaths) {
		n, err := revert(ctx, v, some)
		if err != nil {
			return err
		}
		left += n.LeftOut
		x.Step("given what was merged")
	}
	now := layers.Now()
	layers.After(now) // what is changed while they are compared is another's
	files, unread, err := v.differ(ctx)
	if err != nil {
		return err
	}
	x.Step("compared with the source")
	dir := x.store.ApplyDir(x.row.ID)
	if files+unread == 0 {
		v.close()
		before := x.tree
		if x.tree, err = x.store.Applied(x.row.ID, now); err != nil {
			return err
		}
		if err := x.lay(ctx, before); err != nil {
			return err
		}
		x.Step("gone on")
		return apply.Forget(ctx, dir)
	}
	if len(merged) == 0 || left > 0 {
		return nil
	}
	if v.session != "" {
		v.close()
		if err := x.store.Take(x.row.ID, v.session); err != nil {
			return err
		}
	}
	return apply.Given(ctx, dir)
}

// source opens the source of a tree for p to write to. It must be the directory that the
// tree was made over.
func (x *subject) source(ctx context.Context, p auth.Principal) (*os.File, thread.User, error) {
	if _, err := there(ctx, x.row.ID, x.tree.Source); err != nil {
		return nil, thread.User{}, err
	}
	f, owner, err := x.sessions.Pin(p, x.tree.Source.Path)
	if err != nil {
		return nil, owner, err
	}
	now, err := worktree.SourceOf(x.tree.Source.Path, f)
	now.Link = x.tree.Source.Link
	if err == nil && now != x.tree.Source {
		err = fault.Conflict.Errorf("somebody is moving %s", plain.Name(x.tree.Source.Path)).Next("try again")
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
	eachOf(dirs, recoverPatience, func(session, dir string) { recoverOne(ctx, s.shared, session, dir) })
	for _, what := range apply.Trouble() {
		s.log.Error("an apply was cut off that this daemon cannot finish", "what", what)
	}
}

func recoverOne(ctx context.Context, s *shared, session, dir string) {
	r, err := apply.Recover(ctx, dir)
	if _, none := s.store.Get(session); err == nil && errors.Is(none, layers.ErrNone) {
		err = apply.Forget(ctx, dir)
	}
	switch {
	case err != nil:
		s.log.Error("finish an apply", "session", session, "error", err)
	case r.Source != "":
		s.log.Warn("finished an apply of an earlier daemon", append([]any{"session", session}, recoveredAttrs(r)...)...)
	}
}

// recoveredAttrs are what was recovered, for a log.
func recoveredAttrs(r *apply.Recovered) []any {
	done := &client.Applied{} // where it was not committed
	if r.Applied != nil {
		done = r.Applied
	}
	return []any{"source", r.Source, "written", done.WrittenCount, "removed", done.RemovedCount, "left", len(r.Left)}
}

const (
	// recoverAtOnce is how many applies are carried out at a time, and recoverPatience how long one of them is
	// before it is another's turn beside it.
	recoverAtOnce   = 16
	recoverPatience = 5 * time.Second
)

// eachOf does work for each session, some of them at a time, until all is done. One that takes longer than
// patience keeps none of the others from it: the file system of its source may not answer.
func eachOf(dirs map[string]string, patience time.Duration, work func(session, dir string)) {
	turns := make(chan struct{}, recoverAtOnce)
	var all sync.WaitGroup
	for session, dir := range dirs {
		turns <- struct{}{}
		all.Go(func() {
			over := sync.OnceFunc(func() { <-turns })
			defer over()
			defer time.AfterFunc(patience, over).Stop()
			work(session, dir)
		})
	}
	all.Wait()
}

// CheckApplies says for doctor whether applies were cut off that this daemon cannot finish.
func CheckApplies() client.Check {
	c := client.Check{Group: "host", Name: "cut-off applies", Status: client.CheckOK, Detail: "none is left to other daemons"}
	if all := apply.Trouble(); len(all) > 0 {
		c.Status, c.Detail = client.CheckWarn, all[0]
		if len(all) > 1 {
			c.Detail += fmt.Sprintf(", and %d more", len(all)-1)
		}
		c.Hint = "start that daemon, which finishes it; until then applies to the same files are refused"
	}
	return c
}
