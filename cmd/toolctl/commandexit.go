package main

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// ending is how a command in a sandbox ended, from its call's metadata.
type ending struct {
	code   int    // -1 unless it exited by itself
	signal int    // 0 unless a signal ended it
	reason string // as in the API's metadata.reason
}

func endingOf(c *client.Call) ending {
	e := ending{code: -1}
	if code, ok := c.Metadata["exit_code"].(float64); ok {
		e.code = int(code)
	}
	if name, ok := c.Metadata["signal"].(string); ok && name != "" {
		e.signal = int(unix.SignalNum(name))
	}
	e.reason, _ = c.Metadata["reason"].(string)
	return e
}

// errUnknownEnd is for a command whose call does not say how it ended.
var errUnknownEnd = errors.New("it is not known how the command ended")

// exit is how toolctl exits in the command's place.
func (e ending) exit() error {
	switch {
	case e.reason == "timeout":
		return exit(exitRunTimeout)
	case e.reason == "session_ended", e.reason == "lost":
		return exit(exitRunFailed)
	case e.signal > 0:
		return exit(exitSignal + e.signal)
	case e.code >= 0 && e.code <= 255:
		return exit(e.code)
	}
	return commandFailure(errUnknownEnd)
}

// errNoReason is for a call that says that it failed, and nothing else.
var errNoReason = errors.New("the call failed without a reason")

// remarks are what the daemon told the model about a command beside its output: why it ended and
// what to do, where its exit code does not say it, that there is no network, which rule refused a
// connection, and the like. All that shows a command to people takes them from here.
func remarks(c *client.Call) []string {
	var all []string
	notes, _ := c.Metadata["notes"].([]any)
	for _, n := range notes {
		if text, ok := n.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

// sayRemarks shows what is not in the output as it was streamed.
func sayRemarks(a *app, c *client.Call) {
	for _, text := range remarks(c) {
		a.say("%s", lines(text))
	}
}

// commandResult is the exit of a call that ran a command: nil for code 0. ctx is
// what the caller was interrupted by, if it was.
func commandResult(ctx context.Context, c *client.Call) error {
	if c.Status == client.CallError {
		if c.Error == nil {
			return commandFailure(errNoReason)
		}
		if cause := interruption(ctx); cause != nil && c.Error.Code == client.CodeAborted {
			return cause
		}
		return commandFailure(c.Error)
	}
	e := endingOf(c)
	if cause := interruption(ctx); cause != nil && e.reason == "aborted" {
		return cause
	}
	return e.exit()
}
