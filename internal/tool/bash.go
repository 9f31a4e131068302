package tool

import (
	_ "embed"
	"encoding/json"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool/shell"
)

//go:embed bash.md
var bashDescription string

// MaxStdin is the most that a command is given to read, in characters; the agent
// looks at the bytes.
const MaxStdin = 1 << 20

func bashTool() *Definition {
	return &Definition{
		Name:        "bash",
		Description: bashDescription,
		Streams:     true,
		Truncate:    truncateBoth,
		Access:      bashAccess,
		near:        bashNear,
		word:        bashWord,
		paths:       []string{"workdir"},
		fields:      bashFields,
		input: object(
			required("command", text(1, 0, "The command to run, as one bash script. It may have several lines.")),
			optional("description", text(0, 0, "What the command does, in five to ten words, for people who watch.")),
			optional("timeout", integer(1, maxCount, "Milliseconds after which the command is ended.")),
			optional("workdir", text(0, maxPath, "The directory to run in, absolute or relative to the worktree. The default is the worktree. Use this instead of a leading cd.")),
			optional("stdin", text(0, MaxStdin, "Text for a command that reads its standard input. Without it there is none.")),
		),
	}
}

// home is what "~" is in the shells of a session.
const home = "/home/tool"

// bashAccess asks for each command that the text would run, for an edit of each
// file that a redirection writes, and for each path that is named, in case that
// it leads out of the session's own places. A text that does not say all it
// would do is asked for as a whole too.
func bashAccess(input json.RawMessage, reader []string) Access {
	in := named(input, "command", "workdir", "stdin", "description")
	command, workdir, stdin := in["command"], in["workdir"], in["stdin"]
	scan := shell.Scan(command, shell.Options{Workdir: workdir, Home: home, Shell: reader})

	var a accessBuilder
	if scan.Opaque {
		a.add(Request{Permission: "bash", Pattern: command, Opaque: true, Why: scan.Why})
	}
	if stdin != "" {
		// A shell or an interpreter would run it, and which programs are such is not
		// known: what is judged as a whole is the command with it.
		a.add(Request{Permission: "bash", Pattern: command + " <<STDIN\n" + stdin, Opaque: true, Why: "it is given standard input, which it may run"})
	}
	for _, c := range scan.Commands {
		if scan.Opaque || stdin != "" {
			c.Save = ""
		}
		a.add(Request{Permission: "bash", Pattern: c.Text, Save: c.Save})
	}
	for _, p := range scan.Writes {
		a.add(Request{Permission: "edit", Pattern: p.Text, Path: p.Name, Write: true})
		a.add(Request{Permission: externalDirectory, Pattern: p.Text, Path: p.Name, Write: true, Outside: true})
	}
	if workdir != "" {
		// Paths are relative to where the command starts, so this is that place.
		a.add(Request{Permission: externalDirectory, Pattern: workdir, Path: ".", Outside: true})
	}
	for _, p := range scan.Paths {
		a.add(Request{Permission: externalDirectory, Pattern: p.Text, Path: p.Name, Outside: true})
	}
	access := a.access()
	access.Title, access.Command, access.Stdin = in["description"], command, stdin != ""
	return access
}

// bashNear leaves out what does not change what runs: the description, the
// timeout, comments, white space, the style of quotes.
func bashNear(input json.RawMessage) json.RawMessage {
	in := named(input, "command", "workdir", "stdin")
	near, err := json.Marshal([]string{shell.Canonical(in["command"]), in["workdir"], in["stdin"]})
	if err != nil {
		return input // strings can always be marshalled
	}
	return near
}

func bashWord(v client.Violation) string {
	if v.Path == "/background" {
		return "background commands are not supported by this version: leave the key out, " +
			"and the call waits for the command within its timeout"
	}
	return ""
}
