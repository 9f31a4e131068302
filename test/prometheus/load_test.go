package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// config is the daemon's: small limits, so that there are kills and spilled
// outputs soon; rules that deny and ask; hooks that answer and fail.
const config = `
[tenant.ci]
uids = [40001]
max_sessions = 5
max_calls = 50

[limits]
memory = "160MiB"
tmp = "16MiB"
pids = 128

[truncate]
max_bytes = 4096

[approvals]
self_approve = true

[permission]
"*" = "allow"
doom_loop = "deny"

[network]
mode = "rules"

[permission.network]
"127.0.0.1:*" = "allow"

[permission.bash]
"*" = "allow"
"echo forbidden*" = { action = "deny", reason = "the test wants it so" }
"echo please*" = "ask"

[[hook]]
on = "call.before"
command = ["/bin/echo", '{"action":"allow"}']
match = { tool = "glob" }

[[hook]]
on = "call.before"
command = ["/bin/echo", '{"action":"deny","reason":"not today"}']
match = { tool = "list" }

[[hook]]
on = "call.after"
command = ["/bin/false"]
match = { tool = "grep" }
fail = "open"
`

// load makes something happen of everything that is counted. When it returns an
// approval is still pending.
type load struct {
	t *testing.T
	d *daemon
	// waiting ends when the call that waits for an approval does.
	waiting sync.WaitGroup
}

func (l *load) session(c *client.Client, w client.Worktree) *client.Session {
	l.t.Helper()
	s, err := c.CreateSession(context.Background(), client.SessionCreate{Worktree: w})
	must(l.t, err)
	return s
}

// call makes a call and says how it ended.
func (l *load) call(c *client.Client, session, tool string, input map[string]any) *client.Call {
	l.t.Helper()
	got, err := tryCall(c, session, tool, input)
	if err != nil {
		l.t.Fatalf("%s %v: %v", tool, input, err)
	}
	return got
}

// tryCall is call for other goroutines than the test's.
func tryCall(c *client.Client, session, tool string, input map[string]any) (*client.Call, error) {
	raw, err := json.Marshal(input)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
	defer cancel()
	return c.CreateCall(ctx, session, client.CallCreate{Tool: tool, Input: raw}, client.CallOptions{})
}

func (l *load) bash(c *client.Client, session, command string) *client.Call {
	l.t.Helper()
	return l.call(c, session, "bash", map[string]any{"command": command})
}

// want checks how a call ended, for the metrics are to show it.
func (l *load) want(c *client.Call, status client.CallStatus, isError bool, code client.Code, reason string) {
	l.t.Helper()
	var got client.Code
	if c.Error != nil {
		got = c.Error.Code
	}
	if r, _ := c.Metadata["reason"].(string); c.Status != status || c.IsError != isError || got != code || reason != "" && r != reason {
		l.t.Errorf("%s %s: status %s, is_error %v, %v, %v; want %s, %v, %q, %q", c.Tool, c.Input, c.Status, c.IsError, c.Error, c.Metadata, status, isError, code, reason)
	}
}

func (l *load) run() {
	source := testrig.TempDir(l.t, "toold-prometheus-")
	a := l.session(l.d.admin, client.Worktree{Source: source, Mode: client.WorktreeOverlay})
	b := l.session(l.d.ci, client.Worktree{})
	l.tools(a.ID)
	l.worktree(a.ID)
	l.network(a.ID)
	l.limits(b.ID)
	l.policy(a.ID)
	l.approvals(a.ID)
	l.reload()
	over := l.session(l.d.ci, client.Worktree{})
	_, err := l.d.ci.EndSession(context.Background(), over.ID, client.EndOptions{})
	must(l.t, err)
}

// worktree looks at what the tools have changed, and goes back to it under a name that is
// taken the second time.
func (l *load) worktree(id string) {
	c, ctx := l.d.admin, context.Background()
	_, err := c.Changes(ctx, id, client.DiffQuery{})
	must(l.t, err)
	_, err = c.Checkpoint(ctx, id, client.CheckpointCreate{Name: "one"})
	must(l.t, err)
	if _, err := c.Checkpoint(ctx, id, client.CheckpointCreate{Name: "one"}); err == nil {
		l.t.Error("a name was given twice")
	}
	_, err = c.Discard(ctx, id, client.DiscardRequest{})
	must(l.t, err)
}

// network goes out by the proxy: to a listener of the test's, and to where no rule lets it.
func (l *load) network(id string) {
	far, err := net.Listen("tcp", "127.0.0.1:0")
	must(l.t, err)
	defer far.Close()
	l.waiting.Go(func() {
		c, err := far.Accept()
		if err == nil {
			_, err = c.Write([]byte("far\n"))
			err = errors.Join(err, c.Close())
		}
		if err != nil {
			l.t.Error(err)
		}
	})
	connect := func(to string) *client.Call {
		return l.bash(l.d.admin, id, "python3 -c 'import socket; s = socket.create_connection((\"127.0.0.1\", 3128)); "+
			"s.sendall(b\"CONNECT "+to+" HTTP/1.1\\r\\nHost: "+to+"\\r\\n\\r\\n\"); print(s.makefile().read())'")
	}
	got := connect(far.Addr().String())
	l.want(got, client.CallCompleted, false, "", "exit")
	if !strings.Contains(got.Output, "far\n") {
		l.t.Errorf("through the proxy came %q", got.Output)
	}
	denied := connect("192.0.2.1:443")
	if want := `network: 192.0.2.1:443 was denied by default (network "*")`; !strings.HasSuffix(strings.TrimSpace(denied.Output), want) {
		l.t.Errorf("the result is %q, want %q at its end", denied.Output, want)
	}
}

// tools calls each tool, well and badly.
func (l *load) tools(id string) {
	c := l.d.admin
	l.want(l.bash(c, id, "echo hello"), client.CallCompleted, false, "", "exit")
	l.want(l.bash(c, id, "exit 3"), client.CallCompleted, true, "", "exit")
	l.want(l.call(c, id, "write", map[string]any{"file_path": "/workspace/a.txt", "content": "one\n"}), client.CallCompleted, false, "", "")
	l.want(l.call(c, id, "read", map[string]any{"file_path": "/workspace/a.txt"}), client.CallCompleted, false, "", "")
	l.want(l.call(c, id, "edit", map[string]any{"file_path": "/workspace/a.txt", "old_string": "one", "new_string": "two"}), client.CallCompleted, false, "", "")
	l.call(c, id, "read", map[string]any{"file_path": "/dev/null"})
	l.call(c, id, "glob", map[string]any{"pattern": "*.txt"})
	l.call(c, id, "grep", map[string]any{"pattern": "two"})
	l.call(c, id, "list", map[string]any{})
	l.call(c, id, "bash", map[string]any{"command": "echo lenient", "timeout": "5000"}) // a number as text
}

// limits runs into them.
func (l *load) limits(id string) {
	c := l.d.ci
	long := l.bash(c, id, "seq 100000")
	if cut, _ := long.Metadata["truncated"].(bool); !cut {
		l.t.Errorf("the output was not cut: %v", long.Metadata)
	}
	l.want(l.call(c, id, "bash", map[string]any{"command": "sleep 100", "timeout": 300}), client.CallCompleted, true, "", "timeout")
	l.want(l.bash(c, id, "head -c 1G /dev/zero | tail >/dev/null"), client.CallCompleted, true, "", "memory")
	l.bash(c, id, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
}

// policy is denied, and repeats itself.
func (l *load) policy(id string) {
	c := l.d.admin
	l.want(l.bash(c, id, "echo forbidden fruit"), client.CallError, true, client.CodeDenied, "")
	last := l.bash(c, id, "echo again")
	for range 5 {
		last = l.bash(c, id, "echo again")
	}
	l.want(last, client.CallError, true, client.CodeDoomLoop, "")
}

// reload is refused, and put right.
func (l *load) reload() {
	for _, tt := range []struct{ added, want string }{
		{"\n[no_such_section]\n", "toold_config_last_reload_successful 0\n"},
		{"", "toold_config_last_reload_successful 1\n"},
	} {
		must(l.t, os.WriteFile(l.d.config, []byte(config+tt.added), 0o600))
		if _, err := l.d.admin.Reload(context.Background(), false); (err == nil) != (tt.added == "") {
			l.t.Errorf("reload with %q: %v", tt.added, err)
		}
		if text := l.d.scrape(l.t); !bytes.Contains(text, []byte(tt.want)) {
			l.t.Errorf("after a reload with %q: no %q", tt.added, tt.want)
		}
	}
}

// approvals are given, refused, and the last one is not answered.
func (l *load) approvals(id string) {
	for _, answer := range []client.Answer{client.AnswerOnce, client.AnswerReject, ""} {
		done := make(chan error, 1)
		l.waiting.Go(func() {
			_, err := tryCall(l.d.admin, id, "bash", map[string]any{"command": "echo please " + string(answer)})
			done <- err
		})
		a := l.pending()
		if answer == "" {
			return
		}
		_, err := l.d.admin.AnswerApproval(context.Background(), a.ID, client.ApprovalAnswer{Answer: answer})
		must(l.t, err)
		must(l.t, <-done)
	}
}

// pending waits for the approval that is pending.
func (l *load) pending() (a client.Approval) {
	l.t.Helper()
	eventually(l.t, "an approval is pending", func() error {
		list, err := l.d.admin.ListApprovals(context.Background(), client.ApprovalQuery{})
		if err != nil || len(list.Items) != 1 {
			return errors.Join(err, fmt.Errorf("got %v", list))
		}
		a = list.Items[0]
		return nil
	})
	return a
}

// end ends all sessions, and with them what still waits.
func (l *load) end() {
	for _, c := range []*client.Client{l.d.admin, l.d.ci} {
		list, err := c.ListSessions(context.Background(), client.SessionQuery{})
		if err != nil {
			l.t.Error(err)
			continue
		}
		for _, s := range list.Items {
			if _, err := c.EndSession(context.Background(), s.ID, client.EndOptions{Force: true}); err != nil {
				l.t.Error(err)
			}
		}
	}
	l.waiting.Wait()
}
