package systemd

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// TestWork: what a session is for, as an administrator of this very host would try it: each limit with its
// reason, a call over a kill of the daemon, and changes that are taken home, taken back and kept in
// bounds.
func TestWork(t *testing.T) {
	m := socketStarted(t, map[string]string{"/etc/toold/config.toml": "[limits]\nmemory = '128MiB'\npids = 64\n"})
	m.about()
	if out := m.run("toolctl", "doctor", "-o", "json"); strings.Contains(out, `"fail"`) {
		t.Errorf("doctor: %s", out)
	}
	m.run("sh", "-c", "rm -rf /srv/repo && mkdir -p /srv/repo/dir && cd /srv/repo && echo old >a && echo b >dir/b && chown -R 1000:1000 .")
	id := m.run("toolctl", "session", "create", "--name", "s", "--worktree", "/srv/repo", "--mode", "overlay", "--limit", "disk=64MiB")

	for _, c := range []struct{ command, reason, told string }{
		{"echo hello", "exit", "hello"},
		{"head -c 400M /dev/zero | tail -c 400M", "memory", "128MiB"},
		{"for i in $(seq 200); do sleep 30 & done; wait", "pids", "64"},
		{"head -c 200M /dev/zero >big", "disk", "limits.disk"},
		{"rm -f big; kill -SEGV $$", "signal", "SIGSEGV"},
	} {
		if reason, told := m.result("s", c.command); reason != c.reason || !strings.Contains(told, c.told) {
			t.Errorf("%s: reason %q, want %q; it says %q", c.command, reason, c.reason, told)
		}
	}
	m.bill(id)

	call := m.call("s", "killed", "sleep 10; seq 100")
	m.await("the call runs", func() bool { return m.running("sleep 10") == 1 })
	m.run("systemctl", "kill", "--signal=KILL", "toold.service")
	if got := strings.Fields(<-call); len(got) != 100 || got[99] != "100" {
		t.Errorf("a call over a kill of the daemon printed %q", got)
	}

	m.run("toolctl", "call", "s", "bash", bash("echo new >a; rm dir/b; mkdir n; echo c >n/c"))
	m.run("toolctl", "checkpoint", "s")
	m.run("toolctl", "call", "s", "bash", bash("rm -r n a"))
	m.run("toolctl", "undo", "s")
	m.run("toolctl", "apply", "s")
	if got := m.run("sh", "-c", "cd /srv/repo && find . -type f -printf '%p %U ' | sort && cat a n/c"); !strings.Contains(got, "new\nc") || strings.Contains(got, "dir/b") {
		t.Errorf("what came home: %s", got)
	}
	m.run("toolctl", "checkpoint", "s", "applied")
	m.run("toolctl", "call", "s", "bash", bash("echo other >a; mkdir -p dir; echo d >dir/b"))
	m.run("toolctl", "restore", "s", "applied")
	m.run("toolctl", "call", "s", "bash", bash("rm -r n"))
	m.run("toolctl", "discard", "s", "--yes")
	if got := m.run("toolctl", "call", "s", "bash", bash("cat a n/c")); !strings.Contains(got, "new\nc") {
		t.Errorf("what is there after restore and discard: %s", got)
	}
	m.run("toolctl", "session", "rm", "s")
	if out := m.sessionGroups(); out != "" {
		t.Errorf("cgroups are left:\n%s", out)
	}
}

// about says what was tried, for a table of hosts.
func (m *machine) about() {
	m.t.Helper()
	m.t.Log(m.run("sh", "-c", `
		echo "kernel $(uname -r)"; systemctl --version | head -n 1
		if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo "cgroup v2 alone: $(cat /sys/fs/cgroup/cgroup.controllers)"; else echo "cgroup v1 and v2"; fi
		/usr/libexec/toold/runc --version | head -n 1; ! command -v crun >/dev/null || crun --version | head -n 1
		df -h /var/lib | tail -n 1`))
}

// result is how a command that may fail ended, and what the model was told.
func (m *machine) result(session, command string) (reason, told string) {
	m.t.Helper()
	out, _ := m.try("toolctl", "call", session, "bash", bash(command), "-o", "json")
	var got client.Call
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		m.t.Fatalf("%s: %v: %s", command, err, out)
	}
	reason, _ = got.Metadata["reason"].(string)
	return reason, got.Output
}

// bill compares what a session is said to have used with what the kernel counted, where cgroups
// are v2: its processor time is that of its cgroup.
func (m *machine) bill(id string) {
	m.t.Helper()
	counted := func() int64 {
		out, err := m.try("sh", "-c", "sed -n 's/^usage_usec //p' $(find /sys/fs/cgroup -type d -name "+id+" | head -n 1)/cpu.stat")
		must(m.t, err)
		usec, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		if err != nil {
			return -1 // not of version 2
		}
		return usec / 1000
	}
	before := counted()
	var s client.Session
	must(m.t, json.Unmarshal([]byte(m.run("toolctl", "session", "show", id, "-o", "json")), &s))
	after := counted()
	m.t.Logf("cpu: the session says %d ms, the kernel %d ms before and %d ms after", s.Usage.CPUMillis, before, after)
	if before >= 0 && (s.Usage.CPUMillis < before || s.Usage.CPUMillis > after) {
		m.t.Errorf("the session says %d ms of processor time, the kernel %d to %d", s.Usage.CPUMillis, before, after)
	}
}
