// Package policy decides what a call may do: pure functions from rules and
// requests to a verdict, without I/O and without a clock.
package policy

// Action is what a verdict says is to be done.
type Action string

// The actions, from the mildest to the strictest.
const (
	Allow Action = "allow"
	Ask   Action = "ask"
	Deny  Action = "deny"
)

// Permissions that are no tool's. A rule for "*" does not match them.
const (
	PermissionDoomLoop = "doom_loop"
	PermissionExternal = "external_directory"
)

// Request is one thing that a call wants to do.
type Request struct {
	Permission string `json:"permission"` // e.g. "bash", "edit", "read"
	Pattern    string `json:"pattern"`    // what is shown: the command's text, the path, the URL …
	// Path is set for requests on files: absolute inside the sandbox, resolved.
	// Then rules match it, and Relative, instead of Pattern.
	Path string `json:"path,omitempty"`
	// Relative is Path relative to the worktree; "" outside of it.
	Relative string `json:"relative,omitempty"`
	// Opaque: Pattern is a whole text that cannot be judged by its parts. A rule
	// allows it only when its pattern is that very text, or "*".
	Opaque bool `json:"opaque,omitempty"`
	// Save is the pattern that an approval for always would allow; "" = none.
	Save string `json:"save,omitempty"`
}

// Rule is one line of a ruleset.
type Rule struct {
	Permission string `json:"permission"`
	Pattern    string `json:"pattern"`
	Action     Action `json:"action"`
	Reason     string `json:"reason,omitempty"`
	// Source says where it stands: "config.toml:12", "default", "profile plan",
	// "session rule 2", "/workspace/.toold/policy.toml:3", "approval apr_…".
	Source string `json:"source"`
}

// Verdict is how a whole call was judged: by the strictest of its requests.
type Verdict struct {
	Action  Action
	Rule    string // Source of the deciding rule
	Pattern string // permission and pattern of the deciding rule, e.g. `bash "git push *"`; "" where none matched
	Reason  string // of the deciding rule
	Request Request
	// Pending are the requests that need an approval, when Action is Ask.
	Pending []Request
}

// Ceiling is a list of rules that can only narrow: no match is no opinion.
type Ceiling struct {
	Name  string // "tenant ci-a", "session", "worktree"
	Rules []Rule
}

// Stack is all that one session is judged by. Get one from Set.Stack, and give
// it ceilings with With and saved approvals with Remember. It is immutable; its patterns are compiled once.
type Stack struct{}

// Judge gives the verdict on a call with these requests. No request at all is
// allowed.
func (s *Stack) Judge(requests []Request) Verdict { return Verdict{Action: Allow, Rule: "default"} }

// Judge gives the verdict on a call with these requests.
func Judge([]Request) Verdict { return Verdict{Action: Allow, Rule: "default"} }
