package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// bound is how long anything may take that only has to happen some time.
const bound = 2 * time.Minute

// programs is the directory of the binaries under test, with the runtime beside them.
var programs string

// why is the reason that this machine cannot run the tests; "" when it can.
var why string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if mode := os.Getenv("TOOLD_TEST_FAKE_AGENT"); mode != "" {
		return fakeAgent(mode)
	}
	dir, err := testrig.MkdirTemp("toold-agents-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	if why = build(dir); why != "" && testrig.Required("oci") {
		fmt.Fprintln(os.Stderr, "the tests are required here but cannot run:", why)
		return 1
	}
	return m.Run()
}

func build(dir string) string {
	if os.Getuid() != 0 {
		return "not root"
	}
	if _, err := testrig.Bin("runc"); err != nil {
		return err.Error()
	}
	if err := testrig.Build(dir, "cmd/toold", "cmd/toolctl", "cmd/toolagent"); err != nil {
		return err.Error()
	}
	return ""
}

// daemon is a toold that can be killed and started again.
type daemon struct {
	t      *testing.T
	socket string
	argv   []string
	log    string
	*testrig.Daemon
	client *client.Client
}

// startDaemon runs one until the test ends.
func startDaemon(t *testing.T, flags ...string) *daemon {
	t.Helper()
	if why != "" {
		t.Skip(why)
	}
	dir := testrig.TempDir(t, "toold-agents-")
	cgroup := filepath.Base(dir)
	d := &daemon{t: t, socket: testrig.Socket(dir), log: filepath.Join(dir, "log")}
	d.argv = append([]string{filepath.Join(programs, "toold"), "--ephemeral"}, testrig.Flags(dir, cgroup, testrig.UIDs(t))...)
	d.argv = append(d.argv, flags...)
	d.client = client.New(client.Options{Socket: d.socket})
	d.start()
	t.Cleanup(func() {
		d.client.Close()
		if err := errors.Join(d.CloseStdin(), testrig.RemoveCgroups(cgroup)); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of toold:\n%s", d.Log())
		}
	})
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	var err error
	d.Daemon, err = testrig.StartDaemon(d.socket, d.log, d.argv...)
	testrig.Must(d.t, err)
}

// restart kills the daemon as a crash would, and starts it again.
func (d *daemon) restart() {
	d.t.Helper()
	testrig.Must(d.t, d.Kill())
	d.start()
}

// sessions are those that live.
func (d *daemon) sessions() []client.Session {
	d.t.Helper()
	list, err := d.client.ListSessions(d.t.Context(), client.SessionQuery{})
	testrig.Must(d.t, err)
	return list.Items
}

// heard are the progress notes that a client was given.
type heard struct {
	mu    sync.Mutex // guards notes
	notes []string
}

func (h *heard) add(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, text)
}

// with is the first note with this text in it.
func (h *heard) with(text string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.notes {
		if strings.Contains(n, text) {
			return n
		}
	}
	return ""
}

// agent is a client of the SDK with a server.
type agent struct {
	t *testing.T
	*mcp.ClientSession
	heard heard
	logs  heard
	cmd   *exec.Cmd
}

// connect makes an agent with this transport.
func connect(t *testing.T, transport mcp.Transport) *agent {
	t.Helper()
	a := &agent{t: t}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			a.heard.add(r.Params.Message)
		},
		//nolint:staticcheck // what older protocols have is served
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			a.logs.add(fmt.Sprint(r.Params.Data))
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	s, err := c.Connect(ctx, transport, nil)
	testrig.Must(t, err)
	a.ClientSession = s
	t.Cleanup(func() { _ = s.Close() })
	return a
}

// toolctl connects by toolctl mcp. The socket "" is for none.
func toolctl(t *testing.T, socket string, args ...string) *agent {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "toolctl"), append([]string{"mcp"}, args...)...)
	cmd.Env = os.Environ()
	if socket != "" {
		cmd.Env = append(cmd.Env, "TOOLD_SOCKET="+socket)
	}
	cmd.Stderr = os.Stderr
	a := connect(t, &mcp.CommandTransport{Command: cmd, TerminateDuration: bound})
	a.cmd = cmd
	return a
}

// call calls a tool, with a token for progress.
func (a *agent) call(ctx context.Context, tool string, input any) (*mcp.CallToolResult, error) {
	//nolint:staticcheck // what there is of a log is served
	p := &mcp.CallToolParams{Name: tool, Arguments: input, Meta: mcp.Meta{mcp.MetaKeyLogLevel: "info"}}
	p.SetProgressToken("p")
	return a.CallTool(ctx, p)
}

// must calls a tool and gives its text.
func (a *agent) must(tool string, input any) (*mcp.CallToolResult, string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), bound)
	defer cancel()
	r, err := a.call(ctx, tool, input)
	testrig.Must(a.t, err)
	return r, text(r)
}

// asked makes a call that a person must approve, and approves it when the agent has heard
// what it waits for. The agent has a token, so the same user may answer.
func (d *daemon) asked(a *agent, hasHeard func() bool) {
	t := d.t
	t.Helper()
	done := make(chan string, 1)
	go func() {
		r, err := a.call(t.Context(), "bash", in{"command": "touch x; echo made"})
		if err != nil {
			done <- err.Error()
			return
		}
		done <- text(r)
	}()
	testrig.Eventually(t, "the agent hears what the call waits for", hasHeard)
	list, err := d.client.ListApprovals(t.Context(), client.ApprovalQuery{})
	testrig.Must(t, err)
	if len(list.Items) != 1 {
		t.Fatalf("%d approvals, want one", len(list.Items))
	}
	_, err = d.client.AnswerApproval(t.Context(), list.Items[0].ID, client.ApprovalAnswer{Answer: client.AnswerOnce})
	testrig.Must(t, err)
	testrig.Wants(t, <-done, "made")
}

// text is all text of a result.
func text(r *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

// field is one of what a result has for programs.
func field(t *testing.T, r *mcp.CallToolResult, name string) any {
	t.Helper()
	b, err := json.Marshal(r.Meta["toold/call"])
	testrig.Must(t, err)
	var m map[string]any
	testrig.Must(t, json.Unmarshal(b, &m))
	return m[name]
}

type in map[string]any

// worktree is a directory that the users of sandboxes can reach.
func worktree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := testrig.TempDir(t, "toold-agents-")
	for name, content := range files {
		testrig.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	return dir
}
