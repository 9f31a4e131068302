package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"
)

// turn is what the scripted model does when it is asked, and what it must be told of
// the calls that it made.
type turn struct {
	name    string
	tool    string
	input   string
	meddle  func() // while the call runs
	isError bool
	want    []string
}

// block is a part of a message, of all kinds.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   string          `json:"content,omitempty"`
	IsError   *bool           `json:"is_error,omitempty"`
}

// scripted is a model that plays its turns, one a request, and then says goodbye.
type scripted struct {
	t       *testing.T
	mu      sync.Mutex // guards asked; requests come one at a time all the same
	asked   int
	turns   []turn
	meddler sync.WaitGroup
}

func (m *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var request struct {
		Tools []struct {
			Name        string
			InputSchema json.RawMessage `json:"input_schema"`
		}
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Tools) == 0 || len(request.Tools[0].InputSchema) == 0 {
		m.t.Errorf("request %d: %v, %d tools", m.asked, err, len(request.Tools))
	}
	if n := len(request.Messages); n != 2*m.asked+1 {
		m.t.Errorf("request %d has %d messages", m.asked, n)
	} else if m.asked > 0 {
		m.check(m.turns[m.asked-1], request.Messages[n-1].Content)
	}
	answer := []block{{Type: "text", Text: "goodbye"}}
	if m.asked < len(m.turns) {
		next := m.turns[m.asked]
		answer = []block{{Type: "tool_use", ID: fmt.Sprintf("toolu_%d", m.asked), Name: next.tool, Input: json.RawMessage(next.input)}}
		if next.meddle != nil {
			m.meddler.Go(next.meddle)
		}
	}
	m.asked++
	_ = json.NewEncoder(w).Encode(map[string]any{"content": answer})
}

// check compares what the agent says of a call with what a model must be able to read.
func (m *scripted) check(of turn, message json.RawMessage) {
	m.meddler.Wait()
	var results []block
	if err := json.Unmarshal(message, &results); err != nil || len(results) != 1 || results[0].Type != "tool_result" || results[0].IsError == nil {
		m.t.Errorf("%s: %v in %s", of.name, err, message)
		return
	}
	got := results[0]
	m.t.Logf("%s: is_error %v\n%s", of.name, *got.IsError, got.Content)
	if *got.IsError != of.isError {
		m.t.Errorf("%s: is_error is %v", of.name, *got.IsError)
	}
	for _, want := range of.want {
		if !strings.Contains(got.Content, want) {
			m.t.Errorf("%s: no %q in\n%s", of.name, want, got.Content)
		}
	}
}

// An agent that was written by the tutorial tells its model what happened, whatever
// happens to a call.
func TestExampleAgent(t *testing.T) {
	if why != "" {
		t.Skip(why)
	}
	if err := exec.Command("python3", "-c", "import sys; assert sys.version_info >= (3, 9)").Run(); err != nil {
		t.Skip("no python3 of version 3.9 or newer:", err)
	}
	r, err := openRig()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.close(t) })
	rules, command := r.block(t, "docs/tutorial.md", "rules"), r.block(t, "docs/tutorial.md", "agent")
	config, tree := filepath.Join(r.dir, "rules.toml"), filepath.Join(r.dir, "try")
	for _, err := range []error{os.Chmod(r.dir, 0o711), os.WriteFile(config, []byte(rules), 0o600), os.Mkdir(tree, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.start([]string{"--config", config}); err != nil {
		t.Fatal(err)
	}
	model := &scripted{t: t, turns: []turn{
		{name: "success", tool: "bash", input: `{"command": "echo hello"}`, want: []string{"hello\n"}},
		{name: "failure", tool: "bash", input: `{"command": "ls /nowhere"}`, isError: true, want: []string{"No such file", "exit code 2"}},
		{name: "denial", tool: "bash", input: `{"command": "git push origin main"}`, isError: true, want: []string{"denied", "merge queue"}},
		{name: "timeout", tool: "bash", input: `{"command": "echo begun; sleep 60", "timeout": 1000}`, isError: true, want: []string{"begun\n", "timed out after 1s"}},
		{name: "unknown tool", tool: "bosh", input: `{"command": "ls"}`, isError: true, want: []string{"bosh", "bash"}},
		{name: "unknown field", tool: "bash", input: `{"comand": "ls"}`, isError: true, want: []string{"comand", "command"}},
		{name: "wrong type", tool: "bash", input: `{"command": {"ls": 1}}`, isError: true, want: []string{"command", "string"}},
		{
			name: "killed daemon", tool: "bash", input: `{"command": "touch one; sleep 3; echo survived"}`, want: []string{"survived\n"},
			meddle: func() { await(t, filepath.Join(tree, "one")); r.restart(t, "--config", config) },
		},
		{
			name: "lost while it runs", tool: "bash", input: `{"command": "touch two; sleep 60"}`, isError: true, want: []string{"session", "lost"},
			meddle: func() { await(t, filepath.Join(tree, "two")); killSandboxes(t, r.cgroup) },
		},
		{name: "lost before", tool: "bash", input: `{"command": "ls"}`, isError: true, want: []string{"session", "is over", "create another session"}},
	}}
	server := httptest.NewServer(model)
	defer server.Close()
	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-c", command)
	cmd.Dir = "../.."
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "TOOLD_SOCKET=" + r.socket, "MODEL_URL=" + server.URL}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	said, err := cmd.Output()
	if err != nil || string(said) != "goodbye\n" {
		t.Errorf("%v, %q\n%s", err, said, stderr.String())
	}
	if model.asked != len(model.turns)+1 {
		t.Errorf("the model was asked %d times, not %d", model.asked, len(model.turns)+1)
	}
}

// The agent on the Go client does its work, and hears of what is refused and who is unknown.
func TestExampleGoAgent(t *testing.T) {
	if why != "" {
		t.Skip(why)
	}
	r, err := openRig()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.close(t) })
	tree := filepath.Join(r.dir, "try")
	for _, err := range []error{os.Chmod(r.dir, 0o711), os.Mkdir(tree, 0o755), testrig.Build(r.dir, "examples/agent"), r.start(nil)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	model := &scripted{t: t, turns: []turn{
		{name: "list of tasks", tool: "todowrite", input: `{"todos": [{"content": "write", "status": "in_progress"}]}`, want: []string{"[>] write"}},
		{name: "batch", tool: "batch", input: `{"calls": [{"tool": "write", "input": {"file_path": "a", "content": "1\n"}}, {"tool": "read", "input": {"file_path": "a"}}]}`, want: []string{"[1/2] write: ok", "[2/2] read: ok"}},
		{name: "failure", tool: "bash", input: `{"command": "exit 3"}`, isError: true, want: []string{"exit code 3"}},
		{name: "another system's name", tool: "Grep", input: `{"pattern": "1", "-n": true}`, want: []string{"a"}},
		{name: "unknown tool", tool: "bosh", input: `{}`, isError: true, want: []string{"did you mean bash?"}},
	}}
	server := httptest.NewServer(model)
	defer server.Close()
	cmd := exec.CommandContext(t.Context(), filepath.Join(r.dir, "agent"), "some-model", tree, "do it")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "TOOLD_SOCKET=" + r.socket, "MODEL_URL=" + server.URL}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if said, err := cmd.Output(); err != nil || string(said) != "goodbye\n" || model.asked != len(model.turns)+1 {
		t.Errorf("%v, %q, asked %d times\n%s", err, said, model.asked, stderr.String())
	}
	if text, err := os.ReadFile(filepath.Join(tree, "a")); err != nil || string(text) != "1\n" {
		t.Errorf("%q, %v", text, err)
	}
	if code, err := os.ReadFile("../../examples/agent/main.go"); err != nil || strings.Count(string(code), "\n") > 100 {
		t.Errorf("the agent has grown over 100 lines: %v", err)
	}
}

// The agent of the tutorial asks again where a daemon starts and takes nothing yet.
func TestTutorialAgentWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	asked, say := 0, func(w http.ResponseWriter, status int, text string) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sessions", func(w http.ResponseWriter, _ *http.Request) { say(w, 201, `{"id": "ses_1", "token": "t"}`) })
	mux.HandleFunc("GET /v1/tools", func(w http.ResponseWriter, _ *http.Request) {
		say(w, 200, `{"items": [{"name": "bash", "input_schema": {"type": "object"}}]}`)
	})
	mux.HandleFunc("DELETE /v1/sessions/ses_1", func(w http.ResponseWriter, _ *http.Request) { say(w, 200, `{}`) })
	mux.HandleFunc("POST /v1/sessions/ses_1/calls", func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			say(w, 503, `{"output": "the daemon is still starting", "is_error": true}`)
			return
		}
		say(w, 201, `{"output": "survived\n", "is_error": false}`)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	model := &scripted{t: t, turns: []turn{{name: "starting", tool: "bash", input: `{"command": "true"}`, want: []string{"survived\n"}}}}
	server := httptest.NewServer(model)
	t.Cleanup(server.Close)
	cmd := exec.CommandContext(t.Context(), "python3", "../../examples/agent.py", "model", dir, "task")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TOOLD_SOCKET=" + l.Addr().String(), "MODEL_URL=" + server.URL}
	if said, err := cmd.CombinedOutput(); err != nil || asked != 2 {
		t.Errorf("it asked %d times, %v\n%s", asked, err, said)
	}
}

// The tutorial teaches that agent and no other, and it stays short.
func TestTutorialAgent(t *testing.T) {
	agent, err := os.ReadFile("../../examples/agent.py")
	if err != nil {
		t.Fatal(err)
	}
	tutorial, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	var taught []string
	for _, part := range strings.Split(string(tutorial), "\n```python\n")[1:] {
		code, _, _ := strings.Cut(part, "\n```\n")
		taught = append(taught, code)
	}
	_, code, _ := strings.Cut(string(agent), "\n\"\"\"\n") // behind the words at its top
	if want := strings.Join(taught, "\n\n") + "\n"; code != want {
		t.Errorf("the parts of the tutorial are not examples/agent.py:\n%s", want)
	}
	if n := strings.Count(string(agent), "\n"); n > 60 {
		t.Errorf("the agent has %d lines, more than 60", n)
	}
}

// await waits for a file.
func await(t *testing.T, path string) {
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Lstat(path); err == nil {
			return
		}
	}
	t.Errorf("%s is not there after %s", path, bound)
}

// restart kills the daemon as a crash would, and starts it again.
func (r *rig) restart(t *testing.T, flags ...string) {
	if err := r.daemon.Kill(); err != nil {
		t.Error(err)
	}
	r.killed = true
	if err := r.start(flags); err != nil {
		t.Error(err)
	}
}

// killSandboxes kills every process of a rig's sessions, agents included.
func killSandboxes(t *testing.T, cgroup string) {
	killed := 0
	for _, root := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		lists, _ := filepath.Glob(root + cgroup + "/ses_*/*/cgroup.procs")
		more, _ := filepath.Glob(root + cgroup + "/ses_*/cgroup.procs")
		for _, list := range append(lists, more...) {
			text, _ := os.ReadFile(list)
			for pid := range strings.FieldsSeq(string(text)) {
				if n, err := strconv.Atoi(pid); err == nil && n > 1 && syscall.Kill(n, syscall.SIGKILL) == nil {
					killed++
				}
			}
		}
	}
	if killed == 0 {
		t.Errorf("cgroup %s has no process to kill", cgroup)
	}
}
