package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/shipped"
	"github.com/toold/toold/internal/testrig"
)

// TestToolsAreOfferedAtOnce: Claude Code, where its model is to search for tools and no setting of toold's is there, offers those
// of toold at once all the same: the server's list asks for it.
func TestToolsAreOfferedAtOnce(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	a := shipped.Named("claude")
	program := installed(t, patterns[a.Name])
	m, err := shipped.NewModel(shipped.Script{Tool: a.Tool})
	testrig.Must(t, err)
	t.Cleanup(m.Close)
	run := &shipped.Run{Agent: a, Program: program, Home: t.TempDir(), Model: m.URL}
	testrig.Must(t, run.Configure())
	env := append(run.Env(os.Getenv), "ENABLE_TOOL_SEARCH=true")
	install := exec.CommandContext(t.Context(), filepath.Join(programs, "toolctl"), "mcp", "--socket", d.socket, "--install", a.Name)
	install.Dir, install.Env = run.Home, env
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", install, err, out)
	}
	// As whoever wrote the server into the configuration by hand has it.
	settings := filepath.Join(run.Home, ".claude/settings.json")
	testrig.Must(t, os.WriteFile(settings, []byte(`{"enabledMcpjsonServers": ["toold"], "permissions": {"allow": ["mcp__toold"]}}`), 0o600))
	runAgent(t, run, env)
	var own, search bool
	var offered []string
	for _, o := range m.Offers() {
		offered = append(offered, o.Name)
		own = own || strings.HasPrefix(o.Name, "mcp__toold__")
		search = search || o.Name == "ToolSearch"
	}
	if !own || !search {
		t.Fatalf("it offers %v: this shows nothing where its model is not to search", offered)
	}
	for _, tool := range []string{"bash", "read", "write", "edit", "glob", "grep", "list", "apply_patch"} {
		if !slices.Contains(offered, "mcp__toold__"+tool) {
			t.Errorf("%s is not among %v", tool, offered)
		}
	}
}
