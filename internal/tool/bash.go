package tool

import (
	_ "embed"
	"encoding/json"

	"github.com/toold/toold/client"
)

//go:embed bash.md
var bashDescription string

// maxBashTimeout is a week in milliseconds; what the configuration allows is
// less and is checked where the call is admitted.
const maxBashTimeout = 7 * 24 * 3600 * 1000

func bashTool() *Definition {
	return &Definition{
		Name:        "bash",
		Description: bashDescription,
		Streams:     true,
		Truncate:    truncateBoth,
		Access:      bashAccess,
		word:        bashWord,
		input: object(
			required("command", text(1, 0, "The command to run, as one bash script. It may have several lines.")),
			optional("description", text(0, 0, "What the command does, in five to ten words, for people who watch.")),
			optional("timeout", integer(1, maxBashTimeout, "Milliseconds after which the command is ended. The default is 120000 (two minutes).")),
			optional("workdir", text(0, maxPath, "The directory to run in, absolute or relative to the worktree. The default is the worktree. Use this instead of a leading cd.")),
		),
	}
}

// bashAccess asks for the command as it stands. A parsed command becomes one
// request for each of its simple commands.
func bashAccess(input json.RawMessage) Access {
	return Access{Requests: []Request{{Permission: "bash", Pattern: named(input, "command")["command"]}}}
}

func bashWord(v client.Violation) string {
	if v.Path == "/background" {
		return "background commands are not supported by this version: leave the key out, " +
			"and the call waits for the command within its timeout"
	}
	return ""
}
