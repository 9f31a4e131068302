// Package record is the form of the audit log: what a record says, how one is
// written as a line, and how a log is checked. The daemon writes by it and
// toolctl reads by it, so it stands on the standard library alone.
//
// # The form
//
// A log is one or more files of lines; each line is one record, one JSON object
// in ASCII alone: every other character, and every control character, is
// written as a \u escape. Whatever a command or a file name holds, it cannot end
// a line, hide in a terminal or look like another record.
//
//	{"seq":8,"prev":"<hash of record 7>",…,"hash":"<hash of this one>"}
//
// The first member is seq, the number of the record: 1, 2, 3, … over all files
// of a log. The second is prev, the hash of the record before, 64 zeros for the
// first. The last is hash: the SHA-256, in lower-case hexadecimal, of the bytes
// of the line from its first one up to, but not including, the comma before
// "hash". Since these bytes hold prev, each hash depends on all records before.
//
// # What that proves
//
// Nobody can change, remove, insert or reorder records in the middle of a log
// without it being seen. Who may write the file can still write the whole of it
// anew, or cut off its end: the chain has no key. Against that, keep the number
// and hash of a record in another place (the daemon's own log has those of each
// start, rotation and stop) and ask Verifier whether the log still has it.
package record

import (
	"encoding/json"
	"time"
)

// Genesis is the prev of the first record of a log.
const Genesis = "0000000000000000000000000000000000000000000000000000000000000000"

// MaxLine is the longest line that is written or read, in bytes.
const MaxLine = 8 << 20

// MaxInput is the longest input, in bytes of JSON, that a record holds where
// inputs are recorded at all. Of a longer one there is its length and hash; the
// store has the text. Escaped it stays below MaxLine.
const MaxInput = 1 << 20

// Kind says what a record is about.
type Kind string

// The kinds of records.
const (
	// KindDecision: a call was judged. It is written before the call runs.
	KindDecision Kind = "decision"
	// KindFinished: a call ended. A daemon that is killed just then may leave
	// two of them for one call; none is missing.
	KindFinished Kind = "finished"
	// KindWorktree: somebody decides what becomes of the changes in a worktree of mode
	// overlay. It is written before that is done, which may fail.
	KindWorktree Kind = "worktree"
	// KindCache: somebody decides what later sessions of a tenant find in a cache. It is
	// written before that is done, which may fail.
	KindCache Kind = "cache"
	// KindAdmin: an admin does something with the daemon itself. It is written before that is
	// done, which may fail.
	KindAdmin Kind = "admin"
	// KindTorn: the file ended in the middle of a line, as the death of a
	// machine leaves it. What was there is in Torn.
	KindTorn Kind = "torn"
	// KindGap: there was a time in which nothing could be written. Gap says how
	// much is missing.
	KindGap Kind = "gap"
	// KindTampered: a file was removed, replaced, cut or written to by another, while the
	// daemon had it open or while none ran. Tampered says what was found.
	KindTampered Kind = "tampered"
)

// Record is one line of the log.
type Record struct {
	Seq  uint64 `json:"seq"`
	Prev string `json:"prev"`
	Body
	Hash string `json:"hash"`
}

// Body is what a record says. Everything in it was seen by the daemon itself,
// but for what stands in AgentReported and Caller.
type Body struct {
	Time    time.Time `json:"time"`
	Kind    Kind      `json:"kind"`
	Tenant  string    `json:"tenant,omitempty"`
	Peer    *Peer     `json:"peer,omitempty"` // who made the call; absent where no process is known any more
	Session string    `json:"session,omitempty"`
	Call    string    `json:"call,omitempty"`
	Tool    string    `json:"tool,omitempty"`
	Profile string    `json:"profile,omitempty"`
	// InputHash is the SHA-256 of the normalised input, in hexadecimal.
	InputHash string `json:"input_hash,omitempty"`
	// Verdict is allow, ask or deny, Rule where the rule stands that decided
	// (file:line), Reason that rule's, an approver's or a hook's words.
	Verdict string `json:"verdict,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Provided: the verdict holds if the call's paths lead where they say. Where
	// the agent found that they do not, it did nothing, and a decision about where
	// they do lead follows.
	Provided bool   `json:"provided,omitempty"`
	Approver string `json:"approver,omitempty"` // who or what decided besides the rules
	Approval string `json:"approval,omitempty"` // its id
	// Requests are the permissions that the call needed, each with its own
	// action and rule. What they were asked for is part of the input.
	Requests []Request `json:"requests,omitempty"`
	// RequestsMore is how many more there were than are listed.
	RequestsMore int `json:"requests_more,omitempty"`
	// Input is there only where the configuration says so; InputBytes is the
	// length of one that is too long for a record.
	Input      json.RawMessage `json:"input,omitempty"`
	InputBytes int             `json:"input_bytes,omitempty"`

	Status string `json:"status,omitempty"` // completed or error
	Code   string `json:"code,omitempty"`   // why a call did not run, or has no result
	Times
	// OutputHash is the SHA-256 of the whole output as far as it was kept.
	OutputHash string `json:"output_hash,omitempty"`

	Act
	AgentReported *AgentReported `json:"agent_reported,omitempty"`
	Caller        *Caller        `json:"caller_reported,omitempty"`
	Torn          *Torn          `json:"torn,omitempty"`
	Gap           *Gap           `json:"gap,omitempty"`
	Tampered      *Tampered      `json:"tampered,omitempty"`
}

// Act is what somebody is about to do, where that is no call: one of these.
type Act struct {
	Worktree *Worktree `json:"worktree,omitempty"`
	Cache    *Cache    `json:"cache,omitempty"`
	Admin    *Admin    `json:"admin,omitempty"`
}

// Times are those of a call that ended.
type Times struct {
	Queued  *time.Time `json:"queued,omitempty"`
	Started *time.Time `json:"started,omitempty"`
	Ended   *time.Time `json:"ended,omitempty"`
}

// Peer is the process on the other end of the socket, as the kernel named it.
type Peer struct {
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	PID     int32  `json:"pid"`
	Token   bool   `json:"token,omitempty"`    // it came with its session's token
	AsAdmin bool   `json:"as_admin,omitempty"` // it may act for all tenants
}

// Request is one permission of a decision.
type Request struct {
	Permission string `json:"permission"`
	Action     string `json:"action"`
	Rule       string `json:"rule,omitempty"`
}

// Worktree is what somebody is about to do with the changes of a session.
type Worktree struct {
	// Operation is apply, discard, checkpoint, restore, fork or drop_checkpoint.
	Operation string `json:"operation"`
	// Checkpoint is the id of the one that is gone back to, forked from or removed.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Name is that of a checkpoint which is made; "" has none.
	Name string `json:"name,omitempty"`
	// Paths is how many were named; 0 is all of them.
	Paths int `json:"paths,omitempty"`
	// What apply may do besides.
	Force            bool `json:"force,omitempty"`
	Merge            bool `json:"merge,omitempty"`
	IncludeSensitive bool `json:"include_sensitive,omitempty"`
}

// Cache is what somebody is about to do with a cache.
type Cache struct {
	Operation string `json:"operation"` // promote or remove
	Name      string `json:"name"`
}

// Admin is what an admin is about to do with the daemon itself.
type Admin struct {
	Operation string `json:"operation"` // drain or undrain
}

// AgentReported is what the process inside of the sandbox says: it sits with
// the tools, so this is testimony and no measurement of the daemon's own.
type AgentReported struct {
	Bill    Bill   `json:"bill"`
	IsError bool   `json:"is_error,omitempty"`
	Reason  string `json:"reason,omitempty"` // what ended the program
	Exit    *int64 `json:"exit_code,omitempty"`
}

// Bill is what a call used.
type Bill struct {
	CPUMillis      int64 `json:"cpu_ms"`
	MaxMemoryBytes int64 `json:"max_memory_bytes"`
	IOBytes        int64 `json:"io_bytes"`
	DurationMillis int64 `json:"duration_ms"`
}

// Caller is what the client says about its call; nobody checks it.
type Caller struct {
	Key       string          `json:"key,omitempty"`
	MessageID string          `json:"message_id,omitempty"`
	Agent     string          `json:"agent,omitempty"`
	Model     string          `json:"model,omitempty"`
	Extra     json.RawMessage `json:"extra,omitempty"`
	Typed     bool            `json:"typed,omitempty"` // by a person at a terminal
}

// MaxTorn is how many bytes of a torn line its record holds.
const MaxTorn = 4 << 10

// Torn is the rest of a line that a file ended with.
type Torn struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // of all of them
	Start  []byte `json:"start"`  // the first MaxTorn of them; base64 in JSON
}

// Tampered is how the log was found that a daemon has, or had, open. The records up to the
// last one were in it.
type Tampered struct {
	What       string `json:"what"`
	LastRecord uint64 `json:"last_record"`
	LastHash   string `json:"last_hash"`
}

// Gap is what could not be written.
type Gap struct {
	Since   time.Time `json:"since"`
	Refused uint64    `json:"refused"` // decisions that were not written; their calls did not run
	Lost    uint64    `json:"lost"`    // records of calls that ran, beyond what was held in memory
	Error   string    `json:"error"`   // the first one
}
