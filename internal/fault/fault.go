// Package fault has the errors that those who asked can do something about: of which
// kind they are, what is wrong, and what to do next. Package server makes the API's
// errors of them; an error that is none of these is a failure of the daemon's own, of
// which the API tells nothing but a reference to the log.
package fault

import (
	"errors"
	"fmt"
	"strings"
)

// Kind says why something is not done. It is an error itself, so that who acts on one
// can ask errors.Is(err, fault.NotFound). Its text is the API's word for it, which logs
// and the reasons of sessions have too.
//
// To add one: a constant here, and a line in the test of package server which holds kinds
// and the API's codes together.
type Kind string

// The kinds of errors.
const (
	Invalid    Kind = "invalid_request" // it asks for something that cannot be
	BadPath    Kind = "invalid_path"    // a path leads to nothing that can be used
	NotFound   Kind = "not_found"       // or it is not to be known of
	Forbidden  Kind = "forbidden"       // others may ask for it
	Conflict   Kind = "conflict"        // something else is in its way
	Quota      Kind = "quota_exceeded"  // who asks has all that they may have
	Overloaded Kind = "overloaded"      // the daemon cannot do it now
	Over       Kind = "session_lost"    // the session that it was asked of has ended
	Aborted    Kind = "aborted"         // it was asked for, and given up before it was done
	Sandbox    Kind = "sandbox_failed"  // no sandbox could be made or used

	Denied        Kind = "denied"           // a rule, a hook or a person does not allow it
	Loop          Kind = "doom_loop"        // it was tried again and again
	Unanswered    Kind = "approval_timeout" // nobody said in time whether it may be done
	StaleApproval Kind = "stale_approval"   // what was allowed is not what is there now
	Stale         Kind = "stale"            // a file is not what it was when it was looked at
	Input         Kind = "invalid_input"    // a tool does not take it
	NoTool        Kind = "unknown_tool"     // the session has no such tool
	NotFile       Kind = "not_regular_file" // it is no file that can be read or written

	Internal Kind = "internal" // the daemon's own failure, which is logged
)

// Error implements error.
func (k Kind) Error() string { return string(k) }

// Errorf makes an error of the kind. The text says what is wrong, and with which one; as
// for fmt.Errorf, %w keeps the cause.
func (k Kind) Errorf(format string, args ...any) *Error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// Error is why something is not done.
type Error struct {
	Kind Kind
	Err  error  // what is wrong: its text is the message that is shown
	Hint string // what to do next; "" where the kind says that, or the message
	// Places are where: paths, or one field of a request; those who make it bound them.
	Places []Place
}

// Place is one of the places where something is wrong, such as a file that is in the way, or a field.
type Place struct{ Path, Message string }

// Next sets the hint of an error that was just made, and returns it.
func (e *Error) Next(hint string) *Error {
	e.Hint = hint
	return e
}

// At sets the places of an error that was just made, and returns it.
func (e *Error) At(places []Place) *Error {
	e.Places = places
	return e
}

// In gives err, and where that is an *Error without a place the field of a request's body that it is about: names from
// the top of it on, as they are, which make a JSON pointer.
func In(err error, field ...string) error {
	if e, ok := errors.AsType[*Error](err); ok && len(e.Places) == 0 {
		var pointer strings.Builder
		for _, name := range field {
			pointer.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
		}
		e.Places = []Place{{pointer.String(), e.Err.Error()}}
	}
	return err
}

// Error implements error.
func (e *Error) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("%s: %s", e.Kind, e.Err)
	}
	return fmt.Sprintf("%s: %s (%s)", e.Kind, e.Err, e.Hint)
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }
