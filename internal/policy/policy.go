// Package policy decides what a call may do: pure functions from rules and
// requests to a verdict, without I/O and without a clock.
package policy

import "github.com/toold/toold/client"

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

// Set is the policy part of a configuration that was parsed, linted and tested.
// It is immutable.
type Set struct{}

// Default is the Set of an empty configuration: the built-in defaults and
// profiles.
func Default() *Set { return &Set{} }

// Profiles names the profiles that there are, sorted.
func (s *Set) Profiles() []string { return []string{"build"} }

// Stack gives what a session of that tenant with that profile is judged by. An
// unknown profile, or one that the tenant may not use, is an error that names
// those that it may.
func (s *Set) Stack(profile, tenant string) (*Stack, error) { return &Stack{}, nil }

// Stack is all that one session is judged by: the list, in which the last match
// wins, the ceilings, and the approvals that were saved. It is immutable; its
// patterns are compiled once.
type Stack struct{}

// With adds ceilings: the session's own rules, the worktree's.
func (s *Stack) With(c ...Ceiling) *Stack { return s }

// Remember adds approvals that were saved. They only ever turn ask into allow.
func (s *Stack) Remember(saved []Rule) *Stack { return s }

// Judge gives the verdict on a call with these requests: the strictest of them
// all. No request at all is allowed.
func (s *Stack) Judge(requests []Request) Verdict { return Verdict{Action: Allow, Rule: "default"} }

// Hidden reports whether nothing with this permission can ever be allowed: its
// last matching rule is a deny of everything. Such tools are not shown.
func (s *Stack) Hidden(permission string) bool { return false }

// Headless reports whether every ask is a denial (profile ci).
func (s *Stack) Headless() bool { return false }

// CheckRules makes rules of those that came with a session's creation.
func CheckRules(name string, rules []client.RuleOf) ([]Rule, error) { return nil, nil }

// ParseCeiling reads a worktree's rules file (.toold/policy.toml): [permission]
// and [[rule]] only, everything else is an error. The text is hostile.
func ParseCeiling(name string, text []byte) ([]Rule, error) { return nil, nil }

// Judge gives the verdict on a call with these requests.
func Judge([]Request) Verdict { return Verdict{Action: Allow, Rule: "default"} }
