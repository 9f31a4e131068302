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
	// for the address of the model.
	file, config string
	env          []string // with "{model}" and "{home}"
	args         []string
	// Keeps are tools of its own that cannot be turned off.
	Keeps []string
	// Adds is what it puts around a text of toold's, which is "…", as a regular expression; of a
	// result that is an "error", of one with a "picture", and "" of all others.
	Adds map[string]string
	// Blind is why the model is shown no pictures; "" where it is.
	Blind string
	// Redraws is why the model is shown another picture than toold wrote, by the name of a Probe.
	Redraws map[string]string
	// Uninstructed is why the model is given none of the server's instructions; "" where it is given all.
	Uninstructed string
	// Client is the name that its client says of itself.
	Client string
	// Settings are what turns its own tools off, and has it pass on to its model what toold answers.
	// Flags do what no setting of it can.
	Settings []Setting
	Flags    []string
}

// codexSays is what Codex puts before each result.
const codexSays = `Wall time: [0-9.]+ seconds\nOutput:…`

func prefixed(prefix string) func(string) (string, string) {
	return func(tool string) (string, string) { return prefix + tool, "" }
}

// says is what the agents are asked for.
const says = "Make the calls."

// passesOn is more than any text of toold's, in bytes and in lines.
const passesOn = 100_000

// claudeSettings is where Claude Code looks for what is about the directory.
const claudeSettings = ".claude/settings.json"

// off turns tools off, each by a setting of its name.
func off(below string, tools ...string) (all []Setting) {
	for _, tool := range tools {
		all = append(all, Setting{Path: []string{below, tool}, Value: false})
	}
	return all
}

// Agents are those that are known here.
var Agents = []*Agent{
	{
		Name: "opencode", Client: "opencode", Settings: off("tools", "bash", "edit", "write", "read", "glob", "grep", "list", "patch", "task", "webfetch", "todowrite", "todoread", "skill"),
		Package: "opencode-ai", Tool: prefixed("toold_"),
		file: "opencode.json",
		config: `{
  "model": "scripted/m", "small_model": "scripted/m", "autoupdate": false, "share": "disabled",
  "provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "scripted", "options": {"baseURL": "{model}/v1", "apiKey": "x"},
    "models": {"m": {"name": "m", "tool_call": true, "attachment": true, "modalities": {"input": ["text", "image"], "output": ["text"]}}}}}
}`,
		env: []string{
			"OPENCODE_CONFIG={home}/opencode.json", "XDG_DATA_HOME={home}/data", "XDG_CONFIG_HOME={home}/config",
			"XDG_CACHE_HOME={home}/cache", "XDG_STATE_HOME={home}/state", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		},
		args: []string{"run", "--model", "scripted/m", says},
	},
	{
		Name: "codex", Client: "codex-mcp-client", Settings: append(off("features", "shell_tool", "multi_agent", "goals", "view_image"),
			Setting{Path: []string{"web_search"}, Value: "disabled"},
			Setting{Path: []string{"tool_output_token_limit"}, Value: 20_000, Why: "Answers of toold are cut at 50 KiB already, and say how to go on."}),
		Package: "@openai/codex", Tool: func(tool string) (string, string) { return tool, "mcp__toold" },
		file:   "config.toml",
		config: "model = \"m\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{model}/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\n",
		env:    []string{"CODEX_HOME={home}", "SCRIPTED_KEY=x"},
		args:   []string{"exec", "--skip-git-repo-check", says},
		Adds:   map[string]string{"": codexSays},
		// Those of resources are toold's too; the last asks the person at the terminal.
		Keeps: []string{"list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource", "request_user_input"},
	},
	{
		Name: "claude", Client: "claude-code", Settings: []Setting{
			{File: claudeSettings, Path: []string{"permissions", "deny"}, Value: []string{"Agent", "Bash", "CronCreate", "CronDelete", "CronList", "Edit", "EnterWorktree", "ExitWorktree", "Glob", "Grep", "ListAgents", "ListMcpResourcesTool", "ReadMcpResourceDirTool", "ReadMcpResourceTool", "Monitor", "NotebookEdit", "Read", "ReportFindings", "ScheduleWakeup", "SendMessage", "Skill", "TaskStop", "ToolSearch", "WebFetch", "WebSearch", "Workflow", "Write"}},
			{File: claudeSettings, Path: []string{"permissions", "allow"}, Value: []string{"mcp__toold"}},
			// toold's tools are offered at once without it too (see habit), beside a placeholder for none.
			{File: claudeSettings, Path: []string{"env", "ENABLE_TOOL_SEARCH"}, Value: "false"},
			{File: claudeSettings, Path: []string{"enabledMcpjsonServers"}, Value: []string{"toold"}},
		},
		Package: "@anthropic-ai/claude-code", Tool: prefixed("mcp__toold__"),
		env: []string{
			"ANTHROPIC_BASE_URL={model}", "ANTHROPIC_API_KEY=x",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "MCP_TIMEOUT=600000", "MCP_CONNECT_TIMEOUT_MS=600000",
		},
		args:    []string{"-p", says},
		Adds:    map[string]string{"picture": `…\[Image: source: \{home\}/[-/.\w]+\.(?:png|jpe?g)\]`},
		Redraws: map[string]string{"large JPEG": "it makes a smaller JPEG of one of more than some 500 kB"},
	},
	{
		Name: "gemini", Client: "gemini-cli-mcp-client-toold", Settings: []Setting{
			// "exclude" would take those of toold with the same names too.
			{Path: []string{"tools", "core"}, Value: Only{"mcp_toold_*"}},
			{Path: []string{"tools", "truncateToolOutputThreshold"}, Value: passesOn},
		},
		Package: "@google/gemini-cli", Tool: prefixed("mcp_toold_"),
		file: ".gemini/settings.json", config: `{"security": {"auth": {"selectedType": "gemini-api-key"}}}`,
		env: []string{"GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL={model}", "GEMINI_CLI_NO_RELAUNCH=true", "GEMINI_CLI_TRUST_WORKSPACE=true"},
		Adds: map[string]string{
			"":        "<untrusted_context>\n…\n</untrusted_context>",
			"picture": "<untrusted_context>\n…\n</untrusted_context>\n\\[Tool 'read' provided the following image data with mime-type: image/(?:png|jpeg)\\]",
		},
		args: []string{"-y", "-m", "gemini-2.5-pro", "-p", says},
	},
	{
		Name: "qwen", Client: "qwen-cli-mcp-client-toold", Settings: []Setting{
			{Path: []string{"tools", "core"}, Value: Only{"none"}},
			{Path: []string{"tools", "toolSearch", "enabled"}, Value: false},
			{Path: []string{"tools", "truncateToolOutputThreshold"}, Value: passesOn},
			{Path: []string{"tools", "truncateToolOutputLines"}, Value: passesOn},
			{Path: []string{"permissions", "deny"}, Value: []string{"agent", "skill", "enter_worktree", "exit_worktree", "list_agents", "record_artifact", "report_findings", "send_message", "task_stop", "get_goal", "update_goal"}},
		},
		Package: "@qwen-code/qwen-code", Tool: prefixed("mcp__toold__"),
		file: ".qwen/settings.json", config: `{"telemetry": {"enabled": false}, "privacy": {"usageStatisticsEnabled": false}}`,
		env:   []string{"OPENAI_BASE_URL={model}/v1", "OPENAI_API_KEY=x", "OPENAI_MODEL=m"},
		Adds:  map[string]string{"picture": "…\n\\[Tool 'read' provided the following image data with mime-type: image/(?:png|jpeg)\\]\\[image: image/(?:png|jpeg)\\]"},
		Blind: "it sends the name of its type in place of a picture",
		args:  []string{"--auth-type", "openai", "-y", "-p", says},
	},
	{
		Name: "copilot", Client: "copilot-cli", Package: "@github/copilot", Tool: prefixed("toold-"),
		env:   []string{"COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL={model}/v1", "COPILOT_PROVIDER_API_KEY=x", "COPILOT_MODEL=m"},
		args:  []string{"--allow-all-tools", "-p", says},
		Flags: []string{"--disable-builtin-mcps", "--available-tools", "toold"},
		Adds:  map[string]string{"error": "MCP server 'toold': …"},
		Blind: "it leaves pictures out", Uninstructed: "it leaves them out, whatever its settings are",
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
	// Bare has it offer its own tools.
	Bare bool
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
func (r *Run) Argv() []string {
	argv := append([]string{r.Program}, r.Agent.args...)
	if !r.Bare {
		argv = append(argv, r.Agent.Flags...)
	}
	return argv
}

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
