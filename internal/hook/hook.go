// Package hook runs the programs of the host that the configuration names, [[hook]] and
// the one that answers approvals, and reads what they say.
//
// A program gets JSON on its standard input and nothing of the daemon's: no
// environment, no files, a process group that is killed. Only a well-formed answer
// counts. When hooks run, and what their answers do to a call, is decided elsewhere.
package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
)

// The moments at which hooks run.
const (
	CallBefore     = "call.before"
	CallAfter      = "call.after"
	SessionCreated = "session.created"
	SessionEnded   = "session.ended"
	FileEdited     = "file.edited" // a formatter: it runs in the sandbox, not by Run
)

// Hook is one [[hook]].
type Hook struct {
	On       string
	Command  []string
	Match    map[string]string // tool, tenant, profile, path …: wildcards; all must match
	Timeout  time.Duration
	FailOpen bool
}

// Version is the version of the form of an Event: it changes when a program that
// was written for it would have to change.
const Version = 1

// Event is what a hook reads on its standard input, as JSON.
type Event struct {
	Version int       `json:"version"`
	Event   string    `json:"event"`
	Time    time.Time `json:"time"`
	Session Session   `json:"session"`
	Call    *Call     `json:"call,omitempty"`
	Result  *Result   `json:"result,omitempty"` // call.after
}

// Session is what a hook is told of the session.
type Session struct {
	ID       string              `json:"id"`
	Name     string              `json:"name,omitempty"`
	Tenant   string              `json:"tenant"`
	Profile  string              `json:"profile"`
	OwnerUID uint32              `json:"owner_uid"`
	State    client.SessionState `json:"state"`
	Reason   string              `json:"reason,omitempty"`
	Labels   map[string]string   `json:"labels,omitempty"`
	Worktree client.Worktree     `json:"worktree"`
}

// Call is what a hook is told of the call.
type Call struct {
	ID         string                 `json:"id"`
	Key        string                 `json:"key,omitempty"`
	Tool       string                 `json:"tool"`
	Input      json.RawMessage        `json:"input"` // normalised
	MessageID  string                 `json:"message_id,omitempty"`
	Agent      string                 `json:"agent,omitempty"`
	Model      string                 `json:"model,omitempty"`
	Extra      json.RawMessage        `json:"extra,omitempty"`
	Permission *client.CallPermission `json:"permission,omitempty"`
}

// Result is how a call ended, for the hooks of CallAfter.
type Result struct {
	Status   client.CallStatus `json:"status"`
	Title    string            `json:"title"`
	Output   string            `json:"output"`
	IsError  bool              `json:"is_error"`
	Error    *client.Error     `json:"error,omitempty"`
	Metadata map[string]any    `json:"metadata,omitempty"`
	Usage    client.CallUsage  `json:"usage"`
}

// About is what a hook's match is compared with; "" where there is none.
type About struct {
	Tool, Tenant, Profile string
	Path, Relative        string // of a file that was edited; Relative to the worktree
}

// About is what is known of it by the event alone.
func (e *Event) About() About {
	a := About{Tenant: e.Session.Tenant, Profile: e.Session.Profile}
	if e.Call != nil {
		a.Tool = e.Call.Tool
	}
	return a
}

// For gives those of all hooks that run at that moment and match, in their order.
func For(all []Hook, on string, a About) []*Hook {
	var found []*Hook
	for i := range all {
		if all[i].On == on && all[i].Matches(a) {
			found = append(found, &all[i])
		}
	}
	return found
}

// Matches reports whether all that the hook names is so. What it names and
// nobody knows is taken to be so: a hook that should have run must run.
func (h *Hook) Matches(a About) bool {
	for key, pattern := range h.Match {
		so := true
		switch key {
		case "tool":
			so = policy.Match(pattern, a.Tool)
		case "tenant":
			so = policy.Match(pattern, a.Tenant)
		case "profile":
			so = policy.Match(pattern, a.Profile)
		case "path":
			so = policy.MatchPath(pattern, a.Path) || a.Relative != "" && policy.MatchPath(pattern, a.Relative)
		}
		if !so {
			return false
		}
	}
	return true
}

// Name is what the hook is called in messages and in the audit log.
func (h *Hook) Name() string { return programName(h.Command) }

// Failed is an error of the hook; what is for people and models.
func (h *Hook) Failed(what string) *Error { return &Error{program: h.Name(), what: what} }

// Run runs the hook's program on the host and reads its answer. The error is an *Error, or
// the cause for which ctx ended.
func (h *Hook) Run(ctx context.Context, e *Event) (*Answer, error) {
	stdin, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event for hook %s: %w", h.Name(), err)
	}
	out, err := Run(ctx, h.Command, stdin, h.Timeout)
	if err != nil {
		return nil, err
	}
	a, err := readAnswer(h.On, out)
	if err != nil {
		return nil, h.Failed("gave an invalid answer: " + err.Error())
	}
	return a, nil
}
