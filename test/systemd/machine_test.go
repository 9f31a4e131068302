package systemd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// bound is how long anything may take that only has to happen some time; a virtual machine is ten
// times slower.
var bound = func() time.Duration {
	if os.Getenv(hereVariable) != "" {
		return 15 * time.Minute
	}
	return 90 * time.Second
}()

// callTime is how long one command in a machine, and so one call of a tool, may take.
const callTime = 450 * time.Second

// repository is where the units, scripts and programs are.
const repository = "../.."

// machine is a booted systemd with toold's units installed.
type machine struct {
	t   *testing.T
	pid string // of its init; "" where it is the host of this process
	log *safeBuffer

	name   string // of its cgroups
	keeper int
	stdin  io.Closer // of the keeper; the machine ends when it is closed
}

// start boots a machine. Files are laid over its root: path → content.
func start(t *testing.T, files map[string]string) *machine {
	t.Helper()
	if os.Getenv(hereVariable) != "" {
		return here(t, files)
	}
	need(t)
	over := t.TempDir()
	for path, content := range files {
		at := filepath.Join(over, path)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if target, link := strings.CutPrefix(content, "-> "); link {
			must(t, os.Symlink(target, at))
		} else {
			must(t, os.WriteFile(at, []byte(content), 0o644))
		}
	}
	name := fmt.Sprintf("toold-systemd-%d-%d", os.Getpid(), rand.Uint32())
	m := &machine{t: t, log: new(safeBuffer), name: name}
	before := sysctls(t)
	keeper := exec.Command("/proc/self/exe", name, over, installed(t), rootDir(t))
	keeper.Env = append(os.Environ(), roleVariable+"=keeper")
	keeper.Stderr = m.log
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := keeper.StdinPipe()
	must(t, err)
	stdout, err := keeper.StdoutPipe()
	must(t, err)
	must(t, keeper.Start())
	m.keeper, m.stdin = keeper.Process.Pid, stdin
	t.Cleanup(func() {
		if t.Failed() {
			m.tell()
		}
		stdin.Close()
		if err := keeper.Wait(); err != nil {
			t.Errorf("end the machine: %v\n%s", err, m.log)
		}
		if after := sysctls(t); after != before {
			t.Errorf("the host's settings have changed:\n%s\nthen\n%s", before, after)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("boot: %v\n%s", err, m.log)
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	m.pid = strings.TrimSpace(line)
	m.await("systemd is up", func() bool {
		out, _ := m.try("systemctl", "is-system-running")
		return slices.Contains([]string{"running", "degraded"}, strings.TrimSpace(out))
	})
	// As on a host: where a part of /proc is covered, no container gets its own.
	m.run("umount", "--lazy", "/proc/sys")
	return m
}

// command is one in the machine.
func (m *machine) command(args ...string) *exec.Cmd {
	if m.pid != "" {
		args = append([]string{"nsenter", "--target", m.pid, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0", "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// try runs a command in the machine and gives what it printed.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	cmd := m.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

// run is try for what must work.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	must(m.t, err)
	return strings.TrimSpace(out)
}

// show is a property of a unit.
func (m *machine) show(unit, property string) string {
	m.t.Helper()
	return m.run("systemctl", "show", "--value", "--property", property, unit)
}

// processes are the command lines of all that runs in the machine. What has ended
// and waits for its parent to hear of it does not run.
func (m *machine) processes() []string {
	m.t.Helper()
	var all []string
	for line := range strings.Lines(m.run("ps", "-e", "-o", "stat=,args=")) {
		if state, args, _ := strings.Cut(strings.TrimSpace(line), " "); !strings.HasPrefix(state, "Z") {
			all = append(all, strings.TrimSpace(args))
		}
	}
	return all
}

// running counts the processes with just this command line: it is also a part of the
// command lines of those that asked for it.
func (m *machine) running(command string) int {
	m.t.Helper()
	n := 0
	for _, args := range m.processes() {
		if args == command {
			n++
		}
	}
	return n
}

// sessionGroups lists the cgroups of sessions. Others may go away while it looks,
// which find takes for an error.
func (m *machine) sessionGroups() string {
	out, _ := m.try("find", "/sys/fs/cgroup", "-name", "ses_*")
	return strings.TrimSpace(out)
}

func (m *machine) await(what string, done func() bool) {
	m.t.Helper()
	for end := time.Now().Add(bound); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%s: not within %s", what, bound)
		}
	}
}

// tell shows what a failure may come from.
func (m *machine) tell() {
	for _, args := range [][]string{
		{"systemctl", "--no-pager", "--failed"},
		{"systemctl", "--no-pager", "status", "--lines=0", "toold.service", "toold.socket", "toold-sessions.service"},
		{"journalctl", "--no-pager", "--lines=150", "--output=short-monotonic"},
	} {
		out, err := m.try(args...)
		m.t.Logf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	m.t.Logf("console:\n%s", m.log)
}

// safeBuffer is written by one goroutine and read by another.
type safeBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// bash is the input of a bash call.
func bash(command string) string {
	b, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// sysctls are settings of the host that systemd sets where it can.
func sysctls(t *testing.T) string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"/proc/sys/fs/file-max", "/proc/sys/fs/nr_open", "/proc/sys/fs/protected_*", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/sysrq", "/proc/sys/kernel/pid_max"} {
		files, err := filepath.Glob(pattern)
		must(t, err)
		for _, f := range files {
			value, err := os.ReadFile(f)
			must(t, err)
			all = append(all, f+" = "+strings.TrimSpace(string(value)))
		}
	}
	return strings.Join(all, "\n")
}

// leftGroups lists cgroups of a machine that is gone.
func leftGroups(name string) []string {
	left, _ := filepath.Glob("/sys/fs/cgroup/" + name)
	more, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	return append(left, more...)
}

// processState is the letter that the kernel shows for a process, "" for none.
func processState(pid int) string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "State:" {
			return f[1]
		}
	}
	return ""
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
