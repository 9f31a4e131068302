package systemd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// TestWork: what a session is for, as an administrator of this very host would try it: each limit with its
// reason, a call over a kill of the daemon, and changes that are taken home, taken back and kept in
// bounds.
func TestWork(t *testing.T) {
	m := socketStarted(t, map[string]string{"/etc/toold/config.toml": "[limits]\nmemory = '128MiB'\npids = 64\n[[cache]]\nname = 'notes'\npath = '/caches/notes'\nsize = '48MiB'\n"})
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
	m.byDefault()
	m.fullCache()
	if out := m.sessionGroups(); out != "" {
		t.Errorf("cgroups are left:\n%s", out)
	}
}

// byDefault has a session of mode overlay change something that asks for no size of its disk, on a host
// that may have less than the default.
func (m *machine) byDefault() {
	m.t.Helper()
	m.run("toolctl", "session", "create", "--name", "d", "--worktree", "/srv/repo", "--mode", "overlay")
	var s client.Session
	must(m.t, json.Unmarshal([]byte(m.run("toolctl", "session", "show", "d", "-o", "json")), &s))
	m.t.Logf("by default its disk has %s, and its notes are %q", s.Limits.Disk, s.Notes)
	m.run("toolctl", "call", "d", "bash", bash("echo default >>a"))
	if got := m.run("toolctl", "diff", "d"); !strings.Contains(got, "+default") {
		m.t.Errorf("the diff of a session by default: %s", got)
	}
	m.run("toolctl", "fork", "d", "--name", "e")
	if got := m.run("toolctl", "call", "e", "bash", bash("tail -n 1 a")); !strings.Contains(got, "default") {
		m.t.Errorf("a fork of it has %s", got)
	}
	m.run("toolctl", "apply", "d")
	if got := m.run("tail", "-n", "1", "/srv/repo/a"); got != "default" {
		m.t.Errorf("its apply has written %q", got)
	}
	m.run("toolctl", "session", "rm", "d")
	m.run("toolctl", "session", "rm", "e")
}

// fullCache sees that a cache is bounded, whatever the kernel mounts.
func (m *machine) fullCache() {
	m.t.Helper()
	m.run("toolctl", "session", "create", "--name", "c", "--cache", "notes")
	_, told := m.result("c", "head -c 200M /dev/zero >/caches/notes/big; stat -c 'it has %s' /caches/notes/big")
	size := int64(-1)
	if _, rest, ok := strings.Cut(told, "it has "); ok {
		size, _ = strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	}
	if size < 0 || size > 48<<20 || !strings.Contains(told, "No space left on device") {
		m.t.Errorf("of 200 MiB %d bytes are in a cache of 48: %s", size, told)
	}
	if reason, told := m.result("c", "rm /caches/notes/big && echo small >/caches/notes/small && cat /caches/notes/small"); reason != "exit" || !strings.Contains(told, "small") {
		m.t.Errorf("when there is room again: %s, %s", reason, told)
	}
	m.run("toolctl", "session", "rm", "c")
}

// TestWithoutNetAdmin: where a kernel wants CAP_NET_ADMIN for saying which devices a sandbox may use,
// and the unit does not give it, doctor and the refusal of a session name it. Elsewhere sessions are made.
func TestWithoutNetAdmin(t *testing.T) {
	m := socketStarted(t, map[string]string{"/etc/systemd/system/toold.service.d/less.conf": "[Service]\nCapabilityBoundingSet=~CAP_NET_ADMIN\n"})
	m.about()
	host := m.run("sh", "-c", "[ ! -e /sys/fs/cgroup/cgroup.controllers ] || uname -r")
	var major, minor int
	_, _ = fmt.Sscanf(host, "%d.%d", &major, &minor) // none with cgroup v1, whose devices are files
	out, _ := m.try("toolctl", "doctor", "-o", "json")
	said, err := m.try("toolctl", "session", "create")
	if major > 6 || major == 6 && minor >= 12 || major == 0 {
		if err != nil {
			t.Errorf("kernel %q: %v", host, err)
		}
		return
	}
	var d client.Doctor
	must(t, json.Unmarshal([]byte(out), &d))
	i := slices.IndexFunc(d.Checks, func(c client.Check) bool { return c.Name == "device rules" })
	if i < 0 || d.Checks[i].Status != client.CheckFail || !strings.Contains(d.Checks[i].Hint, "CAP_NET_ADMIN") {
		t.Errorf("kernel %q: doctor says %+v", host, d.Checks)
	}
	if err == nil || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("kernel %q: a session: %s, %v", host, said, err)
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
