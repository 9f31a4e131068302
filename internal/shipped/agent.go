package shipped

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Agent is an agent as it ships, and how it is run. docs/agents.md has the recipes.
type Agent struct {
	Name    string // for toolctl mcp --install, and of its program
	Package string // of npm
	// Tool is how it calls a tool of toold's.
	Tool func(tool string) (name, namespace string)
	// config is a file of its configuration, below its home, and what stands in it, with "{model}"
	// for the address of the model. With args it turns the agent's own tools off.
	file, config string
	env          []string // with "{model}" and "{home}"
	args         []string
	// Keeps are tools of its own that cannot be turned off.
	Keeps []string
	// Adds is what it puts around a text of toold's, which is "…", as a regular expression; by the
	// name of a Probe, "" for all others.
	Adds map[string]string
	// Blind is why the model is shown no pictures, and Cuts why it is given no long text, nor long
	// instructions; "" where it is.
	Blind, Cuts string
}

// codexSays is what Codex puts before each result.
const codexSays = `Wall time: [0-9.]+ seconds\nOutput:…`

func prefixed(prefix string) func(string) (string, string) {
	return func(tool string) (string, string) { return prefix + tool, "" }
}

// says is what the agents are asked for.
const says = "Make the calls."

// Agents are those that are known here.
var Agents = []*Agent{
	{
		Name: "opencode", Package: "opencode-ai", Tool: prefixed("toold_"),
		file: "opencode.json",
		config: `{
  "model": "scripted/m", "small_model": "scripted/m", "autoupdate": false, "share": "disabled",
  "provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "scripted", "options": {"baseURL": "{model}/v1", "apiKey": "x"},
    "models": {"m": {"name": "m", "tool_call": true, "attachment": true, "modalities": {"input": ["text", "image"], "output": ["text"]}}}}}, "tools": {"bash": false, "edit": false, "write": false, "read": false, "glob": false, "grep": false, "list": false, "patch": false, "task": false, "webfetch": false, "todowrite": false, "todoread": false, "skill": false}
}`,
		env: []string{
			"OPENCODE_CONFIG={home}/opencode.json", "XDG_DATA_HOME={home}/data", "XDG_CONFIG_HOME={home}/config",
			"XDG_CACHE_HOME={home}/cache", "XDG_STATE_HOME={home}/state", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		},
		args: []string{"run", "--model", "scripted/m", says},
	},
	{
		Name: "codex", Package: "@openai/codex", Tool: func(tool string) (string, string) { return tool, "mcp__toold" },
		file:   "config.toml",
		config: "model = \"m\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{model}/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\n",
		env:    []string{"CODEX_HOME={home}", "SCRIPTED_KEY=x"},
		args:   []string{"exec", "--skip-git-repo-check", says, "--disable", "shell_tool", "--disable", "multi_agent", "--disable", "goals", "--disable", "view_image", "-c", `web_search="disabled"`},
		Adds:   map[string]string{"": codexSays},
		// Those of resources are toold's too; the last asks the person at the terminal.
		Keeps: []string{"list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource", "request_user_input"},
	},
	{
		Name: "claude", Package: "@anthropic-ai/claude-code", Tool: prefixed("mcp__toold__"),
		env: []string{
			"ANTHROPIC_BASE_URL={model}", "ANTHROPIC_API_KEY=x", "ENABLE_TOOL_SEARCH=false",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "MCP_TIMEOUT=600000", "MCP_CONNECT_TIMEOUT_MS=600000",
		},
		args: []string{"-p", says, "--mcp-config", ".mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__toold", "--tools", ""},
		Adds: map[string]string{"picture": `…\[Image: source: \{home\}/[-/.\w]+\.png\]`},
	},
	{
		Name: "gemini", Package: "@google/gemini-cli", Tool: prefixed("mcp_toold_"),
		file: ".gemini/settings.json", config: `{"security": {"auth": {"selectedType": "gemini-api-key"}}, "tools": {"core": ["mcp_toold_*"], "truncateToolOutputThreshold": 100000}}`, env: []string{"GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL={model}", "GEMINI_CLI_NO_RELAUNCH=true", "GEMINI_CLI_TRUST_WORKSPACE=true"},
		Adds: map[string]string{
			"":        "<untrusted_context>\n…\n</untrusted_context>",
			"picture": "<untrusted_context>\n…\n</untrusted_context>\n\\[Tool 'read' provided the following image data with mime-type: image/png\\]",
		},
		args: []string{"-y", "-m", "gemini-2.5-pro", "-p", says},
	},
	{
		Name: "qwen", Package: "@qwen-code/qwen-code", Tool: prefixed("mcp__toold__"),
		file: ".qwen/settings.json", config: `{"telemetry": {"enabled": false}, "privacy": {"usageStatisticsEnabled": false}, "tools": {"core": ["none"], "toolSearch": {"enabled": false}, "truncateToolOutputThreshold": 100000, "truncateToolOutputLines": 100000},
  "permissions": {"deny": ["agent", "skill", "enter_worktree", "exit_worktree", "list_agents", "record_artifact", "report_findings", "send_message", "task_stop", "get_goal", "update_goal"]}}`,
		env:   []string{"OPENAI_BASE_URL={model}/v1", "OPENAI_API_KEY=x", "OPENAI_MODEL=m"},
		Adds:  map[string]string{"picture": "…\n\\[Tool 'read' provided the following image data with mime-type: image/png\\]\\[image: image/png\\]"},
		Blind: "it sends the name of its type in place of a picture",
		args:  []string{"--auth-type", "openai", "-y", "-p", says},
	},
	{
		Name: "copilot", Package: "@github/copilot", Tool: prefixed("toold-"),
		env:   []string{"COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL={model}/v1", "COPILOT_PROVIDER_API_KEY=x", "COPILOT_MODEL=m"},
		args:  []string{"--allow-all-tools", "--disable-builtin-mcps", "-p", says, "--available-tools", "toold"},
		Adds:  map[string]string{"error": "MCP server 'toold': …"},
		Blind: "it leaves pictures out",
		Cuts:  "of more than 30 KB it gives both ends, and the rest to a file that a tool of its own would read",
	},
}

// Named is the agent of this name, nil for none.
func Named(name string) *Agent {
	for _, a := range Agents {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// Names are those of all agents.
func Names() (names []string) {
	for _, a := range Agents {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	return names
}

// Own reports whether a tool that the agent offers is none of toold's.
func (a *Agent) Own(offered string) bool {
	name, namespace := a.Tool("")
	return !strings.HasPrefix(offered, name+namespace)
}

// Offered is the name by which the agent offers a tool of toold's.
func (a *Agent) Offered(tool string) string { return offeredName(a.Tool(tool)) }

// Run is a run of an agent, in a home of its own.
type Run struct {
	Agent *Agent
	// Program is what is started.
	Program string
	// Home is a directory that is there. The agent's configuration is written below it.
	Home string
	// Model is the address of the model that it asks.
	Model string
}

func (r *Run) fill() *strings.Replacer {
	return strings.NewReplacer("{model}", r.Model, "{home}", r.Home)
}

// Configure writes the agent's configuration, but for what it says of toold.
func (r *Run) Configure() error {
	err := os.MkdirAll(r.temporary(), 0o700)
	if r.Agent.file != "" {
		file := filepath.Join(r.Home, r.Agent.file)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(r.fill().Replace(r.Agent.config)), 0o600))
	}
	if err != nil {
		return fmt.Errorf("write a configuration for %s: %w", r.Agent.Name, err)
	}
	return nil
}

func (r *Run) temporary() string { return filepath.Join(r.Home, "tmp") }

// Argv starts the agent.
func (r *Run) Argv() []string { return append([]string{r.Program}, r.Agent.args...) }

// passed are the variables that an agent gets as they are: none that names an account, a model or
// a configuration of the user's.
var passed = []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "USER", "LOGNAME", "NODE_EXTRA_CA_CERTS"}

// Env is the environment in which the agent starts, and reads nothing of the user's own
// configuration. getenv is that of now.
func (r *Run) Env(getenv func(string) string) []string {
	env := []string{
		"HOME=" + r.Home, "PWD=" + r.Home, "TMPDIR=" + r.temporary(), "SHELL=/bin/bash",
		"IS_SANDBOX=1", "CI=1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1",
	}
	for _, name := range passed {
		if v := getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	fill := r.fill()
	for _, v := range r.Agent.env {
		env = append(env, fill.Replace(v))
	}
	return env
}
