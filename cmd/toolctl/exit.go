package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// The exit codes. Commands that stand for a command in a sandbox (run, call
// SESSION bash) exit with its code and use the second set for what is not its own.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitDenied      = 3
	exitNotFound    = 4
	exitTimeout     = 5
	exitUnreachable = 6

	exitRunTimeout = 124
	exitRunFailed  = 125 // toold or toolctl failed, not the command
	exitRunDenied  = 126
	exitSignal     = 128 // plus the signal's number
)

// exitError is an error whose exit code is decided. err may be nil: there is
// nothing to say that was not said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exit is the error that ends toolctl with code and no message.
func exit(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// missingError says that there is no such thing where toolctl finds that by itself. It
// ends toolctl as the daemon's not_found does.
type missingError struct{ what, hint string }

func (e *missingError) Error() string { return e.what }

func usageError(err error) error { return &exitError{exitUsage, err} }

func usagef(format string, args ...any) error { return usageError(fmt.Errorf(format, args...)) }

// exitCode says how toolctl exits after err.
func exitCode(err error) int {
	var decided *exitError
	var answered *client.Error
	var missing *missingError
	var elsewhere *elsewhereError
	var stopped *interruptedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &decided):
		return decided.code
	case errors.As(err, &stopped):
		return exitSignal + int(stopped.signal)
	case errors.Is(err, syscall.EPIPE):
		return exitSignal + int(syscall.SIGPIPE)
	case errors.As(err, &answered):
		return codeOfAnswer(answered.Code)
	case errors.As(err, &missing), errors.As(err, &elsewhere):
		return exitNotFound
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case isUnreachable(err):
		return exitUnreachable
	}
	return exitFailed
}

func codeOfAnswer(c client.Code) int {
	switch c {
	case client.CodeDenied, client.CodeForbidden, client.CodeApprovalTimeout, client.CodeDoomLoop:
		return exitDenied
	case client.CodeNotFound, client.CodeUnknownTool:
		return exitNotFound
	case client.CodeInvalidRequest, client.CodeInvalidInput:
		return exitUsage
	}
	return exitFailed
}

// commandFailure is err as the failure of a command that stands for one in a
// sandbox: 126 when it was denied, 125 for all else that kept it from running.
func commandFailure(err error) error {
	var decided *exitError
	switch code := exitCode(err); {
	case code == exitOK || code > exitSignal || errors.As(err, &decided):
		return err
	case code == exitDenied:
		return &exitError{exitRunDenied, err}
	}
	return &exitError{exitRunFailed, err}
}

// isUnreachable reports whether err means that there is no daemon to talk to.
func isUnreachable(err error) bool {
	var e *client.UnreachableError
	return errors.As(err, &e) || errors.Is(err, client.ErrDisconnected)
}

// complain prints err and what to do about it.
func (a *app) complain(err error) {
	if decided := (*exitError)(nil); errors.As(err, &decided) && decided.err == nil {
		return
	}
	if stopped := (*interruptedError)(nil); errors.As(err, &stopped) || errors.Is(err, syscall.EPIPE) {
		return // who did it knows
	}
	var answered *client.Error
	var missing *missingError
	defer func() { a.next(a.again) }()
	switch {
	case errors.As(err, &answered):
		a.complainAnswer(err, answered)
	case errors.As(err, &missing):
		a.say("%s", lines(err.Error()))
		a.next(missing.hint)
	case isUnreachable(err):
		a.complainUnreachable(err)
	default:
		a.say("%s", lines(err.Error()))
		if here, wderr := os.Getwd(); errors.Is(err, fs.ErrNotExist) && wderr == nil {
			a.next("name a file or directory that is there; relative paths begin at " + here)
		}
		if errors.Is(err, fs.ErrPermission) {
			a.next("run toolctl as a user who may, such as root, or name another place")
		}
	}
}

func (a *app) complainAnswer(err error, e *client.Error) {
	what := strings.TrimSuffix(err.Error(), e.Error()) // the context it was wrapped in
	a.say("%s%s", line(what), lines(e.Message))
	sayViolations(a, e)
	a.next(e.Hint)
}

// sayViolations names the places that the message has not named with what is wrong there. That of an
// input names all of them, for models, which read nothing else; that of a conflict the first.
func sayViolations(a *app, e *client.Error) {
	said, unsaid := e.Message, 0
	for _, v := range e.Violations {
		if v.Message == e.Message {
			continue // the field is for programs: the message has it in words
		}
		form := v.Path + ": " + v.Message
		if !strings.Contains(said, form) {
			form = strings.TrimPrefix(v.Path+" "+v.Message, " ")
		}
		if before, after, is := strings.Cut(said, form); is {
			said = before + after // it says no other one too
			continue
		}
		if unsaid++; unsaid <= maxNamed {
			a.say("  %s: %s", line(cmp.Or(v.Path, "input")), line(v.Message))
		}
	}
	if more := unsaid - maxNamed; more > 0 {
		a.say("  and %d more, which -o json lists", more)
	}
}

// next prints what to do about an error, where that is known.
func (a *app) next(hint string) {
	if hint != "" {
		a.say("  %s", lines(hint))
	}
}

// cutOffError is a request that the daemon went away in, with what to do about this one.
type cutOffError struct {
	error
	next string
}

func (e *cutOffError) Unwrap() error { return e.error }

func (a *app) complainUnreachable(err error) {
	var e *client.UnreachableError
	reached := !errors.As(err, &e)
	if reached {
		a.say("%s", lines(err.Error()))
	} else {
		a.say("cannot reach toold at %s: %s", line(e.Socket), line(plain.Cause(e.Err)))
	}
	switch {
	case a.private:
		a.say("  the private toold of this command has ended, and its session with it; what was not applied is lost: run it again")
	case reached:
		next := "a call that was running goes on and stays readable (toolctl session logs)"
		if cut, is := errors.AsType[*cutOffError](err); is {
			next = cut.next
		}
		a.say("  see \"systemctl status toold\"; %s", next)
	case errors.Is(err, fs.ErrPermission):
		a.next(admission(e.Socket))
	default:
		for _, step := range hereOf(a).start() {
			a.next(step)
		}
	}
}

// say prints a text of toolctl's own on standard error.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.stderr, fold(fmt.Sprintf("toolctl: "+format, args...), a.errWidth(), "toolctl:   "))
}

// interruptedError is a signal that asked toolctl to end.
type interruptedError struct{ signal syscall.Signal }

func (e *interruptedError) Error() string { return "stopped by " + e.signal.String() }

// interruption is the signal that ended ctx, or nil.
func interruption(ctx context.Context) error {
	if stopped, ok := errors.AsType[*interruptedError](context.Cause(ctx)); ok {
		return stopped
	}
	return nil
}

// forEach does something with each of refs, and goes on after a failure; the last one
// decides the exit code, the others are printed.
func (a *app) forEach(refs []string, do func(ref string) error) (failed error) {
	for _, ref := range refs {
		err := do(ref)
		if err != nil && failed != nil {
			a.complain(failed)
		}
		failed = cmp.Or(err, failed)
	}
	return failed
}

// done says what has become of something, with -o too.
func (a *app) done(name, how string) error {
	_, err := fmt.Fprintf(a.stdout, "%s is %s\n", line(name), how)
	return err
}
