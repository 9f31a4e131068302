package client

import (
	"encoding/json"
	"time"
)

// PolicyExplain asks how a call would be judged.
type PolicyExplain struct {
	Tool    string          `json:"tool"`
	Input   json.RawMessage `json:"input"`
	Profile string          `json:"profile,omitempty"` // "" = the session's, else build
	Tenant  string          `json:"tenant,omitempty"`  // "" = the session's, else default
	Session string          `json:"session,omitempty"` // judged with its rules and saved approvals; paths are resolved in it
}

// PolicyMatch is one rule that matches a request.
type PolicyMatch struct {
	Layer      string `json:"layer"` // "rules", "tenant ci", "session", "worktree", "saved"
	Permission string `json:"permission"`
	Pattern    string `json:"pattern"`
	Action     string `json:"action"`
	Source     string `json:"source"` // file:line …
	Reason     string `json:"reason,omitempty"`
	Winner     bool   `json:"winner"` // of its layer
}

// PolicyRequest is one thing that the call would ask for, and how that is judged.
type PolicyRequest struct {
	Permission string        `json:"permission"`
	Pattern    string        `json:"pattern"`
	Path       string        `json:"path,omitempty"`
	Opaque     bool          `json:"opaque,omitempty"`
	Why        string        `json:"why,omitempty"` // why it is opaque, or where it comes from
	Save       string        `json:"save,omitempty"`
	Action     string        `json:"action"`
	Rule       string        `json:"rule"` // the deciding one's source
	Matches    []PolicyMatch `json:"matches"`
}

// PolicyVerdict is how a whole call would be judged.
type PolicyVerdict struct {
	Tool     string          `json:"tool"`
	Profile  string          `json:"profile"`
	Tenant   string          `json:"tenant"`
	Action   string          `json:"action"`
	Rule     string          `json:"rule"`
	Reason   string          `json:"reason,omitempty"`
	Requests []PolicyRequest `json:"requests"`
	Notes    []string        `json:"notes,omitempty"` // e.g. that paths were not resolved, for want of a session
}

// PolicyReplay judges recorded calls under another ruleset.
type PolicyReplay struct {
	Rules   string `json:"rules"`             // the text of a rules file
	Name    string `json:"name,omitempty"`    // its name, for messages
	Session string `json:"session,omitempty"` // only calls of this session
	Tenant  string `json:"tenant,omitempty"`
	Since   string `json:"since,omitempty"` // "24h": only calls not older
	Limit   int    `json:"limit,omitempty"` // at most so many calls, newest first; 0 = 10,000
}

// PolicyChange is a recorded call that the other ruleset judges differently.
type PolicyChange struct {
	CallID    string          `json:"call_id"`
	SessionID string          `json:"session_id"`
	Tool      string          `json:"tool"`
	Input     json.RawMessage `json:"input"`
	Time      time.Time       `json:"time"`
	Was       string          `json:"was"`
	WasRule   string          `json:"was_rule"`
	Now       string          `json:"now"`
	NowRule   string          `json:"now_rule"`
}

// PolicyReplayed is the answer to PolicyReplay.
type PolicyReplayed struct {
	Calls   int            `json:"calls"` // how many were judged
	Changes []PolicyChange `json:"changes"`
	Notes   []string       `json:"notes,omitempty"`
}

// RuleOf is a rule as a session's creation can carry it; such rules only narrow.
type RuleOf struct {
	Permission string `json:"permission"`
	Pattern    string `json:"pattern"`
	Action     string `json:"action"` // allow, ask, deny
}

// TenantUsage is what a tenant uses now and has used since the daemon began to
// keep count.
type TenantUsage struct {
	Tenant      string `json:"tenant"`
	Sessions    int    `json:"sessions"`
	Queued      int    `json:"queued"` // requests that wait for a session to end
	Calls       int    `json:"calls"`  // that have not ended
	CPUMillis   int64  `json:"cpu_ms"`
	MemoryBytes int64  `json:"memory_bytes"`
	DiskBytes   int64  `json:"disk_bytes"`   // kept outputs of live sessions
	LayerBytes  int64  `json:"layer_bytes"`  // writable layers of images of live sessions
	RecordBytes int64  `json:"record_bytes"` // records of its calls
	// WorktreeBytes is what its sessions changed in worktrees of mode "overlay", until that
	// is dropped. It may be a minute old.
	WorktreeBytes int64 `json:"worktree_bytes"`
	IOBytes       int64 `json:"io_bytes"`  // read from and written to block devices
	OOMKills      int64 `json:"oom_kills"` // processes that the kernel killed for memory

	// MoreSessions is how many sessions that ask for nothing may begin now, if each uses the memory,
	// the disk and the processes that it may, as those do that there are, and what the cgroup of the sessions
	// has too; MoreBound names what bounds that: "max_sessions", "memory", "disk" or "processes",
	// or says why none begins.
	MoreSessions int    `json:"more_sessions"`
	MoreBound    string `json:"more_bound"`

	// The most that it may have; none is any number.
	MaxSessions    int   `json:"max_sessions,omitempty"`
	MaxCalls       int   `json:"max_calls,omitempty"`
	MaxRecordBytes int64 `json:"max_record_bytes,omitempty"`
}
