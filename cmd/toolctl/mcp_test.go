package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/client"
)

// mcpIn runs toolctl mcp in a directory with a home below it.
func mcpIn(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(dir)
	var out, errs strings.Builder
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, getenv: func(k string) string {
		return map[string]string{"HOME": filepath.Join(dir, "home")}[k]
	}}
	code = run(t.Context(), append([]string{"mcp"}, args...), a)
	return code, out.String(), errs.String()
}

// What Codex's file has around the server.
const (
	codexRoot = `web_search = "disabled"

# Answers of toold are cut at 50 KiB already, and say how to go on.
tool_output_token_limit = 20000

`
	codexFeatures = `[features]
shell_tool = false
multi_agent = false
goals = false
view_image = false
`
)

// TestPrintConfig: what is printed is a configuration of each agent, with the flags of the
// command in it.
func TestPrintConfig(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for agent, want := range map[string]string{
		"claude": `{
  "mcpServers": {
    "toold": {
      "type": "stdio",
      "command": "SELF",
      "args": [
        "mcp",
        "--mode",
        "overlay",
        "--worktree",
        "a \"b"
      ]
    }
  }
}
`,
		"codex": codexRoot + codexFeatures + `
[mcp_servers.toold]
command = "SELF"
args = ["mcp", "--mode", "overlay", "--worktree", "a \"b"]
# toold asks by itself where a rule says so.
default_tools_approval_mode = "approve"
startup_timeout_sec = 60
`,
		"opencode": `{
  "mcp": {
    "toold": {
      "type": "local",
      "command": [
        "SELF",
        "mcp",
        "--mode",
        "overlay",
        "--worktree",
        "a \"b"
      ],
      "enabled": true,
      "timeout": 60000
    }
  },
  "tools": {
    "bash": false,
    "edit": false,
    "glob": false,
    "grep": false,
    "list": false,
    "patch": false,
    "read": false,
    "skill": false,
    "task": false,
    "todoread": false,
    "todowrite": false,
    "webfetch": false,
    "write": false
  }
}
`,
		"cline": `"timeout": 600`, "continue": `"mcpServers": {`, "cursor": `"mcpServers": {`, "vscode": `"servers": {`, "zed": `"context_servers": {`, "gemini": `"trust": true`, "qwen": `"discoveryTimeoutMs": 300000`, "copilot": `"*"`,
	} {
		t.Run(agent, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, `a "b`), 0o700); err != nil {
				t.Fatal(err)
			}
			code, out, errs := mcpIn(t, dir, "--worktree", `a "b`, "--mode", "overlay", "--print-config", agent)
			want := strings.ReplaceAll(want, "SELF", self)
			if code != 0 || !strings.Contains(out, want) || len(want) > 100 && out != want {
				t.Errorf("exit %d, got %s\nwant %s\nstderr %s", code, out, want, errs)
			}
			if !strings.Contains(errs, filepath.Base(agentConfigs[agent].file)) {
				t.Errorf("it is not said where it belongs: %s", errs)
			}
		})
	}
	if _, out, _ := mcpIn(t, t.TempDir(), "--session", "s", "--label", "a=b", "--label", "c=d", "--print-config", "cursor"); strings.Contains(out, "--worktree") || strings.Count(out, "--label") != 2 {
		t.Errorf("the flags: %s", out)
	}
	dir := t.TempDir()
	_, out, _ := mcpIn(t, dir, "--project", "a.toml", "--socket", "run/s", "--print-config", "cursor")
	for _, name := range []string{"a.toml", "run/s"} {
		if want := `"` + filepath.Join(dir, name) + `"`; !strings.Contains(out, want) {
			t.Errorf("an agent that is started elsewhere finds no %s: %s", want, out)
		}
	}
	for _, args := range [][]string{
		{"--print-config", "emacs"},
		{"--install", "zed"},
		{"--token", "x", "--print-config", "zed"},
		{"--install", "codex", "--print-config", "codex"},
		{"--mode", "ro", "--print-config", "zed"},
		{"--worktree", "none", "--print-config", "zed"},
	} {
		if code, _, errs := mcpIn(t, t.TempDir(), args...); code != exitUsage {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
}

// TestInstall: a configuration is written with what was in it, after it was shown, or not
// at all.
func TestInstall(t *testing.T) {
	json := func(rest string) string {
		return strings.Replace(rest, "TOOLD", `"toold": {
      "type": "stdio",
      "command": "SELF",
      "args": [
        "mcp",
        "--session",
        "s"
      ]
    }`, 1)
	}
	table := "[mcp_servers.toold]\ncommand = \"SELF\"\nargs = [\"mcp\", \"--session\", \"s\"]\n# toold asks by itself where a rule says so.\ndefault_tools_approval_mode = \"approve\"\nstartup_timeout_sec = 60\n"
	for _, tt := range []struct {
		name, agent string
		old, want   string // "" is no file; want "" is a refusal that leaves it alone
	}{
		{"new", "claude", "", json("{\n  \"mcpServers\": {\n    TOOLD\n  }\n}\n")},
		{"empty object", "claude", "{}", json("{\n  \"mcpServers\": {\n    TOOLD\n  }\n}")},
		{"others", "claude", `{"a": 1e3, "mcpServers": {"x": {"command": "y"}}, "b": [1,  2]}`, json("{\"a\": 1e3, \"mcpServers\": {\n    TOOLD,\"x\": {\"command\": \"y\"}}, \"b\": [1,  2]}")},
		{"no servers", "claude", "{\n  \"a\": 1\n}\n", json("{\n  \"mcpServers\": {\n    TOOLD\n  },\n  \"a\": 1\n}\n")},
		{"servers without any", "claude", `{"mcpServers": { }}`, json("{\"mcpServers\": {\n    TOOLD\n  }}")},
		{"there already, other", "claude", `{"mcpServers": {"toold": {"command": "old", "env": {}}, "z": {}}}`, json(`{"mcpServers": {TOOLD, "z": {}}}`)},
		{"comments", "opencode", "{\n  // mine\n  \"mcp\": {}\n}\n", ""},
		{"not an object", "claude", `{"mcpServers": 3}`, ""},
		{"no JSON", "claude", `{"mcpServers": `, ""},
		{"twice", "claude", `{"mcpServers": {}, "mcpServers": {}}`, ""},

		{"new", "codex", "", codexRoot + codexFeatures + "\n" + table},
		{"own limit", "codex", "tool_output_token_limit = 5 # mine\n", "web_search = \"disabled\"\ntool_output_token_limit = 5 # mine\n\n" + codexFeatures + "\n" + table},
		{"others", "codex", "# mine\nmodel = \"m\" # yes\n\n[mcp_servers.x]\ncommand = \"y\"\n", codexRoot + "# mine\nmodel = \"m\" # yes\n\n[mcp_servers.x]\ncommand = \"y\"\n\n" + codexFeatures + "\n" + table},
		{"in place", "codex", "[mcp_servers.toold]\ncommand = \"old\"\n\n[mcp_servers.toold.env]\nA = \"b\"\n\n[features]\nx = true\n", codexRoot + table + "\n\n" + codexFeatures + "x = true\n"},
		{"inline", "codex", "mcp_servers = { toold = { command = \"x\" } }\n", ""},
		{"in a string", "codex", "a = '''\n[mcp_servers.toold]\n'''\n", ""},
		{"own features", "codex", "web_search = \"live\"\ntool_output_token_limit = 5\n[features] # mine\ngoals = true\n", "web_search = \"live\"\ntool_output_token_limit = 5\n[features] # mine\nshell_tool = false\nmulti_agent = false\nview_image = false\ngoals = true\n\n" + table},
		{"no TOML", "codex", "a = \n", ""},
	} {
		t.Run(tt.agent+" "+tt.name, func(t *testing.T) {
			dir := t.TempDir()
			agent := agentConfigs[tt.agent]
			file := strings.Replace(agent.file, "HOME", "home", 1)
			real := filepath.Join(dir, "dotfiles")
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o700); err != nil {
				t.Fatal(err)
			}
			if tt.old != "" {
				writeFile(t, real, tt.old, 0o640)
				if err := os.Symlink(real, filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
			}
			self, _ := os.Executable()
			code, _, errs := mcpIn(t, dir, "--session", "s", "--install", tt.agent)
			got, _ := os.ReadFile(filepath.Join(dir, file))
			if tt.want == "" {
				if code == 0 || string(got) != tt.old || !strings.Contains(errs, "--print-config "+tt.agent) {
					t.Errorf("exit %d: %s\n%s", code, got, errs)
				}
				return
			}
			want := strings.ReplaceAll(tt.want, "SELF", self)
			if code != 0 || string(got) != want || !strings.Contains(errs, "+++ ") {
				t.Errorf("exit %d, got\n%s\nwant\n%s\nstderr %s", code, got, want, errs)
			}
			if info, err := os.Stat(real); tt.old != "" && (err != nil || info.Mode().Perm() != 0o640) {
				t.Errorf("the file that the link leads to: %v %v", info, err)
			}
			if code, _, errs := mcpIn(t, dir, "--session", "s", "--install", tt.agent); code != 0 || !strings.Contains(errs, "has it already") {
				t.Errorf("a second time: exit %d: %s", code, errs)
			}
		})
	}
	t.Run("settings", installsSettings)
	_, _, errs := mcpIn(t, t.TempDir(), "--session", "s", "--install", "codex")
	if !strings.Contains(errs, "codex exec would refuse") {
		t.Errorf("it is not said why tools are approved: %s", errs)
	}
}

// installsSettings: what turns an agent's own tools off is added to what the user has, which is kept and said,
// also where it is in a file of its own.
func installsSettings(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, ".claude", "settings.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, `{"permissions": {"deny": ["Read(.env)", "Bash"]}, "model": "m"}`, 0o600)
	if code, _, errs := mcpIn(t, dir, "--session", "s", "--install", "claude"); code != 0 || strings.Count(errs, " is written") != 2 || !strings.Contains(errs, "take it back") {
		t.Errorf("exit %d: %s", code, errs)
	}
	got, err := os.ReadFile(file)
	for _, want := range []string{`"Read(.env)",`, `"Edit",`, `"mcp__toold"`, `"model": "m"`} {
		if err != nil || !strings.Contains(string(got), want) || strings.Count(string(got), `"Bash"`) != 1 {
			t.Errorf("no %s in %s, %v", want, got, err)
		}
	}
	file = filepath.Join(dir, "home", ".gemini", "settings.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, `{"tools": {"core": ["run_shell_command"]}}`, 0o600)
	if code, _, errs := mcpIn(t, dir, "--session", "s", "--install", "gemini"); code != 0 || !strings.Contains(errs, `tools.core is kept as it is; what turns the agent's own tools off, or lets long answers through, is ["mcp_toold_*"]`) {
		t.Errorf("exit %d: %s", code, errs)
	}
	m := &mcpCommand{runCommand: runCommand{app: &app{getenv: func(k string) string { return map[string]string{"HOME": filepath.Join(dir, "home")}[k] }}}}
	if lacks := m.lacks("gemini", []string{"toolctl"}); len(lacks) != 1 || !strings.HasPrefix(lacks[0], "tools.core in ") {
		t.Errorf("lacking: %q", lacks)
	}
	if lacks := m.lacks("claude", []string{"other"}); len(lacks) != 0 {
		t.Errorf("lacking: %q", lacks)
	}
}

// TestInstallTries: what was written is started once, without the name that would leave a session, and what it
// says is passed on with what to do next.
func TestInstallTries(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	var tried []string
	why := error(nil)
	install := func() (int, string) {
		var errs strings.Builder
		a := &app{
			stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, getenv: func(string) string { return "" },
			tryServer: func(_ context.Context, argv []string) (int, error) { tried = argv[1:]; return 7, why },
		}
		code := run(t.Context(), []string{"mcp", "--worktree", ".", "--name", "work", "--install", "claude"}, a)
		return code, errs.String()
	}
	if code, errs := install(); code != 0 || !strings.Contains(errs, "it has 7 tools") || strings.Join(tried, " ") != "mcp --worktree ." {
		t.Errorf("exit %d, tried %q: %s", code, tried, errs)
	}
	why = errors.New("no toold listens")
	if code, errs := install(); code != 1 || !strings.Contains(errs, "has it already") || !strings.Contains(errs, "does not start yet: no toold listens") || !strings.Contains(errs, "mcp --worktree . </dev/null") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestTryServer: a server that ends, or says no MCP, is no server, and what it said is why.
func TestTryServer(t *testing.T) {
	t.Parallel()
	if _, err := tryServer(t.Context(), []string{"sh", "-c", "echo toolctl: no toold listens at /x >&2; exit 6"}); err == nil || err.Error() != "no toold listens at /x" {
		t.Errorf("got %v", err)
	}
	const server = `while read -r l; do id=${l#*'"id":'}; id=${id%%,*}; id=${id%%\}*}; case $l in
*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}' ;;
*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}}' ;;
*'"id":'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method"}}' ;;
esac; done`
	if n, err := tryServer(t.Context(), []string{"bash", "-c", server}); err != nil || n != 1 {
		t.Errorf("%d tools, %v", n, err)
	}
}

// noticed calls do when what is written has a text for the first time.
type noticed struct {
	text string
	do   func()
	once sync.Once
	all  bytes.Buffer
}

func (n *noticed) Write(p []byte) (int, error) {
	n.all.Write(p)
	if strings.Contains(n.all.String(), n.text) {
		n.once.Do(n.do)
	}
	return len(p), nil
}

// TestMCPWhileDaemonRestarts: a server that an agent starts while no daemon listens, or while it takes no
// calls yet, is there when the daemon is.
func TestMCPWhileDaemonRestarts(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "toolctl-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &fakeDaemon{t: t, socket: filepath.Join(dir, "toold.sock"), mux: http.NewServeMux()}
	asked := 0
	d.mux.HandleFunc("GET /v1/ready", func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			answer(w, http.StatusServiceUnavailable, client.Health{Status: "starting"})
			return
		}
		answer(w, http.StatusOK, client.Health{Status: "ok"})
	})
	d.mux.HandleFunc("GET /v1/sessions/review", func(w http.ResponseWriter, _ *http.Request) {
		if asked < 3 {
			answerProblem(w, http.StatusServiceUnavailable, client.CodeOverloaded, "the daemon is still starting")
			return
		}
		answer(w, http.StatusOK, client.Session{ID: "ses_1", State: client.SessionReady})
	})
	says := &noticed{text: "waiting for it", do: func() { d.serve(t) }}
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: says, getenv: func(string) string { return "" }}
	if code := run(t.Context(), []string{"--socket", d.socket, "mcp", "--session", "review"}, a); code != 0 {
		t.Errorf("exit code %d: %s", code, &says.all)
	}
	if n := strings.Count(says.all.String(), "waiting for it"); n != 1 {
		t.Errorf("it is said %d times: %s", n, &says.all)
	}
}
