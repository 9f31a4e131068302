package client

import (
	"encoding/json"
	"time"
)

// Version says what is running.
type Version struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	GoVersion string `json:"go_version"`
	API       string `json:"api"` // "v1"
	// Ripgrep is the one that searches in sessions, such as "15.0.0, static"; of a daemon
	// only.
	Ripgrep string `json:"ripgrep,omitempty"`
	// MCPWait is how long an answer by MCP waits for its call; of a daemon only.
	MCPWait Duration `json:"mcp_wait,omitempty"`
}

// Health is the answer of /v1/health and /v1/ready.
type Health struct {
	Status  string   `json:"status"`            // ok | draining | starting | failing
	Reasons []string `json:"reasons,omitempty"` // why it is not ok
	// Warnings are what an administrator should see to though sessions and calls can be made.
	Warnings []string `json:"warnings,omitempty"`
}

// CheckStatus is the outcome of one doctor check.
type CheckStatus string

// The outcomes: it holds; it holds in a weaker form; it does not hold; it does
// not apply to this host (for instance a runtime that is not installed).
const (
	CheckOK   CheckStatus = "ok"
	CheckWarn CheckStatus = "warn"
	CheckFail CheckStatus = "fail"
	CheckNA   CheckStatus = "n/a"
)

// Check is one thing that doctor looked at.
type Check struct {
	Group  string      `json:"group"` // host | runtime | hardening | limit | defence | worktree
	Name   string      `json:"name"`  // e.g. "memory", "seccomp", "runc"
	Status CheckStatus `json:"status"`
	Detail string      `json:"detail"`           // what was seen
	Hint   string      `json:"hint,omitempty"`   // what to do about it
	Probed bool        `json:"probed,omitempty"` // seen in a throw-away session, not just configured
}

// Doctor is the report of /v1/doctor.
type Doctor struct {
	Checks []Check `json:"checks"`
}

// Garbage is one resource that gc found without an owner.
type Garbage struct {
	Kind    string `json:"kind"` // container, cgroup, bundle, mount, uid range, worktree, layer, output, records
	Name    string `json:"name"`
	Session string `json:"session_id,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"` // what it takes on the disk, where that is known
	Removed bool   `json:"removed"`
	Error   string `json:"error,omitempty"`
	// KeptUntil is set while it is kept, since its session is not on record: the
	// database is damaged, or an older copy. GCRequest.Unknown removes it before.
	KeptUntil *time.Time `json:"kept_until,omitempty"`
}

// GarbageRecords is the Kind of the records that GCRequest.Records asks for. Name is
// the tenant, and Bytes what was freed, or about what can be.
const GarbageRecords = "records"

// ToolDefinition is a tool as /v1/tools lists it, in the neutral format; other
// formats (anthropic, openai, openai-responses, gemini, mcp) answer with that provider's shape.
type ToolDefinition struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	ReadOnly    bool            `json:"read_only,omitempty"`   // it changes nothing
	Destructive bool            `json:"destructive,omitempty"` // it may overwrite or remove what is there
	Idempotent  bool            `json:"idempotent,omitempty"`  // the same call again changes nothing more
	OpenWorld   bool            `json:"open_world,omitempty"`  // it may reach beyond the session, where the network allows
	Command     bool            `json:"command,omitempty"`     // it runs a program; metadata.reason says how that ended
}

// ToolList is the set of tools of a session, or of a profile.
type ToolList struct {
	Items []ToolDefinition `json:"items"`
	// Revision is another one when the tools or their inputs are others; records of calls have
	// that of their session (tool_set).
	Revision string `json:"revision"`
	// Absent are the other tools, where they were asked for.
	Absent []AbsentTool `json:"absent,omitempty"`
}

// AbsentTool is a tool that is not offered, and why.
type AbsentTool struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// EventToolsChanged says that a session has other tools than before; data is ToolsChanged.
const EventToolsChanged = "tools.changed"

// ToolsChanged says which tools a session has got and lost.
type ToolsChanged struct {
	Revision string   `json:"revision"`
	Added    []string `json:"added"`
	Removed  []string `json:"removed"`
}
