package trees

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree/apply"
	"github.com/toold/toold/internal/worktree/layers"
)

const (
	// maxCheckpoints bounds those of one session.
	maxCheckpoints = 2000
	maxName        = 64
)

// Why a checkpoint was made.
const (
	causeRequest = "request"
	causeRestore = "restore"
	causeFork    = "fork"
	causeDiff    = "diff"
	causeApply   = "apply"
	causeCall    = "call"
	causeMessage = "message"
)

// Checkpoint implements server.Trees.
func (s *Service) Checkpoint(ctx context.Context, p auth.Principal, id string, r client.CheckpointCreate) (c *client.Checkpoint, err error) {
	defer s.watch(opCheckpoint)(&err)
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	x, err := s.take(ctx, p, id)
	if err != nil {
		return nil, s.sessions.Internal("make a checkpoint", err)
	}
	defer x.release()
	if err := s.sessions.Audit(p, x.row, record.Worktree{Operation: opCheckpoint, Name: r.Name}); err != nil {
		return nil, err
	}
	if c, err = x.freeze(ctx, layers.Checkpoint{Name: r.Name, Cause: causeRequest}); err != nil {
		return nil, s.sessions.Internal("make a checkpoint of session "+x.row.ID, err)
	}
	return c, nil
}

// checkName refuses names that an id could be, or that no command line takes.
func checkName(name string) error {
	if name == "" {
		return nil
	}
	ok := len(name) <= maxName && name[0] != '-' && name[0] != '.' && (len(name) < 3 || name[:3] != "cp_")
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	}
	if !ok {
		return fault.In(fault.Invalid.Errorf("name %q: use 1 to %d letters, digits, '.', '_' and '-', beginning with a letter or digit and not with cp_", plain.Cut(name, 80), maxName), "name")
	}
	return nil
}

// freeze makes a checkpoint of the tree as it is.
func (x *subject) freeze(ctx context.Context, c layers.Checkpoint) (*client.Checkpoint, error) {
	resume, err := x.quiet(ctx)
	if err != nil {
		return nil, err
	}
	defer resume()
	return x.freezeQuiet(ctx, c)
}

// freezeQuiet is freeze while no call runs.
func (x *subject) freezeQuiet(ctx context.Context, c layers.Checkpoint) (*client.Checkpoint, error) {
	if n := len(x.tree.Checkpoints); n >= maxCheckpoints {
		return nil, fault.Quota.Errorf("session %s has %d checkpoints, which is all that it may have", x.row.ID, n).
			Next("remove some: toolctl checkpoint rm " + x.row.ID + " CHECKPOINT")
	}
	if len(x.store.Present(x.tree)) != len(x.tree.Lower) {
		if err := layable(x); err != nil {
			return nil, err
		}
	}
	if x.live != nil {
		c.Tasks = x.live.Tasks()
	}
	x.keep(ctx, x.tree) // the layer that is frozen is not looked at again
	tree, err := x.store.Freeze(x.row.ID, c)
	if errors.Is(err, layers.ErrDeep) {
		awaitMerge(ctx, x)
		tree, err = x.store.Freeze(x.row.ID, c)
	}
	if errors.Is(err, layers.ErrTaken) {
		return nil, fault.Conflict.Errorf("session %s has a checkpoint %q", x.row.ID, c.Name).Next("choose another name, or remove it first")
	}
	if errors.Is(err, layers.ErrDeep) {
		return nil, fault.Quota.Errorf("session %s has %d layers of changes one over the other, which is all that it may have", x.row.ID, layers.MaxLayers).
			Next("go back to an earlier checkpoint, or apply or discard the changes")
	}
	if errors.Is(err, unix.ENOSPC) && !errors.Is(err, layers.ErrUnwritten) {
		return nil, full(x.row.ID)
	}
	if err != nil {
		return nil, unwritten(err)
	}
	before := x.tree
	x.tree = tree
	made := &x.tree.Checkpoints[len(x.tree.Checkpoints)-1]
	v := x.shown(made)
	if err := x.lay(ctx, before); err != nil {
		return nil, err
	}
	x.sessions.Publish(x.row, client.EventWorktreeCheckpoint, v)
	if x.live != nil {
		mergeSoon(ctx, x)
	}
	return &v, nil
}

// full says that there is no room for one more layer.
func full(session string) error {
	return fault.Quota.Errorf("what session %s has changed fills its disk (limits.disk): there is no room to go on from there", session).
		Next("remove files in it, or checkpoints; or end it: its changes stay, and can be applied, discarded and forked then")
}

// DiskFailed is what err says to clients where it is that the disk of a session has failed, which
// nobody may have seen yet: layers on it can be read then, or not even that. nil: it says
// something else.
func DiskFailed(err error) error {
	if !slices.ContainsFunc([]error{unix.EROFS, unix.EIO, unix.EBADMSG, unix.EUCLEAN}, func(e error) bool { return errors.Is(err, e) }) {
		return nil
	}
	return fault.Sandbox.Errorf("the session's disk takes no writes any more, mostly because the host's was full: what was written last may be lost").
		Next("free space on the host and end the session: its changes stay, and can be shown, applied and forked then")
}

// shown is a checkpoint as clients see it.
func (x *subject) shown(c *layers.Checkpoint) client.Checkpoint {
	v := client.Checkpoint{
		ID: c.ID, Session: x.row.ID, Name: c.Name, Created: c.Created, Cause: c.Cause, Call: c.Call, Message: c.Message,
	}
	if own := c.Own(x.tree); own != "" {
		v.Bytes = x.store.Bytes(x.tree, own)
	}
	return v
}

// Checkpoints implements server.Trees.
func (s *Service) Checkpoints(ctx context.Context, p auth.Principal, id string) (client.List[client.Checkpoint], error) {
	list := client.List[client.Checkpoint]{Items: []client.Checkpoint{}}
	x, err := s.take(ctx, p, id)
	if err != nil {
		return list, s.sessions.Internal("list checkpoints", err)
	}
	defer x.release()
	for i := range x.tree.Checkpoints {
		list.Items = append(list.Items, x.shown(&x.tree.Checkpoints[i]))
	}
	return list, nil
}

// DropCheckpoint implements server.Trees.
func (s *Service) DropCheckpoint(ctx context.Context, p auth.Principal, id, checkpoint string) error {
	x, err := s.take(ctx, p, id)
	if err != nil {
		return s.sessions.Internal("remove a checkpoint", err)
	}
	defer x.release()
	c, err := x.known(checkpoint)
	if err != nil {
		return err
	}
	if err := s.sessions.Audit(p, x.row, record.Worktree{Operation: opDropCheckpoint, Checkpoint: c.ID}); err != nil {
		return err
	}
	x.dumped = true
	if _, err := s.store.Drop(x.row.ID, c.ID); err != nil {
		return s.sessions.Internal("remove checkpoint "+c.ID, err)
	}
	return nil
}

// known gives a checkpoint by its name or id.
func (x *subject) known(checkpoint string) (*layers.Checkpoint, error) {
	c, err := x.tree.Checkpoint(checkpoint)
	if err != nil {
		return nil, fault.NotFound.Errorf("session %s has no checkpoint %q", x.row.ID, plain.Cut(checkpoint, 80)).
			Next("toolctl checkpoint ls " + x.row.ID + " lists its checkpoints")
	}
	return c, nil
}

// find is known for who wants its files.
func (x *subject) find(checkpoint string) (*layers.Checkpoint, error) {
	c, err := x.known(checkpoint)
	if err != nil {
		return nil, err
	}
	if c.Stale {
		return nil, fault.Conflict.Errorf("checkpoint %s is from before changes were applied to the source, and lies over files that are not there any more", c.ID).
			Next("take a checkpoint that was made since: toolctl checkpoint ls " + x.row.ID)
	}
	return c, nil
}

// Restore implements server.Trees. What was there is a checkpoint itself, so that nothing
// is lost by it.
func (s *Service) Restore(ctx context.Context, p auth.Principal, id string, r client.RestoreRequest) (v *client.Restored, err error) {
	defer s.watch(opRestore)(&err)
	if (r.Checkpoint == "") == (r.Undo == 0) || r.Undo < 0 {
		field := "undo"
		if r.Checkpoint != "" && r.Undo > 0 {
			field = "checkpoint"
		}
		return nil, fault.In(fault.Invalid.Errorf("give either checkpoint or undo, a number from 1 on"), field)
	}
	x, err := s.take(ctx, p, id)
	if err != nil {
		return nil, s.sessions.Internal("restore a checkpoint", err)
	}
	defer x.release()
	if err := layable(x); err != nil { // rather than that it has no checkpoint, which is why
		return nil, err
	}
	to, err := x.target(r)
	if err != nil {
		return nil, err
	}
	if err := s.sessions.Audit(p, x.row, record.Worktree{Operation: opRestore, Checkpoint: to.ID}); err != nil {
		return nil, err
	}
	if v, err = x.restore(ctx, *to); err != nil {
		return nil, s.sessions.Internal(fmt.Sprintf("restore checkpoint %s of session %s", to.ID, x.row.ID), err)
	}
	return v, nil
}

// target is the checkpoint that is asked for. To undo goes by those that were made by
// themselves and after which something was changed.
func (x *subject) target(r client.RestoreRequest) (*layers.Checkpoint, error) {
	if r.Checkpoint != "" {
		c, err := x.find(r.Checkpoint)
		return c, fault.In(err, "checkpoint")
	}
	left, stale, after := r.Undo, 0, x.store.Present(x.tree)
	for i := range slices.Backward(x.tree.Checkpoints) {
		c := &x.tree.Checkpoints[i]
		changed := !slices.Equal(c.Layers, after)
		after = c.Layers
		switch {
		case c.Cause != causeCall && c.Cause != causeMessage || c.Undone:
			continue
		case c.Stale:
			stale++
			continue
		case !changed:
			continue
		}
		if left--; left == 0 {
			return c, nil
		}
	}
	before := ""
	if stale > 0 {
		before = fmt.Sprintf(" (of %d more there is nothing to go back to: changes were applied to the source since)", stale)
	}
	return nil, fault.In(fault.NotFound.Errorf("session %s has %s by calls to undo%s, and the last %d were asked for", x.row.ID, plain.Count(r.Undo-left, "change", "changes"), before, r.Undo).
		Next("toolctl checkpoint ls "+x.row.ID+" shows what there is; [worktrees] checkpoint of the configuration says when one is made by itself"), "undo")
}

func (x *subject) restore(ctx context.Context, to layers.Checkpoint) (*client.Restored, error) {
	resume, err := x.quiet(ctx)
	if err != nil {
		return nil, err
	}
	defer resume()
	before, err := x.freezeQuiet(ctx, layers.Checkpoint{Cause: causeRestore})
	if err != nil {
		return nil, err
	}
	frozen := x.tree
	if x.tree, err = x.store.Restore(x.row.ID, to.ID); err != nil {
		return nil, err
	}
	if err := x.lay(ctx, frozen); err != nil {
		return nil, err
	}
	v := &client.Restored{Checkpoint: x.shown(&to), Before: *before}
	if x.live != nil {
		if err := x.live.RestoreTasks(ctx, to.Tasks); err != nil {
			x.log.Warn("the list of tasks stays as it was", "session", x.row.ID, "checkpoint", to.ID, "error", err)
			v.TasksKept = true
		}
	}
	x.sessions.Publish(x.row, client.EventWorktreeRestored, v)
	return v, nil
}

// Fork implements server.Trees.
func (s *Service) Fork(ctx context.Context, p auth.Principal, id string, r client.ForkRequest) (v *client.Session, err error) {
	defer s.watch(opFork)(&err)
	x, err := s.take(ctx, p, id)
	if err != nil {
		return nil, s.sessions.Internal("fork a session", err)
	}
	defer x.release()
	w := record.Worktree{Operation: opFork}
	if r.At != "" {
		c, err := x.find(r.At)
		if err != nil {
			return nil, fault.In(err, "at")
		}
		w.Checkpoint = c.ID
	}
	if err := s.sessions.Audit(p, x.row, w); err != nil {
		return nil, err
	}
	from, err := x.forkPoint(ctx, r.At)
	if err != nil {
		return nil, s.sessions.Internal("fork session "+x.row.ID, err)
	}
	x.Step("forked from")
	if _, err := there(ctx, x.row.ID, x.tree.Source); err != nil {
		return nil, err
	}
	if v, _, err = s.sessions.Begin(ctx, p, forkRequest(x.row, r), *from); err != nil {
		return nil, err
	}
	if err := apply.Inherit(ctx, s.store.ApplyDir(v.ID), s.store.ApplyDir(x.row.ID)); err != nil {
		s.log.Warn("give a fork what its session began with", "session", v.ID, "error", err) // it has conflicts then
	}
	s.sessions.Publish(x.row, client.EventWorktreeForked, v)
	return v, nil
}

// forkPoint is what a fork begins with.
func (x *subject) forkPoint(ctx context.Context, at string) (*Seed, error) {
	if at == "" && x.live == nil {
		return &Seed{Lower: x.tree.Layers(), From: x.tree}, nil
	}
	if at == "" {
		if _, err := x.freeze(ctx, layers.Checkpoint{Cause: causeFork}); err != nil {
			return nil, err
		}
		return &Seed{Lower: x.tree.Lower, From: x.tree}, nil
	}
	c, err := x.find(at)
	if err != nil {
		return nil, err
	}
	then := *x.tree
	then.Incomplete = c.Incomplete
	return &Seed{Lower: c.Layers, From: &then}, nil
}

// forkRequest asks for a session like another one.
func forkRequest(row *store.Session, f client.ForkRequest) client.SessionCreate {
	r := row.Request
	r.Key, r.Queue, r.LeasePID = "", 0, 0
	r.Name, r.Token, r.Labels, r.TTL, r.Env = f.Name, f.Token, f.Labels, f.TTL, f.Env
	r.Profile, r.Worktree, r.Image, r.Runtime = row.Profile, row.Worktree, row.Image, row.Runtime
	r.Worktree.IDMap, r.Worktree.Sensitive = "", nil
	r.Permission = append(slices.Clone(r.Permission), f.Permission...)
	return r
}
