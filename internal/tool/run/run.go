// Package run is the half of the tools that works inside the sandbox: their
// inputs, Prepare (which has no effect) and Run (which does the work). It is
// linked into the agent and therefore into every session, so it holds no parser
// of schemas or shells and nothing heavy; the daemon's half is package tool.
//
// Everything here trusts its input's shape (the daemon has validated it) but
// nothing about the file system it works on: names, links, kinds and sizes are
// hostile.
package run

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/toold/toold/internal/tool/run/root"
)

// Tool is one tool's work. Implementations are stateless.
type Tool interface {
	Name() string
	// Prepare resolves the paths that the call names and says what Run would
	// do, without doing any of it. Only called where the daemon's Access asks.
	Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error)
	// Run does the work. prep is what Prepare returned (nil where it was not
	// called), possibly long ago: Run opens exactly the paths that prep
	// resolved and fails with CodeStale where prep's hashes no longer hold.
	Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error)
}

// FileTool is a Tool that works on files and waits for nothing else.
type FileTool interface {
	Tool
	onlyFiles()
}

// unprepared is of tools of the daemon's own, whose calls nobody judges.
type unprepared struct{}

// Prepare implements Tool.
func (unprepared) Prepare(context.Context, *Env, json.RawMessage) (*Prepared, error) {
	return &Prepared{}, nil
}

// Direct is a Tool whose Run may go by the files as they are when it runs, for a
// call that nobody was asked about: of such a call its paths were judged, and nothing
// else of what Prepare sees.
type Direct interface {
	Tool
	// Resolve is Prepare of the targets alone. A Run that is given its answer and
	// fails with CodeStale has had no effect, so both may be repeated.
	Resolve(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error)
}

// Job is a tool and an input of it, for work of the daemon's own. Each tool that has such
// work makes its jobs, so that nobody else has to know its name and its fields.
type Job struct {
	Tool  string
	Input json.RawMessage
}

// jobOf makes one of fields that are texts and numbers.
func jobOf(t Tool, fields map[string]any) Job {
	input, _ := json.Marshal(fields) // never fails for such
	return Job{t.Name(), input}
}

// Prepared is what Prepare saw. It travels to the daemon, is judged there, and
// comes back as the precondition of Run.
type Prepared struct {
	// Targets are all paths that the call would touch, as they resolve.
	Targets []Target `json:"targets,omitempty" cbor:"1,keyasint,omitempty"`
	// Diff is a unified diff of what would change, at most MaxDiff bytes.
	Diff string `json:"diff,omitempty" cbor:"2,keyasint,omitempty"`
	// Result is set when Prepare already knows how the call ends without any
	// effect (nothing matched, file missing). It is shown only if policy
	// allows the call, since it may quote the file.
	Result *Result `json:"result,omitempty" cbor:"3,keyasint,omitempty"`
	// State is the tool's own, opaque to the daemon, e.g. which strategy matched.
	State json.RawMessage `json:"state,omitempty" cbor:"4,keyasint,omitempty"`
}

// Paths are where the targets lead; a nil Prepared has none.
func (p *Prepared) Paths() []string {
	if p == nil {
		return nil
	}
	list := make([]string, 0, len(p.Targets))
	for _, t := range p.Targets {
		list = append(list, t.Path)
	}
	return list
}

// Target is one path that a call touches.
type Target struct {
	Asked  string `json:"asked" cbor:"1,keyasint"`                      // as the input says it
	Path   string `json:"path" cbor:"2,keyasint"`                       // absolute in the sandbox, all links resolved
	Exists bool   `json:"exists" cbor:"3,keyasint"`                     // at the time of Prepare
	Kind   string `json:"kind,omitempty" cbor:"4,keyasint,omitempty"`   // file, dir, fifo, socket, device …
	SHA256 string `json:"sha256,omitempty" cbor:"5,keyasint,omitempty"` // of the content that Run must still find; "" = not checked
	Write  bool   `json:"write,omitempty" cbor:"6,keyasint,omitempty"`
}

// MaxPaths bounds Env.Paths.
const MaxPaths = 256

// MaxDiff bounds Prepared.Diff; a longer diff is cut and says so.
const MaxDiff = 256 << 10

// Result is what a tool that ran gives back. A tool that ran and failed is a
// Result with IsError; an error is only for what could not be run.
type Result struct {
	Title string `json:"title" cbor:"1,keyasint,omitempty"`
	// Output is what the model reads. For a tool that streams (bash) it comes
	// after the streamed bytes, on a line of its own.
	Output   string         `json:"output" cbor:"2,keyasint,omitempty"`
	IsError  bool           `json:"is_error,omitempty" cbor:"3,keyasint,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty" cbor:"-"`
	// Encoded is Metadata on its way, which is package wire's to make and to read: its
	// values expand when they are decoded, so its size is checked before.
	Encoded     cbor.RawMessage `json:"-" cbor:"4,keyasint,omitempty"`
	Attachments []Attachment    `json:"attachments,omitempty" cbor:"5,keyasint,omitempty"`
	// Quote is what Output ends with where it shows content of the file that
	// Metadata["path"] names. The daemon leaves it out, and Metadata["diff"], where
	// the session may not read that file.
	Quote string `json:"quote,omitempty" cbor:"6,keyasint,omitempty"`
}

// Attachment is a file that a result carries; the daemon makes the data: URL.
type Attachment struct {
	Filename string `json:"filename" cbor:"1,keyasint"`
	MIME     string `json:"mime" cbor:"2,keyasint"`
	Data     []byte `json:"data" cbor:"3,keyasint"`
}

// Env is what a tool may use. One is made for each call.
type Env struct {
	// Root opens everything; it works with the tool user's ids and cannot
	// leave the sandbox's root.
	Root *root.Root
	// Worktree, Home and Tmp are absolute paths in the sandbox. Relative paths
	// of an input are relative to Worktree.
	Worktree, Home, Tmp string
	// OutputDir is where the daemon keeps whole outputs (read-only).
	OutputDir string
	// TreeDir has the directories that the worktree is compared with, which the tool user
	// cannot enter; there are some only in sessions that keep their changes apart.
	TreeDir string
	// Shell is what runs a command line: it is appended after "-c".
	Shell []string
	// Ripgrep is how ripgrep is started: its path in the sandbox, behind that of its
	// loader where it has one.
	Ripgrep []string
	// Shrink is the program that makes pictures smaller: its path in the sandbox with its
	// first arguments; the path of a picture and its inode are appended. nil = there is none.
	Shrink []string
	// Exec runs a program as the tool user in the call's own cgroup.
	Exec func(ctx context.Context, c Command) (*Exit, error)
	// Aside ends what waits in the sandbox for a next command, and so uses the worktree.
	Aside func(ctx context.Context) error
	// Stream takes live output. It blocks when the daemon does not keep up.
	Stream io.Writer
	// Input is what the client sends to the call, for tools that have such input: its
	// Read waits for it, and fails where it breaks off or the call is aborted.
	Input io.Reader
	// Progress publishes metadata while the tool runs. It never blocks.
	Progress func(metadata map[string]any)
	// Settings is the [tools.NAME] part of the configuration that concerns the
	// tool's work, as JSON; may be empty.
	Settings json.RawMessage
	// MaxFileSize is the session's limit for a file that is written, in bytes;
	// 0 = none.
	MaxFileSize int64
	// Paths are further paths that the command of bash names, for its Prepare.
	Paths []string
	// Keep takes over the memory of a Result that outlives Run; nil means that
	// nobody counts it.
	Keep func(*root.Reservation)
	// Seen remembers, for the session, which content of which file a call has
	// shown to the model (for edit's require_read).
	Seen *Seen
	// Watch remembers, for the session, the files that a host runs on sight.
	Watch *Watch
	// Patience is how long a second look may take for what was not found; 0 = as long as each has by itself.
	Patience time.Duration
}

// Command is a program to run as the tool user.
type Command struct {
	Argv []string // Argv[0] is looked up in PATH when it has no slash
	Dir  string   // absolute in the sandbox; "" = Worktree
	// Env is added to the session's allow-list environment.
	Env []string
	// Stdin is what the program reads; without it that is nothing.
	Stdin string
	// Stdout and Stderr take the output; when both are the same writer (or
	// Stderr is nil) both go through one pipe, in the order they were written.
	Stdout, Stderr io.Writer
	// Timeout is when SIGTERM is sent; sandbox grace later the cgroup is killed.
	Timeout time.Duration
	// Call is written on the program's cgroup, so that who looks from outside knows whose it
	// is; "" writes nothing.
	Call string
	// Unseen are directories in which the program can neither read nor list, write, make, run or remove
	// anything. Exit names them.
	Unseen []string
}

// Exit is how a program ended. A status is never invented: Code is -1 unless it
// exited by itself.
type Exit struct {
	Code             int    `json:"exit_code"`
	Signal           string `json:"signal,omitempty"` // "SIGSEGV"
	Reason           Reason `json:"reason"`
	DurationMillis   int64  `json:"duration_ms"`
	CPUMillis        int64  `json:"cpu_ms"`
	MaxMemoryBytes   int64  `json:"max_memory_bytes"`
	IOBytes          int64  `json:"io_bytes"`
	BackgroundKilled int    `json:"background_killed,omitempty"` // processes that outlived the leader
	// BackgroundNames are what the kernel calls the first MaxBackgroundNames of them.
	BackgroundNames []string `json:"background_names,omitempty"`
	// Locks are the first MaxLocks locks of the command's git repository that a git has left
	// which did not end when it was asked to.
	Locks []string `json:"locks,omitempty"`
	// Full is a file system of the session that was full when the program had failed:
	// the path where it is mounted.
	Full string `json:"full,omitempty"`
	// Raise is the limit that gives it more room, "" for none; the daemon's to say.
	Raise string `json:"-"`
	// Host is why the daemon ended the program for the sake of the host's memory, and what helps,
	// for ReasonMemory; "" where it was the session's limit. The daemon's to say.
	Host string `json:"-"`
	// Starved and Refused say that processes of a program that ended with status 0 all
	// the same were killed for memory, or could not be started under the limit on them.
	Starved bool `json:"starved,omitempty"`
	Refused bool `json:"refused,omitempty"`
	// Unseen are Command.Unseen.
	Unseen []string `json:"unseen,omitempty"`
}

// MaxBackgroundNames bounds Exit.BackgroundNames.
const MaxBackgroundNames = 5

// MaxLocks bounds Exit.Locks.
const MaxLocks = 5

// Reason says what ended a program. The set is closed (metadata.reason).
type Reason string

// The reasons. The agent itself can tell exit, signal, timeout, aborted and
// output_limit, and memory and pids where it keeps these limits itself; elsewhere
// the daemon refines signal to memory or pids from the cgroup.
const (
	ReasonExit         Reason = "exit"
	ReasonSignal       Reason = "signal"
	ReasonTimeout      Reason = "timeout"
	ReasonAborted      Reason = "aborted"
	ReasonMemory       Reason = "memory"
	ReasonPIDs         Reason = "pids"
	ReasonDisk         Reason = "disk"
	ReasonOutputLimit  Reason = "output_limit"
	ReasonSessionEnded Reason = "session_ended"
	ReasonLost         Reason = "lost"
)

// Words says the reason in words, for a call that was stopped before it had a result.
func (r Reason) Words() string {
	switch r {
	case ReasonTimeout:
		return "its time was over"
	case ReasonAborted:
		return "it was aborted"
	case ReasonMemory:
		return "the memory is nearly full"
	case ReasonDisk:
		return "the disk of the host is nearly full"
	case ReasonOutputLimit:
		return "it wrote more than the output limit"
	case ReasonSessionEnded:
		return "the session ended"
	default:
		return string(r)
	}
}

// Code says why a call could not be run; a subset of the API's codes.
type Code string

// The codes that the sandbox side uses.
const (
	CodeInvalidInput   Code = "invalid_input"
	CodeInvalidPath    Code = "invalid_path"
	CodeNotRegularFile Code = "not_regular_file"
	CodeStale          Code = "stale"
	CodeAborted        Code = "aborted"
	CodeSandboxFailed  Code = "sandbox_failed"
	CodeInternal       Code = "internal"
)

// Error is a call that could not be run. Message says what, which one, and what
// to do next.
type Error struct {
	Code    Code   `json:"code" cbor:"1,keyasint"`
	Message string `json:"message" cbor:"2,keyasint"`
	Hint    string `json:"hint,omitempty" cbor:"3,keyasint,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Errorf makes an *Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Failed makes the Result of a tool that ran and failed.
func Failed(title, format string, args ...any) *Result {
	return &Result{Title: title, Output: fmt.Sprintf(format, args...), IsError: true}
}
