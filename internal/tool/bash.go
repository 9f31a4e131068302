package tool

import (
	_ "embed"
	"encoding/json"
	"path"
	"strings"

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
		alike:       []string{"terminal", "sh"},
		Traits:      Traits{Destructive: true, OpenWorld: true, Command: true},
		also: aliases{
			tools: []string{
				"shell", "localshell", "containerexec", "execcommand", "runshellcommand", "runterminalcmd", "runcommand", "executecommand",
				"shellcommand", "container.exec", "runinterminal", "developershell",
			},
			fields: map[string]string{
				"cmd": "command", "directory": "workdir", "dir_path": "workdir", "cwd": "workdir", "timeout_ms": "timeout",
				"with_escalated_permissions": "", "sandbox_permissions": "", "dangerouslyDisableSandbox": "", "requires_approval": "",
				"justification": "", "explanation": "", "yield_time_ms": "", "max_output_tokens": "", "login": "",
			},
			ways: map[string]string{
				"background": "background commands are not supported by this version: leave the key out, " +
					"and the call waits for the command within its timeout",
				"tty":   "there is no terminal: leave the key out, and give what the command reads in stdin",
				"shell": "commands are run by the session's shell: leave the key out, or start the other one in the command",
			},
			rewrite: bashAliases, rewrites: []string{"run_in_background", "is_background", "background", "shell", CRLF, wordsAlias},
		},
		Streams:  true,
		Truncate: truncateBoth,
		decode:   aCommand,
		instead:  asPatch, insteadOf: "patch",
		paths:  []string{"workdir"},
		fields: bashFields,
		input: object(
			required("command", text(1, 0, "The command to run, as one bash script. It may have several lines.")),
			optional("description", text(0, 0, "What the command does, in five to ten words, for people who watch.")),
			optional("timeout", integer(1, maxCount, "Milliseconds after which the command is ended.")),
			optional("workdir", text(0, maxPath, "The directory to run in, absolute or relative to the worktree. The default is the worktree. Use this instead of a leading cd.")),
			optional("stdin", text(0, MaxStdin, "Text for a command that reads its standard input. Without it there is none.")),
		),
	}
}

// bashInput is the input of bash.
type bashInput struct {
	command, description, workdir, stdin string
	timeout                              int64
}

func aCommand(v values) Input {
	return &bashInput{
		command: v.text("command"), description: v.text("description"), workdir: v.text("workdir"), stdin: v.text("stdin"),
		timeout: v.number("timeout"),
	}
}

// Access implements Input. It asks for each command that the text would run, for an edit
// of each file that a redirection writes, and for each path that is named, in case that
// it leads out of the session's own places. A text that does not say all it
// would do is asked for as a whole too.
func (in *bashInput) Access(r *Reader) Access {
	o := shell.Options{Workdir: in.workdir, Home: home}
	if r != nil {
		if o.Shell, o.Astray = r.Shell, r.Astray; r.Homeless {
			o.Home = ""
		}
	}
	scan := shell.Scan(in.command, o)

	var a accessBuilder
	if scan.Opaque {
		a.add(Request{Permission: PermissionBash, Pattern: in.command, Opaque: true, Why: scan.Why})
	}
	if in.stdin != "" {
		// A shell or an interpreter would run it, and which programs are such is not
		// known: what is judged as a whole is the command with it.
		a.add(Request{Permission: PermissionBash, Pattern: in.command + " <<STDIN\n" + in.stdin, Opaque: true, Why: "it is given standard input, which it may run"})
	}
	for _, c := range scan.Commands {
		if scan.Opaque || in.stdin != "" {
			c.Save = ""
		}
		a.add(Request{Permission: PermissionBash, Pattern: c.Text, Save: c.Save, Also: c.Also, Prefixed: c.Prefixed, Variables: c.Variables, Wraps: c.Wraps, Dir: c.Dir, Apart: c.Apart, Program: c.Program})
	}
	for _, p := range scan.Writes {
		a.add(Request{Permission: PermissionEdit, Pattern: p.Text, Path: p.Name, Write: true})
		a.add(Request{Permission: PermissionExternal, Pattern: p.Text, Path: p.Name, Write: true, Outside: true})
	}
	if in.workdir != "" {
		// Paths are relative to where the command starts, so this is that place.
		a.add(Request{Permission: PermissionExternal, Pattern: in.workdir, Path: ".", Outside: true})
	}
	for _, p := range scan.Paths {
		a.add(Request{Permission: PermissionExternal, Pattern: p.Text, Path: p.Name, Outside: true, Weak: p.Weak, Matched: p.Matched})
	}
	access := a.access()
	access.Links, access.Prepare = scan.Links, access.Prepare || len(scan.Links) > 0
	access.Title, access.Command = in.description, in.command
	return access
}

// Near implements Nearer: it leaves out what does not change what runs, which is the
// description, the timeout, comments, white space, the style of quotes.
func (in *bashInput) Near() json.RawMessage {
	near, _ := json.Marshal([]string{shell.Canonical(in.command), in.workdir, in.stdin}) // never fails for strings
	return near
}

// Timeout implements Timed.
func (in *bashInput) Timeout() int64 { return in.timeout }

// Workdir implements Placed.
func (in *bashInput) Workdir() string { return in.workdir }

// Shown implements Visible.
func (in *bashInput) Shown() (map[string]string, bool) {
	return map[string]string{"command": in.command, "stdin": in.stdin, "description": in.description, "workdir": in.workdir}, true
}

// bashAliases takes a command that is a list of words, as execve does, and leaves out that a
// command is not to run in the background, and that bash is to run it.
func bashAliases(v values) (used []string) {
	for _, name := range []string{"run_in_background", "is_background", "background"} {
		if on, ok := v[name].(bool); ok {
			used = append(used, name)
			if delete(v, name); on {
				v["background"] = true // which is refused with what to do instead
			}
		}
	}
	if name := path.Base(v.text("shell")); name == "bash" || name == "sh" {
		used = append(used, "shell")
		delete(v, "shell")
	}
	key := "command"
	if _, ok := v["cmd"]; ok {
		key = "cmd"
	}
	list, ok := v[key].([]any)
	if !ok {
		if text, changed := withoutCR(v.text(key)); changed {
			used = append(used, CRLF)
			v[key] = text
		}
		return used
	}
	words := make([]string, len(list))
	for i, w := range list {
		if words[i], ok = w.(string); !ok {
			return used
		}
	}
	text := shell.FromWords(words)
	if len(words) == 3 && text == words[2] { // a script, and not quoted words
		var changed bool
		if text, changed = withoutCR(text); changed {
			used = append(used, CRLF)
		}
	}
	v[key] = text
	return append(used, wordsAlias)
}

// CRLF is what counts as the alias of a command whose lines all end as those of Windows do. Bash
// would take the carriage returns for parts of words.
const CRLF = "crlf"

// withoutCR takes carriage returns from the ends of lines, where all have one.
func withoutCR(text string) (string, bool) {
	ends := strings.Count(text, "\r\n")
	if ends == 0 || ends != strings.Count(text, "\n") {
		return text, false
	}
	return strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\r"), true
}

// wordsAlias is what counts as the alias of a command in words.
const wordsAlias = "words"
