package agents

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/shipped"
	"github.com/toold/toold/internal/testrig"
)

// trial is what toolctl mcp --doctor -o json prints.
type trial struct {
	Tools    []string           `json:"tools"`
	Missing  []string           `json:"missing_tools"`
	Own      []string           `json:"own_tools"`
	Received []shipped.Received `json:"received"`
	Said     string             `json:"said"`
	Checks   []client.Check     `json:"checks"`
}

func (r *trial) check(name string) client.Check {
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	return client.Check{}
}

// patterns find the programs of agents, see installed.
var patterns = map[string]string{
	"opencode": "opencode-linux-*/bin/opencode",
	"codex":    "@openai/codex-linux-*/vendor/*/bin/codex",
	"claude":   "@anthropic-ai/claude-code-linux-*/claude",
	"gemini":   ".bin/gemini",
	"qwen":     ".bin/qwen",
	"copilot":  "@github/copilot-linux-*/copilot",
}

// doctor is a run of toolctl mcp --doctor.
func doctor(t *testing.T, socket, agent, program string, flags ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "toolctl"), append([]string{"mcp", "--socket", socket, "--doctor", agent, "--program", program}, flags...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(installed(t, "node-linux-*/bin/node"))+":"+os.Getenv("PATH"))
	return cmd
}

// denies has the daemon deny what the trial's rule may.
const denies = `[permission.bash]
"echo a command *" = { action = "deny", reason = "a model is to know why" }
`

// TestDoctor: what toold writes arrives at the model of each agent once, and unchanged, and toolctl mcp --doctor
// says so. What an agent adds, or does not send, is its own and stands in shipped.Agents. The table is in the log.
func TestDoctor(t *testing.T) {
	config := filepath.Join(t.TempDir(), "toold.toml")
	testrig.Must(t, os.WriteFile(config, []byte(denies), 0o600))
	d := startDaemon(t, "--config", config)
	var mu sync.Mutex // guards table
	table := make(map[string][]shipped.Received)
	t.Run("all", func(t *testing.T) {
		for _, a := range shipped.Agents {
			t.Run(a.Name, func(t *testing.T) {
				t.Parallel()
				cmd := doctor(t, d.socket, a.Name, installed(t, patterns[a.Name]), "-o", "json")
				cmd.Dir = t.TempDir()
				cmd.Env = append(cmd.Env, "HOME="+cmd.Dir, "CODEX_HOME=")
				install := exec.CommandContext(t.Context(), cmd.Args[0], "mcp", "--socket", d.socket, "--install", a.Name)
				install.Dir, install.Env = cmd.Dir, cmd.Env
				if out, err := install.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", install, err, out)
				}
				var said strings.Builder
				cmd.Stderr = &said
				out, err := cmd.Output()
				var r trial
				if err != nil || json.Unmarshal(out, &r) != nil {
					t.Fatalf("%s: %v\n%s%s", cmd, err, out, &said)
				}
				mu.Lock()
				table[a.Name] = r.Received
				mu.Unlock()
				r.right(t, a)
			})
		}
	})
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "agent\tof\ttoold wrote\tthe model has\ttimes\tpictures\tin place of it\taround it")
	for _, a := range shipped.Agents {
		for _, r := range table[a.Name] {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%.120q\n", a.Name, r.What, r.Wrote, r.Arrived, r.Times, r.Pictures, r.Instead, r.Around)
		}
	}
	_ = w.Flush() // into a text
	t.Log("\n" + b.String())
}

// right fails where an agent is not as it is known.
func (r *trial) right(t *testing.T, a *shipped.Agent) {
	if len(r.Tools) < 10 || len(r.Missing) > 0 || !slices.Equal(r.Own, slices.Sorted(slices.Values(a.Keeps))) {
		t.Errorf("its model is offered %v and, of its own, %v, want %v; not %v", r.Tools, r.Own, a.Keeps, r.Missing)
	}
	if len(r.Received) != len(shipped.Probes) {
		t.Fatalf("it made %d calls of %d: %s", len(r.Received), len(shipped.Probes), r.Said)
	}
	if denied := &r.Received[slices.IndexFunc(shipped.Probes, func(p shipped.Probe) bool { return p.Name == "rule" })]; denied.Wrote < len(denies)/2 {
		t.Errorf("the rule denies nothing: %+v", denied)
	}
	for i, p := range shipped.Probes {
		got := &r.Received[i]
		if got.Times != 1 || !a.Known(&p, got) || got.What != p.Name || got.Wrote < len("no such file") {
			t.Errorf("%+v, and known is %q", got, a.Adds)
		}
		want := client.CheckOK
		_, redraws := a.Redraws[p.Name]
		if p.Picture && a.Blind != "" || redraws {
			want = client.CheckWarn
		}
		if redraws != (got.Instead != "") {
			t.Errorf("of %s its model has %d, and in place of it %q; known is %q", p.Name, got.Pictures, got.Instead, a.Redraws)
		}
		if c := r.check(p.Name); c.Status != want || (c.Hint == "") != (want == client.CheckOK) {
			t.Errorf("%+v, want the status %s", c, want)
		}
	}
	if c := r.check("instructions"); a.Uninstructed == "" && c.Status != client.CheckOK || a.Uninstructed != "" && !strings.HasSuffix(c.Detail, a.Uninstructed) {
		t.Errorf("of the instructions, which have the brief and the worktree's path on the host, its model has %s (%s)", c.Detail, c.Status)
	}
	if c := r.check("installed"); c.Status != client.CheckOK {
		t.Errorf("what install wrote is not seen: %+v", c)
	}
	for _, c := range r.Checks {
		t.Logf("%s: %s: %s (%s)", c.Name, c.Status, c.Detail, c.Hint)
	}
}
