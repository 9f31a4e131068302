package agents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/internal/shipped"
	"github.com/toold/toold/internal/testrig"
)

// TestLongResultsAreAskedFor: Claude Code cuts a result as long as toold's may be, where the server's list does not say that
// it may be as long (see habit); so what TestDoctor sees of long results is that it does say so.
func TestLongResultsAreAskedFor(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	a := shipped.Named("claude")
	program := installed(t, patterns[a.Name])
	for _, tt := range []struct {
		name, filter string
		whole        bool
	}{
		{"as it is", "cat", true},
		{"without what it says", "sed -u s,anthropic/maxResultSizeChars,x/maxResultSizeChars,g", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var result string
			m, err := shipped.NewModel(shipped.Script{Tool: a.Tool, Steps: []shipped.Step{{
				Tool: "bash", Input: in{"command": `seq -f "%04.0f $(printf %045d)" 1000`},
				Got: func(text string) { result = text },
			}}})
			testrig.Must(t, err)
			defer m.Close()
			run := &shipped.Run{Agent: a, Program: program, Home: t.TempDir(), Model: m.URL}
			testrig.Must(t, run.Configure())
			settings := filepath.Join(run.Home, ".claude/settings.json")
			server, err := json.Marshal(in{"mcpServers": in{"toold": in{"command": "sh", "args": []string{"-c", filepath.Join(programs, "toolctl") + " mcp --socket " + d.socket + " | " + tt.filter}}}})
			testrig.Must(t, err)
			testrig.Must(t, os.MkdirAll(filepath.Dir(settings), 0o755))
			testrig.Must(t, os.WriteFile(settings, []byte(`{"enabledMcpjsonServers": ["toold"], "permissions": {"allow": ["mcp__toold"]}, "env": {"ENABLE_TOOL_SEARCH": "false"}}`), 0o600))
			testrig.Must(t, os.WriteFile(filepath.Join(run.Home, ".mcp.json"), server, 0o600))
			runAgent(t, run, run.Env(os.Getenv))
			if whole := strings.Contains(result, "\n1000 ") && len(result) >= 51_000; whole != tt.whole {
				t.Errorf("its model has %d bytes: %.300q", len(result), result)
			}
		})
	}
}
