package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/session/elsewhere"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree"
)

// destroyTime bounds the removal of one sandbox.
const destroyTime = 30 * time.Second

// box is the part of a session that is its sandbox, with the directories that are mounted
// into it.
type box struct{ roster *roster }

// claim opens worktree and mounts, so that nothing can be put into their place
// between the check and the mount.
func (b box) claim(_ context.Context, pl *plan) error {
	p, set := pl.p, pl.set
	w, mounts := pl.req.Worktree, set.MountRoots
	pl.spec.Worktree = sandbox.Worktree{Mode: w.Mode, Target: w.Target, GuardGit: set.GuardGit && w.Mode == client.WorktreeBind}
	if w.Source != "" {
		rules := set.worktreeRules(p)
		rules.Write, rules.Git = w.Mode == client.WorktreeBind, true
		d, err := b.roster.pinDirectory(p, rules, w.Source)
		if err != nil {
			return fmt.Errorf("worktree.source: %w", err)
		}
		sw := &pl.spec.Worktree
		sw.Source, sw.UID, sw.GID = d.File, d.UID, d.GID
		var taken []string
		for _, mt := range pl.req.Mounts {
			taken = append(taken, mt.Target)
		}
		if pl.git = elsewhere.Show(d, w.Source, w.Target, taken, checkTargets); pl.git != nil && pl.git.Mount != nil {
			pl.spec.Mounts = append(pl.spec.Mounts, *pl.git.Mount)
		}
	}
	if set.free(p) {
		mounts = nil
	}
	for _, mt := range pl.req.Mounts {
		d, err := b.roster.pinDirectory(p, worktree.Rules{Roots: mounts, AnyRoot: set.free(p)}, mt.Source)
		if err != nil {
			return fmt.Errorf("mount source: %w", err)
		}
		pl.spec.Mounts = append(pl.spec.Mounts, sandbox.Mount{Source: d.File, Target: mt.Target, UID: d.UID, GID: d.GID})
	}
	return nil
}

// open makes the sandbox, and stores its record.
func (box) open(ctx context.Context, s *Session, pl *plan) error {
	sb, err := pl.driver.Create(ctx, pl.spec)
	if pl.git != nil && pl.git.Mount != nil && (errors.Is(err, sandbox.ErrMountTarget) || errors.Is(err, sandbox.ErrUnsupported)) {
		pl.git.Hide("this sandbox has no place for it")
		pl.spec.Mounts = pl.spec.Mounts[1:]
		sb, err = pl.driver.Create(ctx, pl.spec)
	}
	if err != nil {
		return fmt.Errorf("create sandbox %s: %w", s.id, err)
	}
	s.mu.Lock()
	s.sb = sb
	s.mu.Unlock()
	rec := sb.Record()
	raw, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("record of sandbox %s: %w", s.id, err)
	}
	return s.write("", func(r *store.Session) error { r.Record, r.Runtime = raw, rec.Runtime; return nil })
}

func (b box) adopt(ctx context.Context, s *Session) error {
	switch s.row.State {
	case client.SessionCreating:
		return errors.New("the daemon stopped while it was made")
	case client.SessionEnding:
		return errors.New(s.row.Reason)
	}
	if b.roster.leases.Lost(s.row.UIDBase) {
		return errors.New("another daemon took its range of host uids while no daemon ran")
	}
	sb, err := s.driver.Adopt(ctx, b.roster.recordOf(&s.row))
	if errors.Is(err, sandbox.ErrGone) {
		return errors.New("its sandbox ended while no daemon ran")
	}
	if err != nil {
		return fmt.Errorf("its sandbox could not be taken over: %w", err)
	}
	s.mu.Lock()
	s.sb = sb
	s.mu.Unlock()
	s.gauges.from(ctx)
	return nil
}

// close removes the sandbox. Its notes are what did not come back from it.
func (b box) close(s *Session, _ ending, _ error) (notes []string, err error) {
	s.mu.Lock()
	sb := s.sb
	rec := b.roster.recordOf(&s.row)
	s.mu.Unlock()
	s.agent.Close()
	d, far := s.driver.(sandbox.Returning)
	if !far { // the processes of others die on their own host
		b.roster.destroys <- struct{}{}
		defer func() { <-b.roster.destroys }()
	}
	ctx, cancel := context.WithTimeout(context.Background(), destroyTime)
	defer cancel()
	s.measure(ctx) // for the last time: nobody can ask a cgroup that is gone
	if far {
		notes, err = d.Return(ctx, rec)
	} else {
		err = s.driver.Destroy(ctx, rec)
	}
	if sb != nil {
		err = errors.Join(err, sb.Close())
	}
	if err != nil {
		s.log.Error("remove the sandbox", "error", err)
	}
	return notes, err
}

// leftovers are sandboxes whose session is not live, or whose incarnation is another.
func (b box) leftovers(ctx context.Context) (all []leftover, errs error) {
	for _, d := range b.roster.cfg.Drivers {
		recs, err := d.List(ctx, b.roster.cfg.Owner)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("list sandboxes of driver %s: %w", d.Name(), err))
			continue
		}
		for _, rec := range recs {
			if s := b.roster.liveByID(rec.SessionID); s != nil && s.Row().Incarnation == rec.Incarnation {
				continue
			}
			all = append(all, leftover{
				Garbage: client.Garbage{Kind: "container", Name: rec.SessionID, Session: rec.SessionID},
				remove:  func() error { return d.Destroy(ctx, rec) },
			})
		}
	}
	return all, errs
}

// sandboxID is that of a session's sandbox.
func sandboxID(owner string, row *store.Session) sandbox.ID {
	return sandbox.ID{SessionID: row.ID, Incarnation: row.Incarnation, Owner: owner, UIDBase: row.UIDBase}
}

// recordOf is the driver's record of a session. Before the driver gave one, it
// is what List and Destroy can go by.
func (dm *daemon) recordOf(row *store.Session) sandbox.Record {
	var rec sandbox.Record
	if len(row.Record) == 0 || json.Unmarshal(row.Record, &rec) != nil {
		return sandbox.Record{ID: sandboxID(dm.cfg.Owner, row), Runtime: row.Runtime}
	}
	return rec
}
