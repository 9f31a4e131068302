package systemd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExposure: systemd's own measure of what a service could do to the host stays
// where it is: 5.0, and 0.2 for CAP_NET_ADMIN, without which kernels before 6.12 hold no session
// where cgroups are v2 alone.
func TestExposure(t *testing.T) {
	m := start(t, nil)
	for _, unit := range []string{"toold.service", "toold-sessions.service"} {
		out, err := m.try("systemd-analyze", "security", "--no-pager", "--offline=yes", "--threshold=52", "/usr/lib/systemd/system/"+unit)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		t.Log(lines[len(lines)-1])
		if err != nil {
			t.Error(err)
		}
	}
}

// TestSameHardening: ending the sessions takes no more than running them.
func TestSameHardening(t *testing.T) {
	daemon, sessions := hardening(t, "toold.service"), hardening(t, "toold-sessions.service")
	if daemon != sessions {
		t.Errorf("toold.service has\n%s\nand toold-sessions.service\n%s", daemon, sessions)
	}
}

// hardening is what a unit says from the first setting of it on.
func hardening(t *testing.T, unit string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "deploy", "systemd", unit))
	must(t, err)
	_, block, _ := strings.Cut(string(text), "\nNoNewPrivileges=")
	block, _, _ = strings.Cut(block, "\n[")
	lines := strings.Split(strings.TrimSpace(block), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") }), "\n")
}

// TestRestartsForEver: however long the disk of the audit log is full, systemd never gives up on the
// daemon, and where it can, does not start it several times a second for hours.
func TestRestartsForEver(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "deploy", "systemd", "toold.service"))
	must(t, err)
	for _, line := range []string{"StartLimitIntervalSec=0", "Restart=on-failure", "RestartSec=200ms", "RestartSteps=10", "RestartMaxDelaySec=15s"} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("toold.service has no line %s", line)
		}
	}
}

// TestUnitsAreValid: systemd understands every line of the units, but for those
// that older versions of it do not know.
func TestUnitsAreValid(t *testing.T) {
	m := start(t, nil)
	out, err := m.try("sh", "-c", "cd /usr/lib/systemd/system && systemd-analyze verify --man=no toold.service toold.socket toold.slice toold-sessions.service 2>&1")
	for line := range strings.Lines(out) {
		if strings.Contains(line, "toold") && !strings.Contains(line, "Failed to parse service type, ignoring: notify-reload") && !strings.Contains(line, "'Restart") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// TestSessionsUnderTheHardening: a session is the same whatever the unit takes away
// from the daemon; that is so for every runtime.
func TestSessionsUnderTheHardening(t *testing.T) {
	m := socketStarted(t, nil)
	const script = `set -e
echo x >file; chmod 0751 file; stat -c %a file
nice -n 5 true
setpriv --version >/dev/null
trap : 0; exec 3<>/dev/null
ulimit -n
curl -s http://127.0.0.1:1/ || echo curl $?
`
	m.run("install", "-d", "-o", "1000", "-g", "1000", "/srv/work", "/home/work")
	for _, runtime := range []string{"runc", "runsc"} {
		t.Run(runtime, func(t *testing.T) {
			if _, err := m.try("test", "-x", "/usr/libexec/toold/"+runtime); err != nil {
				t.Skipf("there is no bin/%s: run make build", runtime)
			}
			m.run("toolctl", "session", "create", "--name", runtime, "--runtime", runtime, "--worktree", "/srv/work")
			if got, want := m.run("toolctl", "call", runtime, "bash", bash(script)), "751\n4096\ncurl 7"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			m.run("toolctl", "call", runtime, "write", `{"file_path":"written","content":"by a session\n"}`)
			if got := m.run("stat", "-c", "%u", "/srv/work/written"); got != "1000" {
				t.Errorf("the file belongs to %s", got)
			}
			m.run("systemctl", "restart", "toold.service")
			if got := m.run("toolctl", "call", runtime, "bash", bash("cat written")); got != "by a session" {
				t.Errorf("after a restart: %q", got)
			}
			m.run("toolctl", "session", "rm", runtime)
			if out := m.sessionGroups(); out != "" {
				t.Errorf("cgroups are left:\n%s", out)
			}
		})
	}
	m.run("toolctl", "session", "create", "--name", "home", "--worktree", "/home/work")
	m.run("toolctl", "call", "home", "write", `{"file_path":"x","content":""}`)
	if out := m.run("toolctl", "doctor", "-o", "json"); strings.Contains(out, `"fail"`) {
		t.Errorf("doctor: %s", out)
	}
}

// TestImageUnderTheHardening: the writable layer of a session with an image is on a
// disk of its own, not in memory, as its home directory is; it lives through a restart and is gone with the
// session.
func TestImageUnderTheHardening(t *testing.T) {
	m := socketStarted(t, map[string]string{"/etc/toold/config.toml": "[permission]\nexternal_directory = 'allow'\n"})
	m.run("sh", "-c", `
		mkdir -p /srv/image/usr/bin && install -d -m 1777 /srv/image/kept && ln -s usr/bin /srv/image/bin && cd /srv/image
		cp --dereference /usr/bin/bash /usr/bin/stat usr/bin
		cp --dereference --parents $(ldd /usr/bin/bash /usr/bin/stat | grep -o '/lib[^ ]*' | sort -u) .
		toolctl image import /srv/image --name small:1`)
	// All loop devices of the host are here; those of this machine have its paths.
	loops := func() string {
		return m.run("sh", "-c", "cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -c ^/var/lib/toold/ || true")
	}
	m.run("toolctl", "session", "create", "--name", "s", "--image", "small:1")
	m.run("toolctl", "call", "s", "bash", bash("echo kept >/kept/file"))
	if got := m.run("toolctl", "call", "s", "bash", bash("stat -f -c %T /kept; while read -r a b c d e f g h i; do case $e in /) echo $i;; esac; done </proc/self/mountinfo")); !strings.Contains(got, "overlay") {
		t.Errorf("its root: %s", got)
	}
	if got := loops(); got != "2" {
		t.Errorf("its writable layer and its home directory are on %s devices: %s", got, m.run("journalctl", "--no-pager", "-u", "toold.service"))
	}
	m.run("systemctl", "restart", "toold.service")
	if got := m.run("toolctl", "call", "s", "bash", bash("read -r x </kept/file; echo $x")); got != "kept" {
		t.Errorf("after a restart: %q", got)
	}
	m.run("toolctl", "session", "rm", "s")
	m.await("the device is let go of", func() bool { return loops() == "0" })
}
