package session

import (
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
)

// Observer is told what happens; metrics implement it. Methods must not block and
// must not call back into the manager.
type Observer interface {
	call.Observer
	SessionState(s *client.Session, old client.SessionState)
	SandboxCreated(runtime string, warm bool, d time.Duration)
	// ApprovalReplied is told how long an approval waited and how it ended: once,
	// always, reject, timeout, stale, gone (with its call or session).
	ApprovalReplied(a *client.Approval, reply string, waited time.Duration)
	// Hooked is told a hook that ran: ok, denied, replaced, failed.
	Hooked(on, outcome string, d time.Duration)
	// WorktreeOperation is told what was done with the changes of a session: diff, apply,
	// discard, checkpoint, restore, fork, merge (of layers, in the background). It was ok,
	// something was in its way (conflict), it was refused, or it failed.
	WorktreeOperation(operation, outcome string, d time.Duration)
	// Connection is told a connection of a session that is over: the rules allowed it, or denied
	// it, or it was allowed and failed (allow, deny, failed); and how long its far side took to
	// connect, 0 where it did not.
	Connection(verdict string, up, down int64, dial time.Duration)
}

// Auditor keeps the audit log.
type Auditor interface {
	call.Auditor
	// Worktree is told what p is about to do with the changes of a session. After an error,
	// which is one of Decided, it must not be done.
	Worktree(p auth.Principal, s *client.Session, w record.Worktree) error
	// Cache is the same for what tenants keep of caches.
	Cache(p auth.Principal, s *client.Session, c record.Cache) error
	// Admin is told what an admin does with the daemon itself, before that is done. An error refuses
	// it.
	Admin(p auth.Principal, a record.Admin) error
	// Ready says why calls are refused for its sake; nil when they are not.
	Ready() error
	// Noticed says how the log was found changed or cut at the start; "" where it was not.
	// No call is refused for it.
	Noticed() string
}
