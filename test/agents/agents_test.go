package agents

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/shipped"
	"github.com/toold/toold/internal/testrig"
)

// installed is a program of an agent, or skips the test. The pattern is below
// bin/agents/node_modules.
func installed(t *testing.T, pattern string) string {
	t.Helper()
	top, err := testrig.Top()
	testrig.Must(t, err)
	dir := filepath.Join(top, "bin", "agents")
	if _, err := os.Stat(filepath.Join(dir, "installed")); err != nil {
		testrig.Skipf(t, "agents", "%v: run scripts/install-agents first", err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "node_modules", pattern))
	testrig.Must(t, err)
	if len(found) == 0 {
		testrig.Skipf(t, "agents", "there is no %s in %s for this machine", pattern, dir)
	}
	return found[0]
}

// person answers approvals: one of bash is allowed, all others are rejected.
func (d *daemon) person(ctx context.Context) (answered *heard, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	answered, done := new(heard), make(chan struct{})
	c := client.New(client.Options{Socket: d.socket})
	go func() {
		defer close(done)
		defer c.Close()
		for e, err := range c.Events(ctx, client.EventQuery{Type: client.EventApprovalAsked}) {
			if err != nil {
				return
			}
			_ = e // the list has it, and what was asked before
			list, err := c.ListApprovals(ctx, client.ApprovalQuery{})
			if err != nil {
				continue // the daemon is away: it asks again when it is back
			}
			for _, a := range list.Items {
				answer := client.AnswerReject
				if a.Requests[0].Permission == "bash" {
					answer = client.AnswerOnce
				}
				_, err := c.AnswerApproval(ctx, a.ID, client.ApprovalAnswer{Answer: answer})
				answered.add(fmt.Sprintf("%s %s: %s %v", a.Requests[0].Permission, a.Requests[0].Pattern, answer, err))
			}
		}
	}()
	return answered, func() { cancel(); <-done }
}

const (
	broken = "package add\n\nfunc Add(a, b int) int {\n\treturn a - b\n}\n"
	mended = "package add\n\nfunc Add(a, b int) int {\n\treturn a + b\n}\n"
)

// job is a module whose test fails, and what a model does about it.
type job struct {
	d    *daemon
	name string // of the directory in the worktree
}

// tree is the worktree of all jobs, so that the standard library is compiled once.
func tree() string { return filepath.Join(programs, "tree") }

func newJob(d *daemon, name string) *job {
	j := &job{d: d, name: name}
	testrig.Must(d.t, os.MkdirAll(j.path(""), 0o755))
	for file, text := range map[string]string{
		"go.mod": "module example.com/add\n\ngo 1.25\n", "add.go": broken,
		"add_test.go": "package add\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif got := Add(2, 3); got != 5 {\n\t\tt.Fatal(got)\n\t}\n}\n",
	} {
		testrig.Must(d.t, os.WriteFile(j.path(file), []byte(text), 0o644))
	}
	return j
}

func (j *job) path(file string) string { return filepath.Join(tree(), j.name, file) }

// flags are those of toolctl mcp.
func (j *job) flags() []string {
	return []string{
		"--socket", j.d.socket, "--worktree", tree(), "--env", "PATH=/usr/local/go/bin:/usr/bin:/bin", "--env", "GOFLAGS=-vet=off", "--env", "GOCACHE=/workspace/.cache",
		"--permission", "bash:rm *:deny", "--permission", "bash:chmod *:ask",
	}
}

// steps mend the module: one call is denied, one approved by a person, one loop stopped,
// and the daemon killed in between.
func (j *job) steps() []shipped.Step {
	return []shipped.Step{
		{Tool: "bash", Input: in{"command": "go test ./...", "workdir": j.name}, Want: []string{"FAIL", "-1"}},
		{Tool: "read", Input: in{"file_path": j.name + "/add.go"}, Want: []string{"return a - b"}},
		{Tool: "bash", Input: in{"command": "rm -rf " + j.name + "/add_test.go"}, Want: []string{"denied"}},
		{Tool: "bash", Input: in{"command": "chmod 644 " + j.name + "/add.go; echo changed"}, Want: []string{"changed"}},
		{Tool: "grep", Input: in{"pattern": "nothing here"}, Until: "row"},
		{Tool: "bash", Input: in{"command": "touch begun; until [ -e go ]; do sleep 0.1; done; echo went on", "workdir": j.name}, Want: []string{"went on"}, During: j.kill},
		{Tool: "edit", Input: in{"file_path": j.name + "/add.go", "old_string": "a - b", "new_string": "a + b"}, Want: []string{"add.go"}},
		{Tool: "bash", Input: in{"command": "go test ./...", "workdir": j.name}, Want: []string{"ok"}},
	}
}

// kill kills the daemon while a call runs, and lets the call go on when it is back.
func (j *job) kill() {
	for end := time.Now().Add(bound); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(j.path("begun")); err == nil {
			break
		} else if time.Now().After(end) {
			j.d.t.Error("the call during which the daemon is killed does not begin")
			return
		}
	}
	j.d.restart()
	if err := os.WriteFile(j.path("go"), nil, 0o644); err != nil {
		j.d.t.Error(err)
	}
}

// do runs an agent until it has ended.
func (j *job) do(cmd *exec.Cmd) {
	t := j.d.t
	t.Helper()
	answered, stop := j.d.person(t.Context())
	defer stop()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", cmd, err)
	}
	got, err := os.ReadFile(j.path("add.go"))
	if err != nil || string(got) != mended {
		t.Errorf("add.go is %q, %v", got, err)
	}
	if answered.with(": once <nil>") == "" {
		t.Errorf("no person has approved the call: %v", answered.notes)
	}
	if t.Failed() {
		t.Logf("%s\n%s", cmd, out)
	}
}

// configure has toolctl write the configuration of the agent, in a directory of its own.
func (j *job) configure(agent, home string, env ...string) {
	t := j.d.t
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "toolctl"), append(append([]string{"mcp"}, j.flags()...), "--install", agent)...)
	cmd.Dir, cmd.Env = home, append(os.Environ(), append(env, "HOME="+home)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// TestOpenCode: OpenCode with toold as its only hands mends a module.
func TestOpenCode(t *testing.T) {
	program := installed(t, "opencode-linux-*/bin/opencode")
	d := startDaemon(t)
	j := newJob(d, "opencode")
	m := newModel(t, func(tool string) (string, string) { return "toold_" + tool, "" }, j.steps())
	home := t.TempDir()
	opencodeConfig(t, home, m.URL, "m", `"snapshot": false`)
	j.configure("opencode", home)
	cmd := opencode(t, program, home, home, "run", "--model", "scripted/m", "Mend the module.")
	j.do(cmd)
	m.finished()
	m.only(t, "toold_")
}

// TestCodex: Codex with toold as its only hands mends a module.
func TestCodex(t *testing.T) {
	program := installed(t, "@openai/codex-linux-*/vendor/*/bin/codex")
	d := startDaemon(t)
	j := newJob(d, "codex")
	m := newModel(t, func(tool string) (string, string) { return tool, "mcp__toold" }, j.steps())
	home := t.TempDir()
	testrig.Must(t, os.WriteFile(filepath.Join(home, "config.toml"), fmt.Appendf(nil, `model = "m"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "%s/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
`, m.URL), 0o600))
	j.configure("codex", home, "CODEX_HOME="+home)
	cmd := exec.CommandContext(t.Context(), program, "exec", "--skip-git-repo-check", "Mend the module.")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "CODEX_HOME="+home, "SCRIPTED_KEY=x")
	j.do(cmd)
	m.finished()
	m.only(t, "mcp__toold", shipped.Named("codex").Keeps...)
}

// model is a scripted one of which a test wants that all its steps are made.
type model struct {
	t     *testing.T
	steps int
	*shipped.Model
}

func newModel(t *testing.T, tool func(string) (name, namespace string), steps []shipped.Step) *model {
	t.Helper()
	m, err := shipped.NewModel(shipped.Script{Tool: tool, Steps: steps, Failed: func(text string) { t.Error(text) }})
	testrig.Must(t, err)
	t.Cleanup(m.Close)
	return &model{t, len(steps), m}
}

// finished fails unless all steps were made.
func (m *model) finished() {
	m.t.Helper()
	if at := m.Steps(); at <= m.steps {
		m.t.Errorf("the agent stopped at step %d of %d; it offers %v", at, m.steps, m.Names())
	}
}

// only fails where the agent offers tools that are neither ours nor among those that cannot
// be turned off, and where one of these is not offered any more.
func (m *model) only(t *testing.T, prefix string, besides ...string) {
	t.Helper()
	names := m.Names()
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) && !slices.Contains(besides, name) {
			t.Errorf("the agent has another hand: %s", name)
		}
	}
	for _, name := range besides {
		if !slices.Contains(names, name) {
			t.Errorf("the agent does not offer %s any more: say so in docs/agents.md", name)
		}
	}
}
