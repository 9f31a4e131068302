package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// These tests run the real program: what they look at (signals, descriptors,
// directories, exit codes) is the process.

// builtDir is where built put the programs; "" when no test needed them.
var builtDir string

// built makes the programs, once.
var built = sync.OnceValues(func() (dir string, err error) {
	if dir, err = testrig.MkdirTemp("toold-daemon-test-"); err != nil {
		return "", err
	}
	builtDir = dir
	return dir, testrig.Build(dir, "cmd/toold", "cmd/toolctl", "cmd/toolagent")
})

func TestMain(m *testing.M) {
	code := m.Run()
	if builtDir != "" {
		os.RemoveAll(builtDir)
	}
	os.Exit(code)
}

// requireOCI skips where containers cannot run, or fails there when the
// environment says that they must.
func requireOCI(t *testing.T) string {
	t.Helper()
	why := ""
	if os.Geteuid() != 0 {
		why = "toold needs root"
	} else if _, err := os.Stat("../../bin/runc"); err != nil {
		why = "bin/runc is not built: run make build"
	}
	if why != "" {
		testrig.Skipf(t, "oci", "%s", why)
	}
	dir, err := built()
	mustNil(t, err)
	return dir
}

// place is where one or more daemons of a test live.
type place struct {
	t               *testing.T
	dir, socket     string
	cgroup, uidBase string
	bin             string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	bin := requireOCI(t)
	dir := testrig.TempDir(t, "toold-daemon-")
	p := &place{
		t: t, dir: dir, socket: filepath.Join(dir, "run", "s.sock"), bin: bin,
		cgroup:  "/" + filepath.Base(dir),
		uidBase: fmt.Sprint(testrig.UIDs(t)),
	}
	t.Cleanup(func() {
		groups, _ := filepath.Glob("/sys/fs/cgroup/*" + p.cgroup)
		for _, g := range append(groups, "/sys/fs/cgroup"+p.cgroup) {
			_ = os.Remove(g) // empty, or the test has failed already
		}
	})
	return p
}

// instance is one running daemon.
type instance struct {
	*place
	cmd    *exec.Cmd
	log    *syncBuffer
	stdin  io.WriteCloser
	exited chan struct{}
}

// syncBuffer is a buffer that two goroutines share.
type syncBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (p *place) command(args ...string) *instance {
	p.t.Helper()
	i := &instance{place: p, log: &syncBuffer{}, exited: make(chan struct{})}
	i.cmd = exec.Command(filepath.Join(p.bin, "toold"), append([]string{
		"--socket", p.socket, "--state-dir", p.dir + "/state", "--run-dir", p.dir + "/run", "--metrics-listen", "",
		"--cgroup-parent", p.cgroup, "--uid-base", p.uidBase, "--log", "text",
	}, args...)...)
	i.cmd.Stdout, i.cmd.Stderr = i.log, i.log
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	i.stdin, err = i.cmd.StdinPipe()
	mustNil(p.t, err)
	return i
}

func (i *instance) start() *instance {
	i.t.Helper()
	started := make(chan error)
	go func() {
		// The daemon must not outlive a killed test, and the kernel counts the
		// death of the thread that started it: this one stays until the end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(i.exited)
		err := i.cmd.Start()
		started <- err
		if err == nil {
			_ = i.cmd.Wait()
		}
	}()
	mustNil(i.t, <-started)
	i.t.Cleanup(func() {
		_ = i.cmd.Process.Kill()
		<-i.exited
		if i.t.Failed() {
			i.t.Logf("log of pid %d:\n%s", i.cmd.Process.Pid, i.log)
		}
	})
	return i
}

// ready waits until the daemon answers for its sessions. One whose Engine is away says
// "failing" then.
func (i *instance) ready() *instance {
	i.t.Helper()
	c := i.client()
	testrig.Eventually(i.t, "the daemon is ready", func() bool {
		select {
		case <-i.exited:
			i.t.Fatalf("the daemon ended: %s\n%s", i.cmd.ProcessState, i.log)
		default:
		}
		h, err := c.Ready(context.Background())
		return err == nil && (h.Status == "ok" || h.Status == "failing")
	})
	return i
}

func (i *instance) client() *client.Client { return client.New(client.Options{Socket: i.socket}) }

// TestStartWithStricterRules: a file that an earlier version took starts a daemon, though by this one more is
// asked than one of its tests expects; the log says so.
func TestStartWithStricterRules(t *testing.T) {
	p := newPlace(t)
	file := p.dir + "/config.toml"
	mustNil(t, os.WriteFile(file, []byte("[permission]\nbash = 'ask'\n[[test]]\ntool = 'bash'\ninput = { command = 'ls' }\nexpect = 'allow'\n"), 0o600))
	d := p.command("--config", file).start().ready()
	testrig.Eventually(t, "the log has the test", func() bool { return strings.Contains(d.log.String(), "want allow") })
	if _, err := d.client().Reload(t.Context(), false); err == nil || !strings.Contains(err.Error(), "config.toml:3: test: bash") {
		t.Errorf("a reload: %v", err)
	}
}

// end sends a signal and gives the exit code.
func (i *instance) end(sig os.Signal) int {
	i.t.Helper()
	mustNil(i.t, i.cmd.Process.Signal(sig))
	return i.wait()
}

func (i *instance) wait() int {
	i.t.Helper()
	select {
	case <-i.exited:
	case <-time.After(60 * time.Second):
		i.t.Fatal("the daemon did not end within a minute")
	}
	return i.cmd.ProcessState.ExitCode()
}

func TestDaemonStartsAndStops(t *testing.T) {
	p := newPlace(t)
	d := p.command().start().ready()
	v, err := d.client().Version(t.Context())
	if err != nil || v.API != "v1" {
		t.Errorf("version: %+v, %v", v, err)
	}
	for path, want := range map[string]os.FileMode{
		p.dir + "/run": 0o750, p.dir + "/state": 0o700, p.dir + "/run-sandboxes": 0o711, p.socket: 0o660,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want mode %04o", path, info.Mode(), err, want)
		}
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if _, err := os.Lstat(p.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestSecondDaemonRefuses(t *testing.T) {
	p := newPlace(t)
	first := p.command().start().ready()
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"the same", "another toold uses", nil},
		{"the same state", "another toold", []string{"--run-dir", p.dir + "/run2", "--socket", p.dir + "/run2/s.sock"}},
		{"the same socket", "another daemon answers at", []string{"--run-dir", p.dir + "/run3", "--state-dir", p.dir + "/state3"}},
	} {
		second := p.command(tt.args...).start()
		if code := second.wait(); code != 1 || !strings.Contains(second.log.String(), tt.want) {
			t.Errorf("%s: exit code %d:\n%s", tt.name, code, second.log)
		}
	}
	if _, err := first.client().Health(t.Context()); err != nil {
		t.Errorf("the first daemon was disturbed: %v", err)
	}
}

func TestRunDirOfAnother(t *testing.T) {
	p := newPlace(t)
	mustNil(t, os.Mkdir(p.dir+"/run", 0o755))
	mustNil(t, os.Chown(p.dir+"/run", 4711, 4711))
	d := p.command().start()
	if code := d.wait(); code != 1 || !strings.Contains(d.log.String(), "somebody made it before toold did") {
		t.Errorf("exit code %d:\n%s", code, d.log)
	}
}

func TestReload(t *testing.T) {
	p := newPlace(t)
	file := p.dir + "/config.toml"
	write := func(text string) { mustNil(t, os.WriteFile(file, []byte(text), 0o600)) }
	const unread = "[permission.http]\n'GET https://api.example.com/secret*' = 'deny'\n" // which no request is read for
	write("[limits]\npids = 100\n" + unread)
	d := p.command("--config", file).start().ready()
	testrig.Eventually(t, "the warning at the start is in the log", func() bool {
		return strings.Contains(d.log.String(), "config.toml:4") && strings.Contains(d.log.String(), "whose requests cannot be read")
	})

	write("[limits]\npids = 0\nmemroy = '1GiB'\n")
	mustNil(t, d.cmd.Process.Signal(syscall.SIGHUP))
	testrig.Eventually(t, "the refusal is in the log", func() bool {
		l := d.log.String()
		return strings.Contains(l, "the old one stays") && strings.Contains(l, "config.toml:2: limits.pids") && strings.Contains(l, "config.toml:3: unknown key")
	})
	if _, err := d.client().Health(t.Context()); err != nil {
		t.Errorf("after a refused reload: %v", err)
	}

	// Rules that do not hold together, or that do not do what their tests say,
	// leave the old ones in place.
	for _, tt := range []struct{ text, want string }{
		{"[permission]\nbash = 'deny'\nwrite = 'deny'\n", "config.toml:3: permission: write is judged as edit"},
		{"[permission]\nbash = 'deny'\n[[test]]\ntool = 'bash'\ninput = { command = 'ls' }\nexpect = 'allow'\n", "config.toml:3: test: bash"},
		{"[permission]\nbash = = 'deny'\n", "config.toml:2: "},
	} {
		write(tt.text)
		if _, err := d.client().Reload(t.Context(), false); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "the old one stays") {
			t.Errorf("%q: got %v, want %s", tt.text, err, tt.want)
		}
		if tools, err := d.client().Tools(t.Context(), client.ToolQuery{}); err != nil || !slices.ContainsFunc(tools, func(d client.ToolDefinition) bool { return d.Name == "bash" }) {
			t.Errorf("%q: bash is gone: %v", tt.text, err)
		}
	}
	if err := os.Chmod(file, 0o622); err != nil {
		t.Fatal(err)
	}
	if _, err := d.client().Reload(t.Context(), false); err == nil || !strings.Contains(err.Error(), "can be written by others") {
		t.Errorf("a file that others can write: %v", err)
	}
	mustNil(t, os.Chmod(file, 0o600))

	write("[permission]\nbash = 'deny'\n[permission.edit]\n'a' = 'deny'\n'*' = 'ask'\n[audit]\nmode = 'lenient'\n" + unread)
	for _, dryRun := range []bool{true, false} {
		said, err := d.client().Reload(t.Context(), dryRun)
		if err != nil || len(said.Warnings) != 2 || !strings.Contains(said.Warnings[0], "config.toml:5: ") ||
			!strings.Contains(said.Warnings[0], "stands last and undoes line 4") ||
			!strings.Contains(said.Warnings[1], "config.toml:9: ") || !strings.Contains(said.Warnings[1], "whose requests cannot be read") || !slices.Equal(said.AtStart, []string{"audit.mode"}) {
			t.Errorf("dry run %v: %+v, %v", dryRun, said, err)
		}
		tools, err := d.client().Tools(t.Context(), client.ToolQuery{})
		if denied := !slices.ContainsFunc(tools, func(d client.ToolDefinition) bool { return d.Name == "bash" }); err != nil || denied == dryRun {
			t.Errorf("dry run %v: bash is denied: %v, %v", dryRun, denied, err)
		}
	}
	if tools, err := d.client().Tools(t.Context(), client.ToolQuery{}); err != nil || slices.ContainsFunc(tools, func(d client.ToolDefinition) bool { return d.Name == "bash" }) {
		t.Errorf("bash is denied, and shown: %v", err)
	}
	testrig.Eventually(t, "the warning is in the log", func() bool { return strings.Contains(d.log.String(), "stands last and undoes line 4") })

	write("[limits]\npids = 200\n[metrics]\n[sandbox]\nruntime = 'runc'\n")
	mustNil(t, d.cmd.Process.Signal(syscall.SIGHUP))
	testrig.Eventually(t, "the reload is in the log", func() bool {
		l := d.log.String()
		return strings.Contains(l, "the configuration was read again") && strings.Contains(l, "key=sandbox.runtime")
	})
}

func TestMetricsListener(t *testing.T) {
	p := newPlace(t)
	d := p.command("--metrics-listen", "127.0.0.1:0").start().ready()
	var addr string
	testrig.Eventually(t, "the address of the metrics is in the log", func() (found bool) {
		_, rest, _ := strings.Cut(d.log.String(), " metrics=")
		addr, _, found = strings.Cut(rest, "\n")
		return found
	})
	for _, tt := range []struct {
		method, path, host, origin string
		want                       int
	}{
		{"GET", "/metrics", "", "", 200},
		{"GET", "/metrics", "evil.example", "", 403},
		{"GET", "/metrics", "", "https://evil.example", 403},
		{"POST", "/metrics", "", "", 405},
		{"GET", "/v1/sessions", "", "", 404},
		{"GET", "/debug/pprof/", "", "", 404},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://"+addr+tt.path, nil)
		mustNil(t, err)
		if tt.host != "" {
			req.Host = tt.host
		}
		if tt.origin != "" {
			req.Header.Set("Origin", tt.origin)
		}
		resp, err := http.DefaultClient.Do(req)
		mustNil(t, err)
		body, err := io.ReadAll(resp.Body)
		mustNil(t, errors.Join(err, resp.Body.Close()))
		if resp.StatusCode != tt.want {
			t.Errorf("%+v: got %d", tt, resp.StatusCode)
		}
		if tt.want == 200 && !bytes.Contains(body, []byte("toold_build_info")) {
			t.Errorf("no build info in %s", body)
		}
	}
}

// TestSystemd plays systemd: it holds the socket, and listens to what the daemon
// says of itself.
func TestSystemd(t *testing.T) {
	p := newPlace(t)
	states := make(chan string, 10_000) // a daemon that is not heard does not end
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: p.dir + "/notify", Net: "unixgram"})
	mustNil(t, err)
	defer notify.Close()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, _, err := notify.ReadFromUnix(buf)
			if err != nil {
				close(states)
				return
			}
			for s := bufio.NewScanner(bytes.NewReader(buf[:n])); s.Scan(); {
				states <- s.Text()
			}
		}
	}()
	hear := func(want string) {
		t.Helper()
		for timeout := time.After(60 * time.Second); ; {
			select {
			case got := <-states:
				if strings.HasPrefix(got, want) {
					return
				}
			case <-timeout:
				t.Fatalf("systemd was not told %s", want)
			}
		}
	}

	held := p.dir + "/held.sock"
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: held, Net: "unix"})
	mustNil(t, err)
	defer ln.Close()
	fd, err := ln.File()
	mustNil(t, err)
	defer fd.Close()
	d := p.command()
	d.cmd.ExtraFiles = []*os.File{fd}
	// LISTEN_PID must be the daemon's own pid: a shell that becomes it knows that.
	d.cmd.Path, d.cmd.Args = "/bin/sh", append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}, d.cmd.Args...)
	d.cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "NOTIFY_SOCKET="+p.dir+"/notify", "WATCHDOG_USEC=200000")
	p.socket = held
	d.start().ready()
	hear("READY=1")
	hear("WATCHDOG=1")
	if _, err := os.Lstat(p.dir + "/run/s.sock"); !os.IsNotExist(err) {
		t.Errorf("a second socket was made: %v", err)
	}
	mustNil(t, d.cmd.Process.Signal(syscall.SIGHUP))
	hear("RELOADING=1")
	hear("MONOTONIC_USEC=")
	hear("READY=1")
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	hear("STOPPING=1")
	if _, err := os.Lstat(held); err != nil {
		t.Errorf("systemd's socket was removed: %v", err)
	}
}

func TestActivationRefusesTCP(t *testing.T) {
	p := newPlace(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	mustNil(t, err)
	defer ln.Close()
	fd, err := ln.(*net.TCPListener).File()
	mustNil(t, err)
	defer fd.Close()
	d := p.command()
	d.cmd.ExtraFiles = []*os.File{fd}
	d.cmd.Path, d.cmd.Args = "/bin/sh", append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}, d.cmd.Args...)
	d.cmd.Env = append(os.Environ(), "LISTEN_FDS=1")
	if code := d.start().wait(); code != 1 || !strings.Contains(d.log.String(), "never TCP") {
		t.Errorf("exit code %d:\n%s", code, d.log)
	}
}

// TestPrivateDaemonEndsWithItsInput: whoever started it may be killed.
func TestPrivateDaemonEndsWithItsInput(t *testing.T) {
	p := newPlace(t)
	d := p.command("--ephemeral").start().ready()
	s, err := d.client().CreateSession(t.Context(), client.SessionCreate{})
	mustNil(t, err)
	mustNil(t, d.stdin.Close())
	if code := d.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*" + p.cgroup + "/" + s.ID)
	if err != nil || len(groups) > 0 {
		t.Errorf("the session is still there: %v, %v", groups, err)
	}
}

// TestSessionsOutliveTheDaemon: SIGTERM and SIGKILL alike.
func TestSessionsOutliveTheDaemon(t *testing.T) {
	p := newPlace(t)
	d := p.command().start().ready()
	s, err := d.client().CreateSession(t.Context(), client.SessionCreate{})
	mustNil(t, err)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		d.end(sig)
		d = p.command().start().ready()
		got, err := d.client().GetSession(t.Context(), s.ID)
		if err != nil || got.State != client.SessionReady {
			t.Fatalf("after %v: %+v, %v", sig, got, err)
		}
	}
	ended, err := d.client().EndSession(t.Context(), s.ID, client.EndOptions{Force: true})
	if err != nil || ended.State != client.SessionEnded {
		t.Errorf("got %+v, %v", ended, err)
	}
	d.end(syscall.SIGTERM)
}

// TestStopsBesideAHangingWorktree: a daemon whose session writes to a worktree that hangs ends
// when it is told to, and leaves the session to the next one.
func TestStopsBesideAHangingWorktree(t *testing.T) {
	p := newPlace(t)
	hangs, abort := testrig.Hanging(t)
	defer abort()
	dir := filepath.Join(t.TempDir(), "tree")
	mustNil(t, os.Mkdir(dir, 0o755))
	d := p.command().start().ready()
	s, err := d.client().CreateSession(t.Context(), client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeBind}})
	mustNil(t, err)
	c, err := d.client().CreateCall(t.Context(), s.ID, client.CallCreate{Tool: "bash", Input: []byte(`{"command":"echo begun; sleep 1000"}`), WaitMillis: new(int64)}, client.CallOptions{})
	mustNil(t, err)
	testrig.Eventually(t, "the call runs", func() bool {
		c, err = d.client().GetCall(t.Context(), c.ID)
		mustNil(t, err)
		return c.Status == client.CallRunning
	})
	mustNil(t, os.Remove(dir))
	mustNil(t, os.Symlink(hangs+"/x", dir)) // as if the disk that is mounted there had gone away
	testrig.Eventually(t, "the daemon looks at it", func() bool { return strings.Contains(d.log.String(), "does not answer") })
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	d = p.command().start().ready()
	if got, err := d.client().GetSession(t.Context(), s.ID); err != nil || got.State != client.SessionReady {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = d.client().EndSession(t.Context(), s.ID, client.EndOptions{Force: true})
	mustNil(t, err)
	d.end(syscall.SIGTERM)
}

// TestIdleConnectionsAndFewDescriptors: a daemon with few descriptors and more connections than
// that, which do nothing, is ready, makes sessions and runs calls.
func TestIdleConnectionsAndFewDescriptors(t *testing.T) {
	d := newPlace(t).command().start().ready()
	mustNil(t, unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: 256}, nil))
	first, err := d.client().CreateSession(t.Context(), client.SessionCreate{})
	mustNil(t, err)
	ran := make(chan error, 1)
	running := func(session, command, want string) error {
		c, err := d.client().CreateCall(t.Context(), session, client.CallCreate{Tool: "bash", Input: fmt.Appendf(nil, `{"command":%q}`, command)}, client.CallOptions{})
		if err == nil && c.Output != want {
			err = fmt.Errorf("%q, %s", c.Output, c.Status)
		}
		return err
	}
	go func() {
		ran <- running(first.ID, "touch began; until [ -e go ]; do sleep 0.1; done; echo went", "went\n")
	}()
	mustNil(t, running(first.ID, "until [ -e began ]; do sleep 0.1; done; echo begun", "begun\n"))
	free := func() (n int) { // the lowest descriptor that the daemon has free
		for ; ; n++ {
			if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", d.cmd.Process.Pid, n)); err != nil {
				return n
			}
		}
	}
	idle := func() {
		c, err := net.Dial("unix", d.socket)
		mustNil(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
		mustNil(t, err)
	}
	before := free()
	for range 300 {
		idle()
	}
	h, err := d.client().Ready(t.Context())
	if err != nil || h.Status != "ok" {
		t.Fatalf("ready: %+v, %v", h, err)
	}
	// And with none left at all: accept itself fails then. Below the limit there have to be idle
	// connections, as there are in a process whose limit was not lowered.
	none := 0
	testrig.Eventually(t, "idle connections lie below the lowest free descriptor", func() bool {
		idle()
		none = free()
		return none > before+2*16
	})
	limit := func(n int) {
		mustNil(t, unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(n), Max: 256}, nil))
	}
	limit(none)
	soon, cancel := context.WithTimeout(t.Context(), time.Minute) // idle ones are let go by themselves after two
	defer cancel()
	if h, err := d.client().Ready(soon); err != nil || h.Status != "ok" {
		t.Fatalf("ready without a descriptor: %+v, %v", h, err)
	}
	limit(256)
	s, err := d.client().CreateSession(t.Context(), client.SessionCreate{})
	mustNil(t, err)
	if err := errors.Join(running(s.ID, "echo here", "here\n"), running(first.ID, "touch go; echo let", "let\n"), <-ran); err != nil {
		t.Error(err)
	}
	for _, id := range []string{first.ID, s.ID} {
		_, err = d.client().EndSession(t.Context(), id, client.EndOptions{Force: true})
		mustNil(t, err)
	}
	d.end(syscall.SIGTERM)
}
