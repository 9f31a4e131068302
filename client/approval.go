package client

import "time"

// Answer is what an approver says to a pending approval.
type Answer string

// The answers. Once lets this call run, always also saves a rule, reject denies.
const (
	AnswerOnce   Answer = "once"
	AnswerAlways Answer = "always"
	AnswerReject Answer = "reject"
)

// Scope is how far a saved approval reaches.
type Scope string

// The scopes: this session, all sessions of the tenant with this profile, all
// sessions of the tenant.
const (
	ScopeSession Scope = "session"
	ScopeProfile Scope = "profile"
	ScopeTenant  Scope = "tenant"
)

// ApprovalRequest is one thing that a pending call wants to do and that needs a
// yes.
type ApprovalRequest struct {
	Permission string `json:"permission"`
	Pattern    string `json:"pattern"` // the command, path … as policy judged it, not escaped
	Rule       string `json:"rule"`    // where the rule that asks stands
	Reason     string `json:"reason,omitempty"`
	// Save is the pattern that "always" would allow; "" = it cannot be saved.
	Save string `json:"save,omitempty"`
}

// Approval is a call that waits for somebody to allow it.
type Approval struct {
	ID        string            `json:"id"` // apr_…
	Tenant    string            `json:"tenant"`
	SessionID string            `json:"session_id"`
	CallID    string            `json:"call_id"`
	Profile   string            `json:"profile"`
	Tool      string            `json:"tool"`
	Requests  []ApprovalRequest `json:"requests"`
	// Metadata has what a person wants to see: "command", "diff", "workdir",
	// "truncated" … Text in it is escaped: control, bidi and look-alike
	// characters are made visible. The whole input is in the call.
	Metadata map[string]any `json:"metadata"`
	SHA256   string         `json:"sha256"` // of the exact normalised input
	// SelfApprove: who made the call may answer as well ([approvals] self_approve).
	SelfApprove bool `json:"self_approve,omitempty"`
	// SelfOnce: the process that made the call may answer "once" or "reject", from its terminal:
	// an admin has made it there, not an agent.
	SelfOnce bool      `json:"self_once,omitempty"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`
	// Reply is how it was answered; absent while it is pending.
	Reply *ApprovalReply `json:"reply,omitempty"`
}

// ApprovalAnswer answers an approval.
type ApprovalAnswer struct {
	Answer  Answer `json:"answer"`
	Scope   Scope  `json:"scope,omitempty"`   // of always; "" = session
	Expires string `json:"expires,omitempty"` // of always: how long it holds, "12h"; "" = as long as the scope lives
	Message string `json:"message,omitempty"` // of reject: goes back to the model
	// SHA256, when given, must be that of the approval that was looked at.
	SHA256 string `json:"sha256,omitempty"`
}

// SavedApproval is a rule that an approver has saved with "always".
type SavedApproval struct {
	ID         string     `json:"id"` // apr_… of the approval that it came from, and a number
	Tenant     string     `json:"tenant"`
	Scope      Scope      `json:"scope"`
	SessionID  string     `json:"session_id,omitempty"` // of scope session
	Profile    string     `json:"profile,omitempty"`    // of scope profile
	Permission string     `json:"permission"`
	Pattern    string     `json:"pattern"`
	By         string     `json:"by"`   // who, e.g. "uid 0"
	Rule       string     `json:"rule"` // the rule that asked
	Created    time.Time  `json:"created"`
	Expires    *time.Time `json:"expires,omitempty"`
}
