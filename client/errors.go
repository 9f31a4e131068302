package client

import "fmt"

// Code says what kind of error it is. The set is closed.
type Code string

// The error codes of the API. CodeInvalidInput and CodeUnknownTool are those of calls
// and of questions about calls: a call that has one is on record.
const (
	CodeInvalidRequest  Code = "invalid_request"
	CodeInvalidInput    Code = "invalid_input"
	CodeUnknownTool     Code = "unknown_tool"
	CodeNotFound        Code = "not_found"
	CodeForbidden       Code = "forbidden"
	CodeDenied          Code = "denied"
	CodeApprovalTimeout Code = "approval_timeout"
	CodeStaleApproval   Code = "stale_approval"
	CodeStale           Code = "stale"
	CodeDoomLoop        Code = "doom_loop"
	CodeConflict        Code = "conflict"
	CodeQuotaExceeded   Code = "quota_exceeded"
	CodeOverloaded      Code = "overloaded"
	CodeSessionLost     Code = "session_lost"
	CodeSandboxFailed   Code = "sandbox_failed"
	CodeInvalidPath     Code = "invalid_path"
	CodeNotRegularFile  Code = "not_regular_file"
	CodeAborted         Code = "aborted"
	CodeInternal        Code = "internal"
)

// Error is what an API call failed with: what, which one, and what to do next.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Violations are the places of an input that break its schema, or the paths where
	// changes of a worktree conflict with its source.
	Violations []Violation `json:"violations,omitempty"`
	// Status is the HTTP status it came with; 0 inside a call's record.
	Status int `json:"-"`
}

// Violation is one place of an input that breaks its schema, or one path that conflicts.
type Violation struct {
	Path    string `json:"path"` // JSON pointer, "" is the whole input; of a conflict, the path in the worktree
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("%s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("%s: %s (%s)", e.Code, e.Message, e.Hint)
}

// Text is the error as a model reads it: the message and, on a line of its own,
// what to do next.
func (e *Error) Text() string {
	next := e.Hint
	if next == "" {
		next = nextSteps[e.Code]
	}
	if next == "" {
		return e.Message
	}
	return e.Message + "\n" + next
}

// nextSteps say what to do about an error that has no hint of its own.
var nextSteps = map[Code]string{
	CodeInvalidRequest:  "correct the request and send it again",
	CodeInvalidInput:    "correct the input and call again",
	CodeUnknownTool:     "use one of the tools that are offered",
	CodeNotFound:        "use a name or id from the list",
	CodeForbidden:       "leave it out, or ask somebody who may do it",
	CodeDenied:          "do it in another way, or leave it out; a user can change the rule",
	CodeApprovalTimeout: "go on without it, or try again when somebody is there to answer",
	CodeStaleApproval:   "look at the file again, then make the call again",
	CodeStale:           "read the file again, then make the call again",
	CodeDoomLoop:        "look at the answers so far and do something else",
	CodeConflict:        "look at the current state, then try again",
	CodeQuotaExceeded:   "use less, or end or remove something first",
	CodeOverloaded:      "wait a moment, then try again",
	CodeSessionLost:     "create another session",
	CodeSandboxFailed:   "make the call again; if it fails again, create another session",
	CodeInvalidPath:     "give a path that exists; a list of the directory above it shows which do",
	CodeNotRegularFile:  "name a regular file",
	CodeAborted:         "make the call again if it is still wanted",
	CodeInternal:        "try again; the daemon's log has the cause",
}

// Problem is an RFC 9457 problem document, the body of an answer that has no
// call to speak for it (Content-Type application/problem+json).
type Problem struct {
	Type       string      `json:"type"` // "about:blank"
	Title      string      `json:"title"`
	Status     int         `json:"status"`
	Detail     string      `json:"detail"`
	Code       Code        `json:"code"`
	Hint       string      `json:"hint,omitempty"`
	Violations []Violation `json:"violations,omitempty"`
	// IsError, which is true, and Output, the text for a model, are as in a Call:
	// who passes them on need not know which of the two the answer is.
	IsError bool   `json:"is_error"`
	Output  string `json:"output"`
}
