package client

import "fmt"

// Code says what kind of error it is. The set is closed.
type Code string

// The error codes of the API.
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
	// Violations are the places of an input that break its schema.
	Violations []Violation `json:"violations,omitempty"`
	// Status is the HTTP status it came with; 0 inside a call's record.
	Status int `json:"-"`
}

// Violation is one place of an input that breaks its schema.
type Violation struct {
	Path    string `json:"path"` // JSON pointer, "" is the whole input
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("%s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("%s: %s (%s)", e.Code, e.Message, e.Hint)
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
}
