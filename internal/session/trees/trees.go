// Package trees answers what clients ask about worktrees of mode overlay: what a session
// has changed, and what is to become of it. The changes of a session that is over are
// looked at by a session that is made for it and ends with the answer, so that the daemon
// itself opens nothing that a tool has written.
package trees

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree/apply"
	"github.com/toold/toold/internal/worktree/layers"
)

// Seed is the layers that a session begins with, by their names.
type Seed struct {
	Lower []string // the uppermost first
	Base  []string // what it is compared with, over the source
	// From is the tree that they are of; nil without layers. The source must be the same.
	From *layers.Tree
	// Look: nothing is to be written, and no tree is made. Void: the layers lie over nothing, because
	// the source is not at its path.
	Look, Void bool
	// Internal: the session is for the daemon's own work and counts in no quota, but there is a
	// bound of its own for such ones. What it writes
	// goes to Disk, or to a disk of Room bytes, or without both has no bound.
	Internal bool
	Disk     string
	Room     client.Size
}

// ErrSource is that the source of a session is not the directory any more that the session began
// with, or cannot be opened.
var ErrSource = errors.New("its source cannot be used")

// UnlaidError is that the worktree of a session could not be laid anew when its daemon began. The sandbox has
// the one that it had, and nothing may be written to it, since that may be a checkpoint by now; until Again has
// laid it.
type UnlaidError struct{ Err error } // why, for clients

// Error implements error.
func (e *UnlaidError) Error() string {
	why := e.Err
	if f, ok := errors.AsType[*fault.Error](why); ok {
		why = f.Err // its hint is for who asks
	}
	return "a change of its worktree that the daemon stopped in is not finished: " + why.Error()
}

// Unwrap gives the cause.
func (e *UnlaidError) Unwrap() error { return e.Err }

// Live is a session that is not over.
type Live interface {
	// Still waits until no call runs, and lets none run until release.
	Still(ctx context.Context) (release func(), err error)
	// Relays says why Relay cannot be had, sandbox.ErrUnsupported; nil where it can.
	Relays() error
	// Relay lays the layers over the worktree's source in the live sandbox; its errors are
	// those of sandbox.Relaying. ErrSource: it has not begun, for the source is another.
	Relay(ctx context.Context, t *layers.Tree, o *sandbox.Overlay) error
	// Errand is what the daemon has the sandbox do for itself.
	Errand() (errand.Errand, error)
	// Tasks is the call that wrote the session's list of tasks, "" for none. RestoreTasks goes
	// back to the list that a call wrote.
	Tasks() (call string)
	RestoreTasks(ctx context.Context, call string) error
	// Lose ends the session, because it cannot go on.
	Lose(why string)
}

// Sessions are all sessions, as far as it takes them to know about their worktrees.
type Sessions interface {
	// Find gives a session that p may see, by its id, or by its name while it lives; live is
	// nil when it is over.
	Find(ctx context.Context, p auth.Principal, idOrName string) (row *store.Session, live Live, err error)
	// Begin makes a session with layers, and gives its live half too.
	Begin(ctx context.Context, p auth.Principal, r client.SessionCreate, from Seed) (*client.Session, Live, error)
	// Pin opens a directory that p may write to, and says with whose rights.
	Pin(p auth.Principal, path string) (*os.File, thread.User, error)
	// End ends a session by force.
	End(ctx context.Context, p auth.Principal, id string) error
	// Audit puts on record what p is about to do, which must not be done after an error.
	Audit(p auth.Principal, row *store.Session, w record.Worktree) error
	// Publish stores an event of a session.
	Publish(row *store.Session, typ string, data any)
	// Operated is told an operation that is over, how it ended (see outcome) and how long it
	// took.
	Operated(operation, outcome string, took time.Duration)
	// Room is asked before so many bytes are written to the state directory; its error says that
	// there is no room for them now.
	Room(bytes int64) error
	// Writes is Room for work that writes at least so many bytes there, nobody knows how many. Its
	// context ends when there is no room for more, with a cause that says so.
	Writes(ctx context.Context, bytes int64) (_ context.Context, done func(), err error)
	// Sensitive are those of an apply.Job.
	Sensitive() []string
	// Internal words an error for who asked.
	Internal(what string, err error) error
}

// The operations, as the audit log and metrics know them. The last three are not on record.
const (
	opApply          = "apply"
	opDiscard        = "discard"
	opCheckpoint     = "checkpoint"
	opRestore        = "restore"
	opFork           = "fork"
	opDropCheckpoint = "drop_checkpoint"
	opDiff           = "diff"
	opMerge          = "merge"
)

// watch begins an operation. What it gives is told its error when it is over.
func (s *shared) watch(operation string) (over func(*error)) {
	began := time.Now()
	return func(err *error) { s.sessions.Operated(operation, outcome(*err), time.Since(began)) }
}

// outcome is how an operation ended: ok; conflict, something was in its way; refused, who
// asked cannot have it, or has gone; failed, which somebody should look at.
func outcome(err error) string {
	var f *fault.Error
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, fault.Conflict):
		return "conflict"
	case errors.Is(err, fault.Internal), errors.Is(err, fault.Sandbox):
		return "failed"
	case errors.As(err, &f), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.ErrClosedPipe):
		return "refused"
	}
	return "failed"
}

// Service is the answers. Its methods may be called from any goroutine.
type Service struct {
	*shared
	locks    locks
	messages sync.Map // before which the last checkpoint of a session was made
}

// shared is what all operations work with.
type shared struct {
	store    *layers.Store
	sessions Sessions
	log      *slog.Logger
	work     *crew.Crew
	owed     sync.Map // trees that are not as they are on record, where that could not be written: a *layers.Tree, by session
	seen     seens    // what is known of what sessions have written
	keeping  sync.Map // looks of Keep: a *keeping, by session
	boxes    *boxes   // of the daemon's own sandboxes
	merging  locks    // whose layers are merged in the background
	weldTime time.Duration
	unmerged sync.Map // trees of which layers could not be copied into one: an unmerged, by session
	altered  sync.Map // sessions whose source has been seen to be another than they began with
	unwelded sync.Map // trees whose layers could not be merged as they are: an unwelded, by session
	// looks is told of each walk of layers and each look at a source; tests count them.
	looks func(what string)
	// Step is told of each step between two that a daemon may die at; tests end it there.
	Step func(name string)
}

// New makes one. What it does in the background is work's.
func New(store *layers.Store, sessions Sessions, log *slog.Logger, work *crew.Crew) *Service {
	return &Service{shared: &shared{store: store, sessions: sessions, log: log, work: work, boxes: newBoxes(), weldTime: weldTime, looks: func(string) {}, Step: func(string) {}}}
}

// take finds the tree of a session, for who may change what becomes of it: never the
// holder of a session's token.
func (s *Service) take(ctx context.Context, p auth.Principal, idOrName string) (*subject, error) {
	row, live, err := s.find(ctx, p, idOrName)
	if err != nil {
		return nil, err
	}
	x, err := s.have(ctx, row, live)
	return x, leftNone(row, err)
}

// find finds a session that has a tree.
func (s *Service) find(ctx context.Context, p auth.Principal, idOrName string) (*store.Session, Live, error) {
	if err := p.Whole(); err != nil {
		return nil, nil, err
	}
	row, live, err := s.sessions.Find(ctx, p, idOrName)
	if err != nil {
		return nil, nil, err
	}
	if row.Worktree.Mode != client.WorktreeOverlay {
		return nil, nil, fault.Conflict.Errorf("the worktree of session %s has the mode %q, which keeps no changes apart from the source", row.ID, row.Worktree.Mode).
			Next("make a session that does: toolctl session create --mode overlay")
	}
	return row, live, nil
}

// leftNone is an error for clients, if it is that a session has no tree.
func leftNone(row *store.Session, err error) error {
	if !errors.Is(err, layers.ErrNone) {
		return err
	}
	return fault.NotFound.Errorf("session %s has left no changes", row.ID).
		Next("there is nothing to look at, apply or discard")
}

// have waits until nobody else has the tree of a session.
func (s *Service) have(ctx context.Context, row *store.Session, live Live) (*subject, error) {
	unlock, err := s.locks.take(ctx, row.ID)
	if err != nil {
		return nil, err
	}
	return s.having(row, live, unlock)
}

// having is have for who has the lock, which it gives back where it fails.
func (s *Service) having(row *store.Session, live Live, unlock func()) (*subject, error) {
	err := s.settleUp(row.ID)
	var tree *layers.Tree
	if err == nil {
		tree, err = s.store.Get(row.ID)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	first := *tree
	x := &subject{shared: s.shared, row: row, live: live, tree: tree, first: &first, unlock: unlock, unhold: s.store.Hold(tree.All())}
	if err := outdate(x); err != nil {
		x.release()
		return nil, unwritten(err)
	}
	if isOver(row) {
		if x.tree = s.mend(x.tree); !x.dumped {
			first = *x.tree
		}
	}
	return x, nil
}

// outdate says of the checkpoints of a tree that they are from before an apply, if one was cut off
// that has written to the source, or will as soon as that can be written to.
func outdate(x *subject) error {
	dir := x.store.ApplyDir(x.row.ID)
	if !apply.Outdates(dir) {
		return nil
	}
	x.dumped = true
	return outdated(x, dir)
}

// outdated is Outdate, of which the apply is told.
func outdated(x *subject, dir string) error {
	return apply.Outdated(dir, func() error {
		now, err := x.store.Outdate(x.row.ID)
		if err == nil {
			x.tree = now
		}
		return err
	})
}

// isOver reports whether a session is over, as its record says.
func isOver(row *store.Session) bool {
	return row.State == client.SessionEnded || row.State == client.SessionLost
}

// owe is for a tree that is another one now than could be written down.
func (s *shared) owe(t *layers.Tree) { s.owed.Store(t.Session, t) }

// settleUp writes down what is owed of a session. Until it can be, nobody works on its tree: what is
// on record names another upper layer than the sandbox writes to.
func (s *shared) settleUp(session string) error {
	t, owed := s.owed.Load(session)
	if !owed {
		return nil
	}
	if err := s.store.Put(t.(*layers.Tree)); err != nil {
		return unwritten(err)
	}
	s.owed.Delete(session)
	return nil
}

// Unwritten reports whether err is that the host's disk takes no record of a session's layers. It
// says nothing against the session.
func Unwritten(err error) bool {
	return errors.Is(err, layers.ErrUnwritten) && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS))
}

// unwritten is err for clients, if it is that the host's disk has no room for a record.
func unwritten(err error) error {
	if !Unwritten(err) {
		return err
	}
	return fault.Overloaded.Errorf("the host's disk has no room for the record of the session's layers").
		Next("nothing of its files is lost; try again when there is room on the host (toolctl gc names leftovers)")
}

// mend is layers.Mend. What cannot be looked at now is looked at by who needs it.
func (s *shared) mend(t *layers.Tree) *layers.Tree {
	now, lost, err := layers.Mend(s.store, t)
	if err != nil {
		s.log.Warn("look whether the layers of a session are there", "session", t.Session, "error", err)
	}
	if len(lost) > 0 {
		s.log.Warn("the disk of a session has lost the changes that were written to it last", "session", t.Session, "layers", len(lost))
	}
	return now
}

// Forget removes the tree of a session that is over, with its checkpoints, when nobody
// works on it any more.
func (s *Service) Forget(ctx context.Context, session string) error {
	release, err := s.locks.take(ctx, session)
	if err != nil {
		return err
	}
	defer release()
	s.seen.drop(session)
	was, _ := s.store.Get(session) // Remove says what is wrong
	err = s.store.Remove(session)
	s.Step("tree removed")
	err = errors.Join(err, s.store.Sweep(was))
	s.Step("layers removed")
	if e := apply.Forget(ctx, s.store.ApplyDir(session)); e != nil {
		s.log.Error("forget what was applied", "session", session, "error", e)
	}
	return err
}

// Drop is Forget at the wish of p, who may see the session.
func (s *Service) Drop(ctx context.Context, p auth.Principal, row *store.Session) error {
	if err := p.Whole(); err != nil {
		return err
	}
	if _, err := s.store.Get(row.ID); errors.Is(err, layers.ErrNone) {
		return nil
	}
	if err := s.sessions.Audit(p, row, record.Worktree{Operation: opDiscard}); err != nil {
		return err
	}
	if err := s.Forget(ctx, row.ID); errors.Is(err, layers.ErrNone) {
		return nil // a sweep was faster
	} else if err != nil {
		return err
	}
	s.sessions.Publish(row, client.EventWorktreeDiscarded, &client.Discarded{})
	return nil
}

// Recover lays the layers of a session that was taken over from an earlier daemon, where
// that one may have died before it did. No call may begin before. UnlaidError: it goes on as it is.
func (s *Service) Recover(ctx context.Context, row *store.Session, live Live) error {
	tree, err := s.store.Get(row.ID)
	if errors.Is(err, layers.ErrNone) || err == nil && !tree.Unlaid {
		return nil
	}
	if err == nil && errors.Is(live.Relays(), sandbox.ErrUnsupported) {
		// An earlier version stored what it could not carry out, which is a checkpoint.
		tree.Unfreeze()
		return s.store.Put(tree)
	}
	if err == nil && layers.Begun(s.store, tree) {
		_, err = s.store.Laid(row.ID) // it is laid, and that could not be written down
		return err
	}
	if err == nil {
		tree, err = s.store.Retry(row.ID) // the upper layer may be mounted already
	}
	if err == nil {
		x := &subject{shared: s.shared, row: row, live: live, tree: tree}
		err = x.tryLay(ctx)
	}
	if err == nil {
		_, err = s.store.Laid(row.ID)
		return err
	}
	if why := hindered(row.ID, err); why != nil && !Unwritten(err) {
		s.log.Warn("lay the worktree of a session anew", "session", row.ID, "error", err)
		return &UnlaidError{why}
	}
	return fmt.Errorf("its worktree could not be laid anew: %w", err)
}
