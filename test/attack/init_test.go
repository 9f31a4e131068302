package attack

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// A1: no way into the agent from a tool.
func TestA1AgentClosed(t *testing.T) {
	s := newScene(t, "")
	got := s.probe(t, "init")
	holds(t, "pidfd_getfd-stolen", got["pidfd_getfd-stolen"] == "0", "%s descriptors", got["pidfd_getfd-stolen"])
	delete(got, "pidfd_getfd-stolen")
	for n := range got {
		if n == "prlimit" {
			continue // reading limits is judged like the rest below
		}
		got.refused(t, "EACCES EPERM ESRCH ENOSYS ENOENT open_/proc/1/oom_score_adj:_permission_denied", n)
	}
	// The same user and a process that may be dumped: everything is open.
	out := weak{}.output(t, "/bin/bash", "-c", "/probe victim & sleep 0.3; /probe init $!; kill $!")
	control := parseOutcomes(out)
	if control["pidfd_getfd-stolen"] == "0" || control["open-mem"] != "ok" {
		t.Errorf("control: the probe cannot rob a process of its own user: %v", control)
	}
}

// A2: no signal reaches the agent.
func TestA2Signals(t *testing.T) {
	s := newScene(t, "")
	before, ok := agentPID(s.attacker.ID)
	if !ok {
		t.Fatal("no agent")
	}
	got := s.probe(t, "signals")
	for n := range got {
		if n != "kill-EPERM" && n != "kill-ok" {
			t.Errorf("signals: %v", got)
		}
	}
	s.bash(t, "kill -9 -1")
	s.bash(t, "kill -STOP 1; kill -STOP -1")
	if after, _ := agentPID(s.attacker.ID); after != before {
		t.Errorf("the agent was %d, is %d", before, after)
	}
	if c := s.bash(t, "echo alive"); strings.TrimSpace(c.Output) != "alive" {
		t.Errorf("next call: %q %v", c.Output, c.Error)
	}
	out := weak{}.output(t, "/bin/bash", "-c", "sleep 3600 & /probe signals $!; wait $! ; echo status $?")
	if !strings.Contains(out, "kill-ok") {
		t.Errorf("control: a process of the same user cannot be signalled: %s", out)
	}
}

// A4: a memory bomb is the end of the call and of nothing else.
func TestA4MemoryBomb(t *testing.T) {
	s := newScene(t, "")
	// More than the session may have, and kept, so that it is seen however late; but less
	// than the wall around a kernel of its own, which a larger one would reach first where
	// the agent, that keeps the limit there, has to wait for its turn.
	const bomb = "/workspace/probe eat 400 "
	for _, adj := range []string{"-", "0"} {
		c := s.bash(t, "exec "+bomb+adj+" keep")
		holds(t, "reason", c.Metadata["reason"] == "memory", "%v, output %q, error %v", c.Metadata["reason"], c.Output, c.Error)
		holds(t, "output", strings.Contains(c.Output, "out of memory"), "it does not say so: %q", c.Output)
		if c := s.bash(t, "echo next"); strings.TrimSpace(c.Output) != "next" {
			t.Errorf("next call: %q %v", c.Output, c.Error)
		}
	}
	// A bomb under a shell that goes on is seen in the counters all the same.
	c := s.bash(t, bomb+"- keep; echo rc $?")
	holds(t, "bomb under a shell", c.Metadata["reason"] != "", "metadata %v", c.Metadata)
	// Control: what fits is not touched.
	if c := s.bash(t, "/workspace/probe eat 64"); !strings.Contains(c.Output, "ate 64") {
		t.Errorf("control: %q %v", c.Output, c.Metadata)
	}
}

// A5: a fork bomb ends at the limit, and the agent can still start a program.
func TestA5ForkBomb(t *testing.T) {
	s := newScene(t, "")
	c := call(t, s.a, s.attacker.ID, "bash", map[string]any{"command": "f(){ f|f& }; f; sleep 3; echo leader done", "timeout": 5000})
	t.Logf("fork bomb: %v %v", c.Metadata["reason"], c.Status)
	if c.Metadata["reason"] != "pids" && c.Metadata["reason"] != "timeout" && c.Metadata["background_killed"] == nil {
		t.Errorf("metadata %v output %.200q", c.Metadata, c.Output)
	}
	if lines := strings.Split(c.Output, "\n"); !strings.Contains(strings.Join(lines[max(0, len(lines)-2):], "\n"), "too many processes") && c.Metadata["reason"] != "timeout" {
		t.Errorf("the last lines do not say what was refused: %q", lines[max(0, len(lines)-3):])
	}
	if c := s.bash(t, "/bin/true && echo next"); strings.TrimSpace(c.Output) != "next" {
		t.Errorf("next call: %q %v", c.Output, c.Error)
	}
}

// A6: the agent's program does nothing for a tool that starts it.
func TestA6AgentRefuses(t *testing.T) {
	s := newScene(t, "")
	c := s.bash(t, "/run/toold/agent; echo rc $?")
	if strings.Contains(c.Output, "rc 0") || !strings.Contains(c.Output, "rc ") {
		t.Errorf("%q", c.Output)
	}
}

// A7: an agent that is killed or stopped by the host costs its session, soon,
// and no call runs a second time.
func TestA7AgentKilled(t *testing.T) {
	s := newScene(t, "")
	pid, ok := agentPID(s.attacker.ID)
	if !ok {
		t.Fatal("no agent")
	}
	done := make(chan *client.Call, 1)
	go func() {
		c, _ := tryCall(s.a, s.attacker.ID, "bash", map[string]any{"command": "echo once >> /workspace/ran; echo begun; sleep 3600", "timeout": longest.Milliseconds()})
		done <- c
	}()
	testrig.Eventually(t, "the call runs and what it printed has arrived", func() bool {
		return read(s.tree+"/ran") != "" && strings.Contains(outputSoFar(t, s.a, s.attacker.ID), "begun")
	})
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	select {
	case c := <-done:
		if c == nil || c.Error == nil || c.Error.Code != client.CodeSessionLost {
			t.Errorf("the call ended as %+v", c)
		} else if !strings.Contains(c.Output, "begun") {
			t.Errorf("the output so far is gone: %q", c.Output)
		}
	case <-time.After(patience):
		t.Fatal("the call hangs after its agent was killed")
	}
	testrig.Eventually(t, "the session is lost", func() bool {
		x, err := s.a.GetSession(t.Context(), s.attacker.ID)
		return err == nil && x.State == client.SessionLost && x.Reason != ""
	})
	if got := read(s.tree + "/ran"); got != "once\n" {
		t.Errorf("the call ran %q", got)
	}
}

// outputSoFar is what the daemon has of the output of a session's newest call.
func outputSoFar(t *testing.T, c *client.Client, session string) string {
	t.Helper()
	list, err := c.ListCalls(t.Context(), session, client.CallQuery{})
	must(t, err)
	if len(list.Items) == 0 {
		return ""
	}
	r, err := c.CallOutput(t.Context(), list.Items[len(list.Items)-1].ID, client.OutputQuery{})
	if err != nil {
		return ""
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	must(t, err)
	return string(b)
}

// A8: file tools work with the tool's ids.
func TestA8FileToolIDs(t *testing.T) {
	s := newScene(t, "")
	must(t, os.Mkdir(s.tree+"/rootonly", 0o700))
	must(t, os.WriteFile(s.tree+"/rootonly/secret", []byte("secret"), 0o600))
	must(t, os.Chown(s.tree+"/rootonly", 4242, 4242)) // not the owner that is mapped
	for _, in := range []struct {
		tool  string
		input map[string]any
	}{
		{"read", map[string]any{"file_path": "/workspace/rootonly/secret"}},
		{"write", map[string]any{"file_path": "/workspace/rootonly/new", "content": "x"}},
		{"read", map[string]any{"file_path": "/proc/1/environ"}},
		{"write", map[string]any{"file_path": "/etc/new", "content": "x"}},
		{"write", map[string]any{"file_path": "/run/toold/x", "content": "x"}},
	} {
		c := call(t, s.a, s.attacker.ID, in.tool, in.input)
		if c.Status == client.CallCompleted && !c.IsError || strings.Contains(c.Output, "secret\n") {
			t.Errorf("%s %v: %q", in.tool, in.input, c.Output)
		}
	}
	call(t, s.a, s.attacker.ID, "write", map[string]any{"file_path": "/workspace/mine", "content": "x"})
	if out := s.bash(t, "stat -c %u:%g /workspace/mine").Output; strings.TrimSpace(out) != "1000:1000" {
		t.Errorf("control: the file belongs to %q", out)
	}
}

// A9: a tool's environment is an allow-list.
func TestA9Environment(t *testing.T) {
	s := newScene(t, "")
	c := s.bash(t, "env; tr '\\0' '\\n' < /proc/self/environ")
	allowed := " PATH HOME LANG TERM TMPDIR USER LOGNAME SHELL PWD SHLVL _ OLDPWD LC_ALL TOOLD_SESSION " +
		"npm_config_offline PIP_RETRIES PIP_DISABLE_PIP_VERSION_CHECK UV_OFFLINE CARGO_NET_OFFLINE GOPROXY "
	for line := range strings.Lines(c.Output) {
		k, _, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.Contains(allowed, " "+k+" ") && !strings.HasPrefix(k, "GIT_CONFIG_") {
			t.Errorf("in the environment: %s", line)
		}
	}
	for _, bad := range []string{"BASH_ENV", "ENV", "LD_PRELOAD", "BASH_FUNC_x%%", "GIT_SSH_COMMAND"} {
		_, err := s.a.CreateSession(t.Context(), client.SessionCreate{Env: map[string]string{bad: "x"}})
		if err == nil {
			t.Errorf("a session with %s was made", bad)
		}
	}
}
