package trees

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree/layers"
)

const (
	// stillTime is how long running calls are waited for.
	stillTime = 2 * time.Second
	// relayTries and relayPause are for descriptors that the agent is about to close.
	relayTries = 20
	relayPause = 25 * time.Millisecond
)

// subject is a session and its tree, which nobody else changes meanwhile. The layers that
// the tree had at first stay until release, so that it can become again what it was.
type subject struct {
	*shared
	row    *store.Session
	live   Live // nil when the session is over
	tree   *layers.Tree
	first  *layers.Tree // that it was when this began; nil where nobody waits for that
	dumped bool         // there may be layers that the tree does not name any more
	shows  bool         // what it looks at is only shown, or counted: then its layers may lie over nothing

	unlock, unhold func()
}

// release lets others have the tree, and removes layers that it has dropped.
func (x *subject) release() {
	if isOver(x.row) {
		x.seen.over(x.row.ID)
	}
	x.unhold()
	x.unlock()
	if x.dumped {
		sweep(x)
	}
}

// sweep removes layers that the tree has dropped. The disks of other sessions are not waited for.
func sweep(x *subject) {
	if err := x.store.Sweep(x.first, x.tree); err != nil {
		x.log.Error("remove layers", "error", err)
	}
}

// quiet stops the calls of a live session; of one that is over there are none.
func (x *subject) quiet(ctx context.Context) (release func(), err error) {
	if x.live == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, stillTime)
	defer cancel()
	release, err = x.live.Still(ctx)
	if err != nil {
		return nil, fault.Conflict.Errorf("calls of session %s are running, and files cannot be put aside under them", x.row.ID).
			Next("wait for them to end, or abort them: toolctl abort " + x.row.ID + " CALL")
	}
	return release, nil
}

// layable refuses what would have to be laid where the sandbox takes nothing, before anything of
// it is stored.
func layable(x *subject) error {
	if x.live == nil {
		return nil
	}
	err := x.live.Relays()
	if _, unlaid := errors.AsType[*UnlaidError](err); unlaid {
		return err
	}
	if err != nil {
		return fault.Conflict.Errorf("session %s: %w", x.row.ID, err).Next("end the session: its changes stay, and can be applied, discarded and forked then")
	}
	return nil
}

// lay gives the live sandbox the layers of the tree, where it does not have them. When
// it cannot, the tree is again what it was before.
func (x *subject) lay(ctx context.Context, before *layers.Tree) error {
	if x.live == nil || !x.tree.Unlaid {
		return nil
	}
	x.Step("stored")
	err := x.tryLay(context.WithoutCancel(ctx)) // what is decided is carried out, whoever waits
	if err == nil {
		x.Step("laid")
		laid := *x.tree
		laid.Unlaid = false
		if x.tree, err = x.store.Laid(x.row.ID); err != nil {
			x.tree = &laid
			x.owe(x.tree)
		}
		return unwritten(err)
	}
	why := hindered(x.row.ID, err)
	x.log.Warn("lay the worktree of a session anew", "session", x.row.ID, "error", err)
	if why == nil {
		x.live.Lose("its worktree could not be laid anew: " + plain.Cause(err))
		return fault.Over.Errorf("session %s is lost, since its sandbox could not be given the worktree: %s", x.row.ID, plain.Cause(err)).
			Next("its changes are still there: do the same to them, or toolctl diff, apply, discard, fork")
	}
	err = why
	x.tree = before
	if e := x.store.Put(before); e != nil {
		x.owe(before)
		err = errors.Join(err, unwritten(e))
	}
	return err
}

// hindered is why a worktree could not be laid, for clients, where the sandbox still has the one that it
// had. nil: it may have none.
func hindered(session string, err error) error {
	switch {
	case Unwritten(err):
		return unwritten(err)
	case errors.Is(err, sandbox.ErrBusy):
		return fault.Conflict.Errorf("the worktree of session %s is in use: %w", session, err).Next("end what runs in it, then try again")
	case errors.Is(err, sandbox.ErrMountTarget):
		return fault.Conflict.Errorf("session %s: what is mounted in its worktree would have no place there: %w", session, err).Next("make its directory in the source again, then try again")
	case errors.Is(err, beneath.ErrStuck):
		return fault.Overloaded.Errorf("the source of session %s: %w", session, err).Next("see that what serves its file system works, then try again")
	case errors.Is(err, ErrSource):
		return fault.Conflict.Errorf("session %s: %w", session, err).
			Next("put the directory back that the session began with, and try again; toolctl diff " + session + " gives its changes as a patch meanwhile")
	case errors.Is(err, unix.ENOSPC):
		return full(session)
	case DiskFailed(err) != nil:
		return DiskFailed(err)
	case errors.Is(err, sandbox.ErrTorn):
		return nil
	}
	return fault.Overloaded.Errorf("the worktree of session %s could not be laid anew: %s", session, plain.Cause(err)).
		Next("put that right, then try again; toolctl diff " + session + " gives its changes as a patch meanwhile")
}

func (x *subject) tryLay(ctx context.Context) error {
	for try := 1; ; try++ {
		err := x.layOnce(ctx)
		if try == relayTries || !errors.Is(err, sandbox.ErrBusy) {
			return err
		}
		time.Sleep(relayPause)
		if x.tree, err = x.store.Retry(x.row.ID); err != nil {
			return err
		}
	}
}

func (x *subject) layOnce(ctx context.Context) error {
	open, err := x.store.OpenLayers(append([]string{x.tree.Upper}, x.tree.Lower...))
	if err != nil {
		return err
	}
	defer open.Close()
	x.Step("layers opened")
	// An agent that does not answer uses the worktree, which shows.
	if e, err := x.live.Errand(); err == nil {
		if err := e.Aside(ctx); err != nil {
			x.log.Warn("take what waits out of a worktree", "session", x.row.ID, "error", err)
		}
	}
	x.Step("put aside")
	return x.live.Relay(ctx, x.tree, &sandbox.Overlay{Upper: open.Files[0], Lower: open.Files[1:]})
}
