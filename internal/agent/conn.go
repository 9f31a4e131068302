package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"

	"github.com/toold/toold/internal/tool/run"
)

// Errors that callers tell apart.
var (
	// ErrLost: the connection broke; calls may still be running in the sandbox.
	ErrLost = errors.New("connection to the agent lost")
	// ErrViolation: the agent broke the protocol; its session must be ended.
	ErrViolation = errors.New("agent broke the control protocol")
	// ErrUnknownCall: the agent has no such call (never started, or forgotten).
	ErrUnknownCall = errors.New("agent does not know this call")
)

// Hello is what the daemon tells the agent when it connects.
type Hello struct {
	Nonce []byte
	// The rest configures the session; the agent takes it from the first
	// connection and ignores it on later ones.
	Worktree, Home, Tmp, OutputDir string
	ToolUID, ToolGID               int
	Env                            []string // the tools' whole environment, KEY=VALUE
	Shell                          []string // e.g. /bin/bash --noprofile --norc
	// Limits of one process, 0 = leave.
	OpenFiles, FileSize int64
	// UnackedBytes bounds what the agent keeps of one call's output for a daemon
	// that is away; past it the command waits.
	UnackedBytes int
	// OrphanMillis: the agent kills everything and exits when no daemon has been
	// connected for so long; 0 = never. For daemons that live for one command.
	OrphanMillis int64
	// CallCgroup, when not nil, is sent as a descriptor (see sandbox.Sandbox).
	CallCgroup *os.File
}

// Welcome is the agent's answer.
type Welcome struct {
	Version string
	// ForkTID is the thread id, in the sandbox, of the thread that starts all
	// processes of tools.
	ForkTID int
	// Calls are those that the agent still holds: running, or finished and not
	// yet forgotten.
	Calls []CallState
	// Notes say which defences this kernel did not give (Landlock …).
	Notes []string
}

// CallState is one call that the agent still holds.
type CallState struct {
	ID       string
	Finished bool
	// OutputBase and OutputEnd are the byte offsets of the output it can send.
	OutputBase, OutputEnd int64
}

// Request asks for Prepare or Run.
type Request struct {
	CallID   string
	Tool     string
	Input    json.RawMessage
	Settings json.RawMessage
	Env      []string // added to the session's environment, for this call
	// TimeoutMillis bounds Run; 0 = no bound of the agent's own.
	TimeoutMillis int64
	// MaxOutput is the number of streamed bytes after which the call is killed
	// with reason output_limit; 0 = none.
	MaxOutput int64
	Prepared  *run.Prepared // for Run only
	// Split sends stdout and stderr as two streams with their offsets; order
	// between them is then only as good as the agent's reads.
	Split bool
}

// Sink takes what a running call sends. Its methods are called from one
// goroutine per call, in order, and may block: that stops the call's output
// (credits), never another call's.
type Sink interface {
	// Output gets the next bytes of the stream; offset is that of p[0], and
	// successive calls have no gap. p must not be kept. When it returns nil the
	// daemon may Ack up to any offset it has made durable.
	Output(offset int64, stderr bool, p []byte) error
	// Metadata gets a progress update, at most 10 a second per call; the last
	// one always arrives.
	Metadata(m map[string]any)
}

// Outcome is how Run ended. Exactly one of Result and Err is set.
type Outcome struct {
	Result *run.Result
	Err    *run.Error
	Exit   *run.Exit // for tools that ran a program
	// OutputEnd is the number of bytes that the call streamed in all.
	OutputEnd int64
}

// Conn is the daemon's end of one connection to one agent. Its methods may be
// called from any goroutine.
type Conn struct{}

// Connect shows the nonce and waits for the agent's welcome. It takes over c.
func Connect(ctx context.Context, c *net.UnixConn, h Hello) (*Conn, *Welcome, error) {
	return nil, nil, errors.New("not built yet")
}

// Prepare asks what a call would do.
func (c *Conn) Prepare(ctx context.Context, r Request) (*run.Prepared, error) { return nil, ErrLost }

// Run starts a call and waits for its outcome. When ctx ends, Run returns its
// cause and the call goes on: use Abort to stop it. ErrLost means the call may
// still be running; resume it over a new connection.
func (c *Conn) Run(ctx context.Context, r Request, s Sink) (*Outcome, error) { return nil, ErrLost }

// Resume takes up a call that an earlier connection started, from output offset on.
func (c *Conn) Resume(ctx context.Context, callID string, offset int64, s Sink) (*Outcome, error) {
	return nil, ErrLost
}

// Ack says that all output below offset is durable: the agent may drop it.
func (c *Conn) Ack(callID string, offset int64) error { return ErrLost }

// Forget says that the outcome is durable: the agent may drop the call.
func (c *Conn) Forget(callID string) error { return ErrLost }

// Abort stops a running call: SIGTERM, grace, cgroup kill. Its outcome arrives
// as usual, with this reason.
func (c *Conn) Abort(callID string, reason run.Reason) error { return ErrLost }

// FreeTmp removes everything in the sandbox's tmpfs directories (/tmp, /dev/shm),
// which tools that are out of memory cannot do themselves.
func (c *Conn) FreeTmp(ctx context.Context) error { return ErrLost }

// Ping asks for a sign of life.
func (c *Conn) Ping(ctx context.Context) error { return ErrLost }

// Done is closed when the connection has ended; Err says why.
func (c *Conn) Done() <-chan struct{} { return nil }

// Err is why the connection ended: nil after Close, ErrViolation, or ErrLost.
func (c *Conn) Err() error { return nil }

// Close ends the connection; calls go on in the sandbox.
func (c *Conn) Close() error { return nil }
