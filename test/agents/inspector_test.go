package agents

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// inspector runs the Inspector's command line.
type inspector struct {
	t       *testing.T
	program string
	home    string
	server  []string // the command of the server, or its address
}

func newInspector(t *testing.T, server ...string) *inspector {
	return &inspector{t: t, program: installed(t, ".bin/mcp-inspector"), home: t.TempDir(), server: server}
}

func (i *inspector) command(era string, args ...string) *exec.Cmd {
	all := append([]string{"--cli", "--quiet", "--format", "json", "--protocol-era", era, "--connect-timeout", "0"}, i.server...)
	cmd := exec.CommandContext(i.t.Context(), i.program, append(all, args...)...)
	node := filepath.Dir(installed(i.t, "node-linux-*/bin/node"))
	cmd.Dir, cmd.Env = i.home, append(os.Environ(), "HOME="+i.home, "PATH="+node+":"+os.Getenv("PATH"))
	return cmd
}

// run gives the JSON that it prints.
func (i *inspector) run(era string, args ...string) map[string]any {
	i.t.Helper()
	cmd := i.command(era, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		i.t.Fatalf("%s: %v\n%s\n%s", cmd, err, out, &stderr)
	}
	var v map[string]any
	if err := json.Unmarshal(out, &v); err != nil {
		i.t.Fatalf("%s: %v in %s", cmd, err, out)
	}
	if inner, ok := v["result"].(map[string]any); ok {
		return inner
	}
	return v
}

// eras are the two protocols: with the handshake, and without.
var eras = []string{"legacy", "modern"}

// TestInspector: the Inspector lists, calls, reads and cancels, in both protocols, and has
// nothing to say against the schemas.
func TestInspector(t *testing.T) {
	d := startDaemon(t)
	dir := worktree(t, map[string]string{"a.txt": "one\n"})
	i := newInspector(t, filepath.Join(programs, "toolctl"), "mcp", "--socket", d.socket, "--worktree", dir)
	for _, era := range eras {
		i.inspect(era)
	}
	i.cancel(d)
}

// inspect does all but cancel.
func (i *inspector) inspect(era string) {
	t := i.t
	t.Helper()
	tools := i.run(era, "--method", "tools/list", "--strict")["tools"].([]any)
	if len(tools) < 8 {
		t.Errorf("%s: %d tools", era, len(tools))
	}
	r := i.run(era, "--method", "tools/call", "--tool-name", "bash", "--tool-arg", "command=cat a.txt")
	if s := r["content"].([]any)[0].(map[string]any); !strings.Contains(s["text"].(string), "one") || r["structuredContent"] != nil {
		t.Errorf("%s: %v", era, r)
	}
	templates := i.run(era, "--method", "resources/templates/list")["resourceTemplates"].([]any)
	if len(templates) != 2 {
		t.Errorf("%s: %v", era, templates)
	}
	file := i.run(era, "--method", "resources/read", "--uri", "toold://worktree/a.txt")["contents"].([]any)
	if file[0].(map[string]any)["text"] != "one\n" {
		t.Errorf("%s: %v", era, file)
	}
}

// cancel interrupts the Inspector while its call runs: the call is aborted.
func (i *inspector) cancel(d *daemon) {
	t := i.t
	t.Helper()
	cmd := i.command("legacy", "--method", "tools/call", "--tool-name", "bash", "--tool-arg", "command=echo begun; sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testrig.Must(t, cmd.Start())
	var call client.Call
	testrig.Eventually(t, "the call runs", func() bool {
		for _, s := range d.sessions() {
			list, err := d.client.ListCalls(t.Context(), s.ID, client.CallQuery{Status: client.CallRunning})
			if err == nil && len(list.Items) == 1 {
				call = list.Items[0]
				return true
			}
		}
		return false
	})
	testrig.Must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	_ = cmd.Wait() // it was interrupted
	// The terminal's signal is for toolctl too, which ends the session.
	testrig.Eventually(t, "the call has ended", func() bool {
		c, err := d.client.GetCall(t.Context(), call.ID)
		return err == nil && c.Finished() && c.IsError
	})
}
