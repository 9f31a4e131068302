package main

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

// bashFlags are the flags of a command in a sandbox; run and exec have them both.
type bashFlags struct {
	timeout, workdir string
}

func (f *bashFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.timeout, "timeout", "", "stop the command after this `duration`, such as 90s (default: the session's limits.wall)")
	c.Flags().StringVarP(&f.workdir, "workdir", "w", "", "`directory` in the session to run in (default the worktree)")
}

// call is the call that runs argv.
func (f *bashFlags) call(a *app, argv []string) (client.CallCreate, error) {
	input := map[string]string{"command": shellQuote(argv)}
	if f.workdir != "" {
		input["workdir"] = f.workdir
	}
	b, _ := json.Marshal(input) // strings always marshal
	call := client.CallCreate{Tool: "bash", Input: b, Typed: a.typed()}
	var err error
	call.TimeoutMillis, err = millis("--timeout", f.timeout)
	return call, err
}

// millis reads a duration flag; "" is 0.
func millis(flag, value string) (int64, error) {
	d, err := parseDurationFlag(flag, value)
	if err != nil || value == "" {
		return 0, err
	}
	if ms := time.Duration(d).Milliseconds(); ms > 0 {
		return ms, nil
	}
	return 0, usagef("%s %s: it must be at least 1ms", flag, value)
}

// longestCall is how long a call may take in a session.
func longestCall(s *client.Session) time.Duration {
	if s.Limits.Wall > 0 {
		return time.Duration(s.Limits.Wall)
	}
	return 24 * time.Hour
}
