package agents

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// shippedAgent is an agent as it ships, and how it is run. docs/agents.md has the recipes.
type shippedAgent struct {
	name    string // for toolctl mcp --install
	pattern string // of its program, see shipped
	script  bool   // the program runs in Node
	// tool is how it calls a tool of toold's.
	tool func(tool string) (name, namespace string)
	// config is a file of its configuration, below its home, and what stands in it, with "{model}"
	// for the address of the model. off, in place of "{off}", turns its own tools off.
	file, config, off string
	env               []string // with "{model}" and "{home}"
	args, offArgs     []string
	// keeps are tools of its own that cannot be turned off.
	keeps []string
	// adds is what it puts around a text of toold's, which is "…", as a regular expression; by the
	// name of a receipt, "" for all others.
	adds map[string]string
	// blind is why the model is shown no pictures; "" where it is.
	blind string
}

// codexSays is what Codex puts before each result.
const codexSays = `Wall time: [0-9.]+ seconds\nOutput:…`

func prefixed(prefix string) func(string) (string, string) {
	return func(tool string) (string, string) { return prefix + tool, "" }
}

// says is what the agents are asked for.
const says = "Make the calls."

var shippedAgents = []*shippedAgent{
	{
		name: "opencode", pattern: "opencode-linux-*/bin/opencode", tool: prefixed("toold_"),
		file: "opencode.json",
		config: `{
  "model": "scripted/m", "small_model": "scripted/m", "autoupdate": false, "share": "disabled",
  "provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "scripted", "options": {"baseURL": "{model}/v1", "apiKey": "x"},
    "models": {"m": {"name": "m", "tool_call": true, "attachment": true, "modalities": {"input": ["text", "image"], "output": ["text"]}}}}}{off}
}`,
		off: `, "tools": {"bash": false, "edit": false, "write": false, "read": false, "glob": false, "grep": false, "list": false, "patch": false, "task": false, "webfetch": false, "todowrite": false, "todoread": false, "skill": false}`,
		env: []string{
			"PWD={home}", "SHELL=/bin/bash", "OPENCODE_CONFIG={home}/opencode.json", "XDG_DATA_HOME={home}/data", "XDG_CONFIG_HOME={home}/config",
			"XDG_CACHE_HOME={home}/cache", "XDG_STATE_HOME={home}/state", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		},
		args: []string{"run", "--model", "scripted/m", says},
	},
	{
		name: "codex", pattern: "@openai/codex-linux-*/vendor/*/bin/codex", tool: func(tool string) (string, string) { return tool, "mcp__toold" },
		file:   "config.toml",
		config: "model = \"m\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{model}/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\n",
		env:    []string{"CODEX_HOME={home}", "SCRIPTED_KEY=x"},
		args:   []string{"exec", "--skip-git-repo-check", says},
		offArgs: []string{
			"--disable", "shell_tool", "--disable", "multi_agent", "--disable", "goals", "--disable", "view_image", "-c", `web_search="disabled"`,
		},
		adds: map[string]string{"": codexSays},
		// Those of resources are toold's too; the last asks the person at the terminal.
		keeps: []string{"list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource", "request_user_input"},
	},
	{
		name: "claude", pattern: "@anthropic-ai/claude-code-linux-*/claude", tool: prefixed("mcp__toold__"),
		env: []string{
			"ANTHROPIC_BASE_URL={model}", "ANTHROPIC_API_KEY=x", "ENABLE_TOOL_SEARCH=false",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "MCP_TIMEOUT=600000", "MCP_CONNECT_TIMEOUT_MS=600000",
		},
		args:    []string{"-p", says, "--mcp-config", ".mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__toold"},
		offArgs: []string{"--tools", ""},
		adds:    map[string]string{"picture": `…\[Image: source: \{home\}/[-/.\w]+\.png\]`},
	},
	{
		name: "gemini", pattern: "@google/gemini-cli/bundle/gemini.js", script: true, tool: prefixed("mcp_toold_"),
		file: ".gemini/settings.json", config: `{"security": {"auth": {"selectedType": "gemini-api-key"}}{off}}`, off: `, "tools": {"core": ["mcp_toold_*"]}`,
		env: []string{"GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL={model}", "GEMINI_CLI_NO_RELAUNCH=true", "GEMINI_CLI_TRUST_WORKSPACE=true"},
		adds: map[string]string{
			"":        "<untrusted_context>\n…\n</untrusted_context>",
			"picture": "<untrusted_context>\n…\n</untrusted_context>\n\\[Tool 'read' provided the following image data with mime-type: image/png\\]",
		},
		args: []string{"-y", "-m", "gemini-2.5-pro", "-p", says},
	},
	{
		name: "qwen", pattern: "@qwen-code/qwen-code/cli-entry.js", script: true, tool: prefixed("mcp__toold__"),
		file: ".qwen/settings.json", config: `{"telemetry": {"enabled": false}, "privacy": {"usageStatisticsEnabled": false}{off}}`,
		off: `, "tools": {"core": ["none"], "toolSearch": {"enabled": false}},
  "permissions": {"deny": ["agent", "skill", "enter_worktree", "exit_worktree", "list_agents", "record_artifact", "report_findings", "send_message", "task_stop", "get_goal", "update_goal"]}`,
		env:   []string{"OPENAI_BASE_URL={model}/v1", "OPENAI_API_KEY=x", "OPENAI_MODEL=m"},
		adds:  map[string]string{"picture": "…\n\\[Tool 'read' provided the following image data with mime-type: image/png\\]\\[image: image/png\\]"},
		blind: "it sends the name of its type in place of a picture",
		args:  []string{"--auth-type", "openai", "-y", "-p", says},
	},
	{
		name: "copilot", pattern: "@github/copilot-linux-*/copilot", tool: prefixed("toold-"),
		env:     []string{"COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL={model}/v1", "COPILOT_PROVIDER_API_KEY=x", "COPILOT_MODEL=m"},
		args:    []string{"--allow-all-tools", "--disable-builtin-mcps", "-p", says},
		offArgs: []string{"--available-tools", "toold"},
		adds:    map[string]string{"error": "MCP server 'toold': …"},
		blind:   "it leaves pictures out",
	},
}

// command is a run of the agent with a home of its own, that asks nothing of the network but the model.
// What it needs of flags is put behind those of toolctl mcp; with none it knows nothing of toold, and
// has its own tools.
func (a *shippedAgent) command(t *testing.T, model string, flags ...string) *exec.Cmd {
	t.Helper()
	program, args, off := shipped(t, a.pattern), a.args, ""
	home, err := testrig.MkdirTemp("toold-home-")
	testrig.Must(t, err)
	t.Cleanup(func() { // what an agent has left running may still write there
		testrig.Eventually(t, "the agent's home is removed", func() bool { return os.RemoveAll(home) == nil })
	})
	argv := []string{program}
	if a.script {
		argv = []string{shipped(t, "node-linux-*/bin/node"), program}
	}
	if len(flags) > 0 {
		args, off = append(slices.Clone(args), a.offArgs...), a.off
	}
	fill := strings.NewReplacer("{model}", model, "{home}", home, "{off}", off)
	if a.file != "" {
		file := filepath.Join(home, a.file)
		testrig.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		testrig.Must(t, os.WriteFile(file, []byte(fill.Replace(a.config)), 0o600))
	}
	env := append(os.Environ(), "HOME="+home, "PATH="+filepath.Dir(shipped(t, "node-linux-*/bin/node"))+":"+os.Getenv("PATH"), "IS_SANDBOX=1", "CI=1")
	for _, v := range a.env {
		env = append(env, fill.Replace(v))
	}
	if len(flags) > 0 {
		install := exec.Command(filepath.Join(programs, "toolctl"), append(append([]string{"mcp"}, flags...), "--install", a.name)...)
		install.Dir, install.Env = home, env
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", install, err, out)
		}
	} else if a.name == "claude" {
		args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--mcp-config" || arg == ".mcp.json" })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*bound) // a busy machine starts one in a minute
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], args...)...)
	cmd.Dir, cmd.Env = home, env
	return cmd
}
