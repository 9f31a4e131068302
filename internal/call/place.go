package call

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// Place is a session as far as its calls need it.
type Place interface {
	// Row is the session as it is now.
	Row() store.Session
	// Fate is ended or lost where the session is over or ends, and why; "" where not.
	Fate() (client.SessionState, string)
	// Takes reports whether calls may begin.
	Takes() bool
	// Attend watches over the sandbox while a call needs it, until the same number of
	// calls of Leave. seen waits until what has become of the session's directories on the host
	// is in its Row.
	Attend() (seen func())
	Leave()
	// Killed says whether the kernel has ended tools for want of memory, or refused
	// processes, since it was last asked.
	Killed() (memory, pids bool)
	// Starved counts a program that the agent has ended for want of memory.
	Starved()
	// FreeTmp empties the files in memory where they leave no room for programs, and
	// reports whether it did.
	FreeTmp() bool
	// Before is told that a call is about to run which may write. After an error the call
	// cannot run.
	Before(ctx context.Context, id, message string) (Checkpoint, error)
	// Errand is what the daemon has the sandbox do for itself.
	Errand() (errand.Errand, error)
	// Lose ends the session, because it cannot go on.
	Lose(why string)
}

// Checkpoint is what became of the checkpoint that was due before a call: see trees.Made.
type Checkpoint struct {
	ID      string
	Missing string
	Busy    bool
}

// Runner runs calls. Which one runs a call its tool says (tool.By). Its errors are those of
// package agent, *run.Error, or such that only the log is for.
type Runner interface {
	// Prepare resolves what a call names. It has no effect. nil is nothing.
	Prepare(ctx context.Context, r agent.Request) (*run.Prepared, error)
	// Run runs a call, once, and only where its paths lead as r says. Its error is
	// agent.ErrUnknownCall where nobody knows whether it ran, and ctx's cause where ctx has
	// ended.
	Run(ctx context.Context, r agent.Request, f agent.Follower) (*agent.Outcome, error)
	// Abort ends a call, as far as it can be reached: Run then returns. It may be called
	// before Run and again.
	Abort(callID string, why run.Reason)
}

// Durable is a Runner whose calls outlive the daemon. Those of others end with it: the next
// daemon ends their records, and never runs them again.
type Durable interface {
	Runner
	// Resume goes on with a call that runs, or has run.
	Resume(ctx context.Context, callID string, f agent.Follower) (*agent.Outcome, error)
	// Ack says that bytes of the output need not be kept any longer.
	Ack(callID string, offset int64)
	// Forget lets go of what is kept of a call that has ended.
	Forget(callID string)
}

// Holder is a Runner that keeps the deadlines of its calls.
type Holder interface {
	Runner
	// Hold lets the time of a call stand still, though no longer than most after its beginning.
	// 0 lets it go on.
	Hold(callID string, most time.Duration)
}

// Tenant counts what the calls of one tenant have.
type Tenant struct {
	Name  string
	Calls atomic.Int64 // that have begun and not ended
	Kept  atomic.Int64 // bytes of their records
}

// Quota keeps account of what tenants have.
type Quota interface {
	// MostCalls is how many calls of a tenant may be open; 0 = any number.
	MostCalls(tenant string) int
	// TakeRoom counts n bytes of a new record, or refuses them.
	TakeRoom(ctx context.Context, t *Tenant, n int64) error
	// KeepRoom refuses to keep more of outputs on the host's disk.
	KeepRoom() error
	// Stored is what is stored of a call that has ended.
	Stored(row *store.Call) *store.Call
}

// Observer is told what happens to calls; metrics implement it. Methods must not block and
// must not call back.
type Observer interface {
	CallFinished(c *client.Call, queued, ran time.Duration)
	OutputSpilled(bytes int64)
	LenientConversion(tool string)
	// Alias is told a name of another system that a call was made with; it is one of
	// tool.Definition.Aliases.
	Alias(tool, alias string)
	// Decided is told each judgement, with one permission and action for each
	// request of the call.
	Decided(d *judge.Decision)
	// DoomLoop is told a loop that was found, and what was done about it.
	DoomLoop(tool string, period int, action policy.Action)
	ApprovalAsked(a *client.Approval)
}

// Auditor keeps the audit log. An error means that the record is not safely
// written and that, by configuration, the call must not run; it is a
// *fault.Error.
type Auditor interface {
	Decided(d *judge.Decision) error
	// Finished is told how a call ended. outputHash is of the whole output as far
	// as it was kept.
	Finished(p auth.Principal, c *client.Call, outputHash [32]byte) error
}

// Tools are those that calls can name; a *tool.Registry is some.
type Tools interface {
	Parse(name string, raw json.RawMessage) (*tool.Invocation, error)
	ParseHidden(name string, raw json.RawMessage) (*tool.Invocation, error)
	Malformed(name string, raw json.RawMessage) *tool.Invocation
	Get(name string) (*tool.Definition, bool)
	Set(lacks func(*tool.Definition) string) *tool.Set
}

// Settings are those parts of the configuration that are about calls.
type Settings struct {
	Truncate output.Limits
	// ProfileTruncate goes over Truncate for a profile, and ToolTruncate over both for a tool:
	// lines, bytes and direction, as far as they are set.
	ProfileTruncate map[string]output.Limits
	ToolTruncate    map[string]output.Limits
	BashTimeout     time.Duration     // where neither the call nor its input has one
	Shell           []string          // that runs commands in sessions which do not know theirs
	ToolSettings    map[string][]byte // [tools.NAME] as JSON
	MinFree         int64             // bytes that Quota.KeepRoom leaves on the disk of the state directory
}

// ShellOf is the shell of a session: the one that was configured when it began,
// since a reload does not reach its sandbox.
func (s *Settings) ShellOf(row *store.Session) []string {
	if len(row.Shell) > 0 {
		return row.Shell
	}
	return s.Shell
}
