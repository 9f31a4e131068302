// Package policy decides what a call may do: pure functions from rules and
// requests to a verdict, without I/O and without a clock.
//
// Rulesets are not part of this version: Judge allows every request, and a
// configuration that has rules is refused instead of ignored.
package policy

// Action is what a verdict says is to be done.
type Action string

// The actions, from the mildest to the strictest.
const (
	Allow Action = "allow"
	Ask   Action = "ask"
	Deny  Action = "deny"
)

// Request is one thing that a call wants to do.
type Request struct {
	Permission string `json:"permission"` // e.g. "bash", "edit", "read"
	Pattern    string `json:"pattern"`    // the command's text, the path, the URL …
	// Path is set for requests on files: absolute inside the sandbox, resolved.
	Path string `json:"path,omitempty"`
}

// Verdict is how a whole call was judged.
type Verdict struct {
	Action Action
	Rule   string // where the deciding rule stands, file:line, or "default"
	Reason string
}

// Judge gives the verdict on a call with these requests.
func Judge([]Request) Verdict { return Verdict{Action: Allow, Rule: "default"} }
