package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// ending is how a command in a sandbox ended, from its call's metadata.
type ending struct {
	code     int    // -1 unless it exited by itself
	signal   int    // 0 unless a signal ended it
	reason   string // as in the API's metadata.reason
	duration time.Duration
	full     string // the place that was full, for the reason "disk"; "" = the host
	raise    string // the limit that gives it more room; "" = none does
	host     string // why it was ended for the host's memory, for the reason "memory"; "" = for its limit
}

func endingOf(c *client.Call) ending {
	e := ending{code: -1}
	if code, ok := c.Metadata["exit_code"].(float64); ok {
		e.code = int(code)
	}
	if name, ok := c.Metadata["signal"].(string); ok && name != "" {
		e.signal = int(unix.SignalNum(name))
	}
	if ms, ok := c.Metadata["duration_ms"].(float64); ok {
		e.duration = time.Duration(ms) * time.Millisecond
	}
	e.reason, _ = c.Metadata["reason"].(string)
	e.full, _ = c.Metadata["full"].(string)
	e.raise, _ = c.Metadata["raise"].(string)
	e.host, _ = c.Metadata["host"].(string)
	return e
}

// exitStatus is how toolctl exits in the command's place, and what there is to
// say about it; "" when the code says all.
func (e ending) exitStatus() (code int, message string) {
	switch e.reason {
	case "exit":
		if e.code >= 0 && e.code <= 255 {
			return e.code, ""
		}
	case "timeout":
		return exitRunTimeout, fmt.Sprintf("timed out after %s; give it longer with --timeout", e.duration.Round(time.Millisecond))
	case "session_ended", "lost":
		return exitRunFailed, "the session ended while the command ran"
	}
	switch {
	case e.signal > 0:
		return exitSignal + e.signal, e.killed()
	case e.code >= 0 && e.code <= 255:
		return e.code, e.killed()
	}
	return exitRunFailed, "it is not known how the command ended"
}

func (e ending) killed() string {
	switch e.reason {
	case "memory":
		if e.host != "" {
			return "stopped: " + line(e.host)
		}
		return "out of memory; raise it with --limit memory=SIZE"
	case "pids":
		return "too many processes; raise it with --limit pids=N"
	case "disk":
		return e.noRoom()
	case "output_limit":
		return "killed: more output than limits.output allows"
	case "aborted":
		return "aborted"
	}
	if e.signal > 0 {
		return "killed by " + unix.SignalName(unix.Signal(e.signal))
	}
	return ""
}

// noRoom says which limit gives more room to the place that was full.
func (e ending) noRoom() string {
	switch {
	case e.full == "":
		return "stopped: the disk of the host is nearly full; toolctl gc and toolctl usage show what takes space"
	case e.raise == "":
		return fmt.Sprintf("no space was left in %s: the disk of the host on which that directory lies is full; free space there", line(e.full))
	case strings.HasPrefix(e.raise, "["):
		return fmt.Sprintf("no space was left in %s; raise it with %s in config.toml", line(e.full), line(e.raise))
	}
	return fmt.Sprintf("no space was left in %s; raise it with --limit %s=SIZE", line(e.full), line(e.raise))
}

// errNoReason is for a call that says that it failed, and nothing else.
var errNoReason = errors.New("the call failed without a reason")

// sayRemarks shows what the daemon told the model about a command beside its output, which
// is what a stream has: that there is no network, which rule refused a connection, and the like.
func sayRemarks(a *app, c *client.Call) {
	notes, _ := c.Metadata["notes"].([]any)
	for _, n := range notes {
		if text, ok := n.(string); ok {
			a.say("%s", lines(text))
		}
	}
}

// commandResult is the exit of a call that ran a command: nil for code 0. ctx is
// what the caller was interrupted by, if it was.
func commandResult(ctx context.Context, a *app, c *client.Call) error {
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
	code, message := e.exitStatus()
	if message != "" {
		a.say("%s", message)
	}
	return exit(code)
}
