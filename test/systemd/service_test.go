package systemd

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// socketStarted is a machine that waits for the first connection.
func socketStarted(t *testing.T, files map[string]string) *machine {
	t.Helper()
	m := start(t, files)
	m.run("systemctl", "start", "toold.socket")
	return m
}

// TestFirstConnectionStarts: nothing runs until somebody connects, who then gets an
// answer to the first question; and the socket is the group's.
func TestFirstConnectionStarts(t *testing.T) {
	m := socketStarted(t, nil)
	for unit, want := range map[string]string{"toold.socket": "active", "toold.service": "inactive", "toold-sessions.service": "inactive"} {
		if got := m.show(unit, "ActiveState"); got != want {
			t.Errorf("%s is %s, want %s", unit, got, want)
		}
	}
	if got := m.run("toolctl", "session", "create", "--name", "first"); !strings.HasPrefix(got, "ses_") {
		t.Errorf("got %q", got)
	}
	// Who is answered first may be answered before systemd is told.
	m.await("systemd knows that it serves", func() bool {
		return m.show("toold.service", "ActiveState")+" "+m.show("toold.service", "StatusText") == "active serving /run/toold/toold.sock"
	})
	stat := m.run("stat", "-c", "%n %U:%G %a", "/run/toold", "/run/toold/toold.sock", "/run/toold-sandboxes", "/var/lib/toold")
	want := "/run/toold root:toold 750\n/run/toold/toold.sock root:toold 660\n/run/toold-sandboxes root:root 711\n/var/lib/toold root:root 700"
	if stat != want {
		t.Errorf("got\n%s\nwant\n%s", stat, want)
	}
	ask := []string{"curl", "--silent", "--max-time", "20", "--unix-socket", "/run/toold/toold.sock", "http://toold/v1/sessions"}
	as := func(groups string) []string {
		return append([]string{"setpriv", "--reuid=4711", "--regid=4711", groups}, ask...)
	}
	// Whoever is in the group is heard, and told that this is not enough.
	if out, err := m.try(as("--groups=toold")...); err != nil || !strings.Contains(out, "forbidden") {
		t.Errorf("a member of the group: %q, %v", out, err)
	}
	if out, err := m.try(as("--clear-groups")...); err == nil {
		t.Errorf("somebody else got %q", out)
	}
}

// TestReload: systemctl reload returns when the new configuration holds. A bad one
// changes nothing, and the unit says so.
func TestReload(t *testing.T) {
	m := socketStarted(t, map[string]string{"/etc/toold/config.toml": "[limits]\ncalls = 7\n"})
	pid := func() string { return m.show("toold.service", "MainPID") }
	m.run("toolctl", "session", "create", "--name", "before")
	before := pid()
	m.run("sh", "-c", `printf '[limits]\ncalls = 3\n' >/etc/toold/config.toml`)
	m.run("systemctl", "reload", "toold.service")
	// systemd before 253 does not know when the daemon has heard of it.
	m.await("a new session has the new limit", func() bool {
		m.run("toolctl", "session", "create", "--name", "after")
		if strings.Contains(m.run("toolctl", "session", "show", "after", "-o", "json"), `"calls": 3`) {
			return true
		}
		m.run("toolctl", "session", "rm", "after")
		return false
	})
	if got := m.run("toolctl", "session", "show", "before", "-o", "json"); !strings.Contains(got, `"calls": 7`) {
		t.Errorf("an old session: %s", got)
	}
	m.run("sh", "-c", `echo 'no such thing' >/etc/toold/config.toml`)
	m.run("systemctl", "reload", "toold.service")
	m.await("the status says that a bad configuration was refused", func() bool {
		return m.show("toold.service", "StatusText") == "serving; the last reload was refused"
	})
	m.run("toolctl", "call", "after", "list", "{}")
	if got := pid(); got != before {
		t.Errorf("another process serves: %s, then %s", before, got)
	}
	// One that cannot start is not started again and again.
	if out, err := m.try("systemctl", "restart", "toold.service"); err == nil {
		t.Errorf("a bad configuration starts: %s", out)
	}
	if got := m.show("toold.service", "NRestarts") + " " + m.show("toold.service", "Result"); got != "0 exit-code" {
		t.Errorf("restarts and result: %s", got)
	}
	m.run("sh", "-c", `rm /etc/toold/config.toml; systemctl reset-failed toold.service`)
	m.run("toolctl", "call", "after", "list", "{}")
}

// TestWatchdog: a daemon that hangs is ended by systemd and started again. Its
// sessions, and a call under way, go on meanwhile.
func TestWatchdog(t *testing.T) {
	m := socketStarted(t, map[string]string{
		"/etc/systemd/system/toold.service.d/test.conf": "[Service]\nWatchdogSec=8\nTimeoutAbortSec=1\n",
	})
	m.run("toolctl", "session", "create", "--name", "s")
	pid := m.show("toold.service", "MainPID")
	time.Sleep(17 * time.Second) // more than two intervals in which it is well
	if got := m.show("toold.service", "NRestarts") + m.show("toold.service", "MainPID"); got != "0"+pid {
		t.Fatalf("a healthy daemon was restarted: %s", got)
	}
	another := func() {
		m.await("the daemon is another one", func() bool {
			now := m.show("toold.service", "MainPID")
			return now != pid && now != "0" && m.show("toold.service", "SubState") == "running"
		})
	}
	call := m.call("s", "slow", "sleep 15; echo done")
	m.await("the call runs", func() bool { return m.running("sleep 15") == 1 })
	m.run("kill", "-STOP", pid)
	another()
	if out := m.run("journalctl", "--no-pager", "--unit=toold.service"); !strings.Contains(out, "Failed with result 'watchdog'") {
		t.Errorf("it was not the watchdog:\n%s", out)
	}
	if got := <-call; got != "done" {
		t.Errorf("the call: %q", got)
	}
	// One that still takes the watchdog's signal ends by itself, with the stacks of
	// what hangs.
	pid = m.show("toold.service", "MainPID")
	m.run("kill", "-ABRT", pid)
	another()
}

// call runs a command in a session by its id, again whenever the daemon goes away
// under it, and gives what the call printed.
func (m *machine) call(session, id, command string) <-chan string {
	result := make(chan string, 1)
	go func() {
		var err error
		var out string
		for end := time.Now().Add(callTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			out, err = m.try("toolctl", "call", session, "bash", fmt.Sprintf(`{"command":%q,"timeout":%d}`, command, callTime.Milliseconds()), "--id", id)
			if err == nil {
				result <- strings.TrimSpace(out)
				return
			}
		}
		result <- err.Error()
	}()
	return result
}

// TestRestartLosesNothing: twenty calls in four sessions run on through restarts and
// a kill of the daemon; each of them ran once, and none of its lines is missing.
func TestRestartLosesNothing(t *testing.T) {
	m := socketStarted(t, nil)
	const sessions, calls, lines = 4, 5, 200 // many times what a restart takes
	for s := range sessions {
		m.run("toolctl", "session", "create", "--name", fmt.Sprintf("s%d", s))
	}
	var want []string
	for i := range lines {
		want = append(want, fmt.Sprintf("line %d", i+1))
	}
	var wg sync.WaitGroup
	for s := range sessions {
		for c := range calls {
			name := fmt.Sprintf("s%d", s)
			id := fmt.Sprintf("call-%d-%d", s, c)
			result := m.call(name, id, fmt.Sprintf("echo %s >>ran; for i in $(seq %d); do echo line $i; sleep 0.1; done", id, lines))
			wg.Go(func() {
				if got := <-result; got != strings.Join(want, "\n") {
					t.Errorf("%s printed\n%s", id, got)
				}
			})
		}
	}
	running := func() bool { return m.running("sleep 0.1") >= sessions*calls/2 }
	m.await("calls are running", running)
	m.run("systemctl", "restart", "toold.service")
	m.await("the calls run on after a restart", running)
	m.run("systemctl", "daemon-reload")
	m.run("systemctl", "kill", "--signal=KILL", "toold.service")
	m.await("the daemon is back", func() bool { return m.show("toold.service", "SubState") == "running" })
	m.run("systemctl", "restart", "toold.service")
	wg.Wait()
	for s := range sessions {
		ran := strings.Fields(m.run("toolctl", "call", fmt.Sprintf("s%d", s), "bash", `{"command":"sort ran"}`))
		if len(ran) != calls {
			t.Errorf("session %d ran %d calls, want %d: %v", s, len(ran), calls, ran)
		}
	}
}

// TestStopLeavesSessions: without the daemon the sessions go on; the full stop ends
// them, in good order, and leaves no process and no cgroup of theirs.
func TestStopLeavesSessions(t *testing.T) {
	m := socketStarted(t, nil)
	id := m.run("toolctl", "session", "create", "--name", "s")
	call := m.call("s", "c", "for i in $(seq 40); do echo $i; sleep 0.5; done") // longer than a stop takes
	running := func() bool { return m.running("sleep 0.5") == 1 }
	m.await("the call runs", running)
	group := m.run("sh", "-c", "cat /proc/$(pgrep -o -f ^/run/toold/agent)/cgroup")
	if want := "/toold.slice/toold-sessions.service/" + id; !strings.Contains(group, want) {
		t.Errorf("the agent is in\n%s\nand not below %s", group, want)
	}
	m.run("systemctl", "stop", "toold.service", "toold.socket")
	if got := m.show("toold.service", "ActiveState"); got != "inactive" {
		t.Errorf("toold.service is %s", got)
	}
	m.await("the call runs on without a daemon", running)
	m.run("systemctl", "daemon-reload")
	m.run("systemctl", "start", "toold.socket")
	if got := strings.Fields(<-call); len(got) != 40 || got[0] != "1" || got[39] != "40" {
		t.Errorf("the call printed %q", got)
	}

	m.run("systemctl", "stop", "toold.socket", "toold-sessions.service")
	if got := m.show("toold.service", "ActiveState") + " " + m.show("toold-sessions.service", "ActiveState"); got != "inactive inactive" {
		t.Errorf("after the full stop: %s", got)
	}
	if out := strings.Join(m.processes(), "\n"); strings.Contains(out, "agent") {
		t.Errorf("after the full stop there is\n%s", out)
	}
	if out := m.sessionGroups(); out != "" {
		t.Errorf("cgroups are left:\n%s", out)
	}
	m.run("systemctl", "start", "toold.socket")
	if out := m.run("toolctl", "session", "show", id, "-o", "json"); !strings.Contains(out, `"state": "ended"`) {
		t.Errorf("the session's record: %s", out)
	}
}

// TestFullStopOfAHungDaemon: neither a daemon nor sessions that do not end by
// themselves outlive the stop of the slice.
func TestFullStopOfAHungDaemon(t *testing.T) {
	m := socketStarted(t, map[string]string{
		"/etc/systemd/system/toold.service.d/test.conf": "[Service]\nTimeoutStopSec=1\n",
		// In place of ending them in good order.
		"/etc/systemd/system/toold-sessions.service.d/test.conf": "[Service]\nExecStop=\nExecStop=/bin/false\n",
	})
	m.run("toolctl", "session", "create", "--name", "s")
	m.run("systemctl", "kill", "--signal=STOP", "toold.service")
	m.run("systemctl", "stop", "toold.socket", "toold.slice")
	if out := strings.Join(m.processes(), "\n"); strings.Contains(out, "agent") || strings.Contains(out, "bin/toold") {
		t.Errorf("after the full stop there is\n%s", out)
	}
}

// TestMachineEndsWithTheTest: what the tests boot is gone when they are killed.
func TestMachineEndsWithTheTest(t *testing.T) {
	if os.Getenv(hereVariable) != "" {
		t.Skip("this machine is none of the tests' own")
	}
	m := start(t, nil)
	keeper := m.keeper
	must(t, m.stdin.Close()) // as the death of this process does
	m.await("the machine is gone", func() bool { return syscall.Kill(keeper, 0) != nil || processState(keeper) == "Z" })
	if left := leftGroups(m.name); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
}
