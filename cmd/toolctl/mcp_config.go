package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toold/toold/internal/shipped"
)

// agentConfig is how an agent is told of a server. To add one: an entry in agentConfigs,
// and a row in TestPrintConfig. What turns its own tools off stands in shipped.Agents.
type agentConfig struct {
	// file is the configuration; HOME stands for the user's directory.
	file string
	// below are the names of the objects that lead to the servers.
	below []string
	// server makes what the file says of this one.
	server func(argv []string) any
	toml   bool // the file is TOML, else JSON
	// home is a variable that names the directory of the file.
	home string
	// note says what else there is to do or to know.
	note string
	// install: this file can be written by us.
	install bool
}

// mcpServer is the name of the server in configurations; models see it before the names of
// tools.
const mcpServer = "toold"

type commandServer struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Timeout int      `json:"timeout,omitempty"` // mostly milliseconds
	// Discovery is how long the agent waits for the first answer, where that is a setting of its own.
	Discovery int      `json:"discoveryTimeoutMs,omitempty"`
	Trust     bool     `json:"trust,omitempty"` // the agent does not ask before it calls a tool
	Tools     []string `json:"tools,omitempty"` // that are offered
}

var agentConfigs = map[string]agentConfig{
	"claude": {
		file: ".mcp.json", below: []string{"mcpServers"}, install: true,
		server: func(argv []string) any { return commandServer{Type: "stdio", Command: argv[0], Args: argv[1:]} },
	},
	"codex": {
		file: "HOME/.codex/config.toml", home: "CODEX_HOME", below: []string{"mcp_servers"}, toml: true, install: true,
		note: `default_tools_approval_mode is "approve", since toold itself asks where a rule says so, and codex exec would refuse every tool that writes`,
	},
	"opencode": {
		file: "opencode.json", below: []string{"mcp"}, install: true,
		server: func(argv []string) any {
			return struct {
				Type    string   `json:"type"`
				Command []string `json:"command"`
				Enabled bool     `json:"enabled"`
				Timeout int      `json:"timeout"` // milliseconds, of its start
			}{"local", argv, true, 60_000}
		},
		note: `a "permission" of yours that allows "*" would turn its own tools on again, as it is read after "tools": take it out`,
	},
	"cline": {
		file: "HOME/.cline/data/settings/cline_mcp_settings.json", below: []string{"mcpServers"},
		server: func(argv []string) any {
			return commandServer{Command: argv[0], Args: argv[1:], Timeout: 600} // seconds there
		},
		note: `in an editor it is the file that "Configure MCP Servers" opens; its own tools go on working beside it, and it asks before each call: ` +
			`deny those in its auto-approve settings, allow toold's there`,
	},
	"continue": {
		file: ".continue/mcpServers/toold.json", below: []string{"mcpServers"},
		server: func(argv []string) any { return commandServer{Command: argv[0], Args: argv[1:]} },
		note:   `tools are there in its agent mode alone; set its own to "Excluded" and toold's to "Automatic" in its tool settings`,
	},
	"cursor": {
		file: ".cursor/mcp.json", below: []string{"mcpServers"},
		server: func(argv []string) any { return commandServer{Command: argv[0], Args: argv[1:]} },
	},
	"vscode": {
		file: ".vscode/mcp.json", below: []string{"servers"},
		server: func(argv []string) any { return commandServer{Type: "stdio", Command: argv[0], Args: argv[1:]} },
	},
	"zed": {
		file: "HOME/.config/zed/settings.json", below: []string{"context_servers"},
		server: func(argv []string) any {
			return struct {
				Source string `json:"source"`
				commandServer
			}{"custom", commandServer{Command: argv[0], Args: argv[1:]}}
		},
	},
	"gemini": {
		file: "HOME/.gemini/settings.json", below: []string{"mcpServers"}, install: true,
		server: func(argv []string) any {
			return commandServer{Command: argv[0], Args: argv[1:], Timeout: 600_000, Trust: true}
		},
		note: `trust is true, since toold itself asks where a rule says so`,
	},
	"qwen": {
		file: "HOME/.qwen/settings.json", below: []string{"mcpServers"}, install: true,
		server: func(argv []string) any {
			return commandServer{Command: argv[0], Args: argv[1:], Timeout: 600_000, Discovery: 300_000, Trust: true}
		},
		note: `trust is true, since toold itself asks where a rule says so`,
	},
	"copilot": {
		file: "HOME/.copilot/mcp-config.json", below: []string{"mcpServers"}, install: true,
		server: func(argv []string) any {
			return commandServer{Type: "local", Command: argv[0], Args: argv[1:], Tools: []string{"*"}}
		},
	},
}

func agentNames(installable bool) []string {
	var names []string
	for name, c := range agentConfigs {
		if c.install || !installable {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// codexTable is what Codex's configuration says of the server.
func codexTable(argv []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[mcp_servers.%s]\ncommand = %s\nargs = [", mcpServer, tomlString(argv[0]))
	for i, arg := range argv[1:] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(tomlString(arg))
	}
	b.WriteString("]\n# toold asks by itself where a rule says so.\ndefault_tools_approval_mode = \"approve\"\nstartup_timeout_sec = 60\n")
	return b.String()
}

// tomlString is a basic string of TOML: what JSON escapes is escaped there in the same way.
func tomlString(s string) string {
	b, _ := json.Marshal(s) // a string can be encoded
	return strings.ReplaceAll(string(b), "\x7f", `\u007f`)
}

// notServed are flags that are not about the server.
var notServed = []string{"print-config", "install", "output", "no-headers", "doctor", "program", "patience"}

// argv is the command that an agent is to start: toolctl mcp with the flags of now, but
// those that are about the configuration.
func (m *mcpCommand) argv(c *cobra.Command) ([]string, error) {
	if c.Flags().Changed("token") {
		return nil, usagef("--token: a token does not belong in a configuration: leave it out, and set TOOLD_TOKEN where the agent is started")
	}
	argv := []string{ownCommand(), "mcp"}
	c.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(notServed, f.Name) {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if f.Name == "project" || f.Name == "socket" && !strings.Contains(v, "://") { // not of where the agent is started
				if abs, err := filepath.Abs(v); err == nil {
					v = abs
				}
			}
			switch {
			case f.NoOptDefVal != "":
				argv = append(argv, "--"+f.Name+"="+v)
			default:
				argv = append(argv, "--"+f.Name, v)
			}
		}
	})
	if m.ref == "" && m.session.worktree == "" && m.trial.name == "" {
		argv = append(argv, "--worktree", ".") // where the agent is started
	}
	return argv, nil
}

// ownCommand is how others start this program.
func ownCommand() string {
	self, err := os.Executable()
	if err != nil {
		return "toolctl"
	}
	found, err := exec.LookPath("toolctl")
	if err == nil {
		a, aerr := os.Stat(found)
		b, berr := os.Stat(self)
		if aerr == nil && berr == nil && os.SameFile(a, b) {
			return "toolctl"
		}
	}
	return self
}

// doctor tries an agent that is configured as install does it.
func (m *mcpCommand) doctor(c *cobra.Command, trial *shipped.Trial) error {
	if _, _, err := m.wants(); err != nil {
		return err
	}
	cl, stop, err := m.reach(c.Context(), func() error { return nil })
	if err != nil {
		return err
	}
	defer stop()
	argv, err := m.argv(c)
	if err != nil {
		return err
	}
	if !c.Flags().Changed("socket") {
		argv = append(argv, "--socket", cl.Socket())
	}
	trial.Server = argv
	trial.Install = func(getenv func(string) string, dir string) error {
		return installed(m.trial.name, argv, getenv, dir)
	}
	trial.Lacks = func() []string { return m.lacks(m.trial.name, argv) }
	return m.trial.try(c.Context(), m.app, trial)
}

// configure prints or writes the configuration of an agent.
func (m *mcpCommand) configure(c *cobra.Command) error {
	if m.printFor != "" && m.installFor != "" {
		return usagef("--print-config and --install: leave one of them out")
	}
	argv, err := m.argv(c)
	if err != nil {
		return err
	}
	name := cmp.Or(m.printFor, m.installFor)
	if m.installFor != "" {
		return m.install(c.Context(), name, argv)
	}
	for i, f := range filesOf(name, argv) {
		text, _, err := f.with(nil)
		if err != nil {
			return err
		}
		m.say("%s reads %s", name, line(f.path(m.getenv)))
		if i > 0 { // its text is not that of the file which is printed
			m.say("what belongs there:\n%s", lines(strings.TrimSuffix(string(text), "\n")))
			continue
		}
		if _, err = m.stdout.Write(text); err != nil {
			return err
		}
	}
	m.noteOn(name)
	return nil
}

// noteOn says what an agent's files do not say.
func (m *mcpCommand) noteOn(name string) {
	if note := agentConfigs[name].note; note != "" {
		m.say("%s: %s", name, note)
	}
	switch agent := shipped.Named(name); {
	case agent == nil:
		m.say("%s: its own tools go on working beside toold's; toolctl does not know how they are turned off", name)
	case len(agent.Flags) > 0:
		m.say("%s: no setting turns its own tools off: start it as %s", name, line(shellQuote(append([]string{name}, agent.Flags...))))
	}
}
