package client

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// CallStatus is where a call is in its life.
type CallStatus string

// The life of a call: pending → running → completed | error. "completed" is a
// tool that ran, also when it failed (IsError); "error" is one that did not run
// or whose result was lost.
const (
	CallPending   CallStatus = "pending"
	CallRunning   CallStatus = "running"
	CallCompleted CallStatus = "completed"
	CallError     CallStatus = "error"
)

// CallCreate asks for one run of a tool.
type CallCreate struct {
	// Key is the client's own name for this call, unique in the session: the
	// same key and input again returns the same call, never a second run.
	Key       string            `json:"key,omitempty"`
	Tool      string            `json:"tool"`
	Input     json.RawMessage   `json:"input"`
	MessageID string            `json:"message_id,omitempty"`
	Agent     string            `json:"agent,omitempty"`
	Model     string            `json:"model,omitempty"`
	Extra     json.RawMessage   `json:"extra,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	// Typed says that a person has typed this call at a terminal: it is then no part
	// of loops, which are about models. That is the client's word, which nobody can
	// check, so it is on the audit log, and refused with a session's token.
	Typed bool `json:"typed,omitempty"`
	// Timeout bounds this call, at most limits.wall. JSON name timeout_ms.
	TimeoutMillis int64 `json:"timeout_ms,omitempty"`
	// WaitMillis bounds how long the answer waits for the call to finish; nil
	// waits until it does, 0 answers at once.
	WaitMillis *int64 `json:"wait_ms,omitempty"`
}

// Attachment is a file that a result carries.
type Attachment struct {
	Filename string `json:"filename"`
	MIME     string `json:"mime"`
	URL      string `json:"url"` // data: URL
}

// CallTime holds the times of a call's life.
type CallTime struct {
	Queued  time.Time  `json:"queued"`
	Started *time.Time `json:"started,omitempty"`
	Ended   *time.Time `json:"ended,omitempty"`
}

// CallUsage is the call's own bill.
type CallUsage struct {
	CPUMillis      int64 `json:"cpu_ms"`
	MaxMemoryBytes int64 `json:"max_memory_bytes"`
	IOBytes        int64 `json:"io_bytes"`
	DurationMillis int64 `json:"duration_ms"`
}

// CallPermission is how the call was judged.
type CallPermission struct {
	Verdict    string `json:"verdict"`
	Rule       string `json:"rule,omitempty"`
	ApprovalID string `json:"approval_id,omitempty"`
}

// NoOutput is Call.Output of a call that has ended and printed nothing.
const NoOutput = "(no output)"

// Call is one run of a tool, asked for, running or finished.
type Call struct {
	ID        string          `json:"id"`
	Key       string          `json:"key,omitempty"`
	SessionID string          `json:"session_id"`
	Tool      string          `json:"tool"`
	Input     json.RawMessage `json:"input"` // null where it is not kept
	// InputNotKept stands for a large input that is not kept.
	InputNotKept *NotKept        `json:"input_not_kept,omitempty"`
	MessageID    string          `json:"message_id,omitempty"`
	Agent        string          `json:"agent,omitempty"`
	Model        string          `json:"model,omitempty"`
	Extra        json.RawMessage `json:"extra,omitempty"`
	Typed        bool            `json:"typed,omitempty"`
	Parent       string          `json:"parent,omitempty"`   // the call that has made this one
	ToolSet      string          `json:"tool_set,omitempty"` // the revision of the session's set of tools
	Status       CallStatus      `json:"status"`
	Title        string          `json:"title"`
	Output       string          `json:"output"`   // for the model; Error's text is at its end
	IsError      bool            `json:"is_error"` // also of every call with an error
	Metadata     map[string]any  `json:"metadata"`
	Attachments  []Attachment    `json:"attachments,omitempty"`
	Error        *Error          `json:"error,omitempty"`
	Permission   *CallPermission `json:"permission,omitempty"`
	Usage        CallUsage       `json:"usage"`
	Time         CallTime        `json:"time"`
}

// NotKept says of something that a record does not have any more what it was.
type NotKept struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // in hexadecimal
}

// String implements fmt.Stringer.
func (n *NotKept) String() string {
	return fmt.Sprintf("%d bytes not kept: sha256:%s", n.Bytes, n.SHA256)
}

// Finished reports whether the call will not change any more.
func (c *Call) Finished() bool { return c.Status == CallCompleted || c.Status == CallError }

// Printed is Output without what is there for models alone: the text of Error at its
// end, which programs show by themselves, and NoOutput.
func (c *Call) Printed() string {
	switch {
	case c.Output == NoOutput:
		return ""
	case c.Error == nil:
		return c.Output
	}
	return strings.TrimSuffix(c.Output, c.Error.Text())
}

// Event is one thing that happened, as the event streams carry it. ID orders the
// events of one daemon; Last-Event-ID resumes after it.
type Event struct {
	ID      string          `json:"id"` // evt_…
	Type    string          `json:"type"`
	Time    time.Time       `json:"time"`
	Tenant  string          `json:"tenant,omitempty"`
	Session string          `json:"session_id,omitempty"`
	Call    string          `json:"call_id,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// The types of events. A call's own stream (Accept: text/event-stream on its
// creation) uses the short names: pending, running, metadata, output, completed,
// error; those of approvals keep theirs. The data of "output" is {offset, text} or, where the bytes are not
// UTF-8, {offset, base64}; output events are live only and are not stored.
const (
	EventSessionCreated = "session.created"
	EventSessionUpdated = "session.updated"
	EventSessionEnded   = "session.ended"
	EventSessionLost    = "session.lost"

	EventWorktreeApplied    = "worktree.applied"
	EventWorktreeDiscarded  = "worktree.discarded"
	EventWorktreeCheckpoint = "worktree.checkpoint"
	EventWorktreeRestored   = "worktree.restored"
	EventWorktreeForked     = "worktree.forked"
	EventWorktreeSource     = "worktree.source" // data: SourceSeen
	EventCallPending        = "call.pending"
	EventCallRunning        = "call.running"
	EventCallMetadata       = "call.metadata"
	EventCallOutput         = "call.output"
	EventCallCompleted      = "call.completed"
	EventCallError          = "call.error"
	EventFileEdited         = "file.edited"

	EventApprovalAsked   = "approval.asked"   // data: Approval
	EventApprovalReplied = "approval.replied" // data: ApprovalReply

	// Connections of sessions, and requests on them; data: NetworkRecord.
	EventNetworkAllowed = "network.allowed"
	EventNetworkDenied  = "network.denied"
	EventNetworkAsked   = "network.asked"
	EventNetworkLost    = "network.lost" // of more than could be stored; only NetworkRecord.LeftOut says something

	EventEnd = "end" // of what is on record, where only that was asked for; has no id
)

// List is how every list answers. Next is the cursor for ?after=, empty at the end.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}
