package trees

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree/layers"
)

// When says before which calls a checkpoint is made: [worktrees] checkpoint.
type When string

// The values of the setting.
const (
	Never      When = "off"
	EachCall   When = "call"    // that may write
	EachPrompt When = "message" // before the first such call of a message; one without a message counts as one
)

const (
	// beforeTime is how long a call waits for others to end before it runs without a
	// checkpoint of its own.
	beforeTime = 100 * time.Millisecond
	// maxAutomatic bounds the checkpoints of a session that were made by themselves: the
	// oldest go.
	maxAutomatic = 100
)

// Made is what became of the checkpoint that was due before a call.
type Made struct {
	ID string // "" for none
	// Missing is why there is none, "" where none was due. Busy: other calls are running.
	Missing string
	Busy    bool
}

// Before makes a checkpoint before a call that may write, if one is due. A call is not refused
// for the want of one.
func (s *Service) Before(ctx context.Context, row *store.Session, live Live, when When, call, message string) Made {
	if row.Worktree.Mode != client.WorktreeOverlay || when != EachCall && when != EachPrompt {
		return Made{}
	}
	if when == EachCall {
		message = ""
	}
	if last, _ := s.messages.Load(row.ID); message != "" && last == message || live.Relays() != nil {
		return Made{} // a note of the session says that its driver takes none
	}
	over := s.watch(opCheckpoint)
	id, err := s.before(ctx, row, live, layers.Checkpoint{Cause: causeOf(message), Call: call, Message: message})
	if err != nil || id != "" {
		over(&err)
	}
	if err != nil {
		s.log.Warn("no checkpoint before a call", "session", row.ID, "call", call, "error", err)
		return Made{Missing: missing(err), Busy: errors.Is(err, errRunning)}
	}
	return Made{ID: id}
}

// errRunning: other calls are running, and none of them is stopped for a checkpoint.
var errRunning = errors.New("other calls are running")

// errTight: what is removed after a checkpoint would give no room back.
var errTight = errors.New("less than half of limits.disk is free")

// missing says why there is no checkpoint, to who made the call.
func missing(err error) string {
	f, known := errors.AsType[*fault.Error](err)
	switch {
	case known && f.Hint != "":
		return f.Err.Error() + "; " + f.Hint
	case known:
		return f.Err.Error()
	}
	return "the daemon's log says why"
}

func causeOf(message string) string {
	if message == "" {
		return causeCall
	}
	return causeMessage
}

func (s *Service) before(ctx context.Context, row *store.Session, live Live, c layers.Checkpoint) (id string, err error) {
	x, err := s.have(ctx, row, live)
	if err != nil {
		return "", err
	}
	defer x.release()
	x.keep(ctx, x.tree)
	if c.Message != "" && slices.ContainsFunc(x.tree.Checkpoints, func(o layers.Checkpoint) bool { return o.Message == c.Message }) {
		s.messages.Store(row.ID, c.Message) // it was made meanwhile, or by an earlier daemon
		return "", nil
	}
	if enough, err := s.store.HalfFree(x.tree.Disk); err != nil {
		return "", err
	} else if !enough {
		return "", fault.Quota.Errorf("%w", errTight).Next("remove files or checkpoints, or apply the changes")
	}
	quiet, cancel := context.WithTimeout(ctx, beforeTime)
	defer cancel()
	resume, err := live.Still(quiet)
	if err != nil {
		return "", fault.Conflict.Errorf("%w", errRunning)
	}
	defer resume()
	if err := x.dropOldest(); err != nil {
		return "", err
	}
	v, err := x.freezeQuiet(ctx, c)
	if err != nil {
		return "", err
	}
	if c.Message != "" {
		s.messages.Store(row.ID, c.Message)
	}
	return v.ID, nil
}

// Again is Recover for a session that goes on with the worktree that it had. It does nothing while calls run.
func (s *Service) Again(ctx context.Context, row *store.Session, live Live) error {
	unlock, err := s.locks.take(ctx, row.ID)
	if err != nil {
		return err
	}
	defer unlock()
	quiet, cancel := context.WithTimeout(ctx, beforeTime)
	defer cancel()
	resume, err := live.Still(quiet)
	if err != nil {
		return err
	}
	defer resume()
	if err = s.Recover(context.WithoutCancel(ctx), row, live); errors.Is(err, sandbox.ErrTorn) {
		live.Lose(plain.Cause(err))
	}
	return err
}

// dropOldest keeps the checkpoints that were made by themselves within their bound.
func (x *subject) dropOldest() (err error) {
	var own []string
	for _, c := range x.tree.Checkpoints {
		if c.Cause != causeRequest && c.Cause != causeFork {
			own = append(own, c.ID)
		}
	}
	if len(own) < maxAutomatic {
		return nil
	}
	x.dumped = true
	x.tree, err = x.store.Drop(x.row.ID, own[:len(own)-maxAutomatic+1]...)
	return err
}

// Over forgets what is remembered of a session that is over.
func (s *Service) Over(session string) {
	s.messages.Delete(session)
	s.seen.over(session)
	s.owed.Delete(session)
	s.altered.Delete(session)
	s.unwelded.Delete(session)
	s.unmerged.Delete(session)
}
