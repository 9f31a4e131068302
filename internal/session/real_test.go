package session

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/image"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/docker"
	"github.com/toold/toold/internal/sandbox/oci"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/worktree/layers"
)

// The tests of this file use real sandboxes: runc, and the agent as it ships.

// needOCI skips a test where no container can be made. TOOLD_TEST_REQUIRE turns
// the skip into a failure.
func needOCI(t testing.TB) (runc string) {
	t.Helper()
	if os.Getuid() != 0 {
		testrig.Skipf(t, "oci", "containers are made by root only")
	}
	runc, err := filepath.Abs("../../bin/runc")
	if err == nil {
		_, err = os.Stat(runc)
	}
	if err != nil {
		testrig.Skipf(t, "oci", "bin/runc is not built: %v", err)
	}
	return runc
}

// realHouse is the directory and the names of a daemon with real sandboxes.
type realHouse struct {
	Dir, Runc, Agent, Owner, Cgroup string
	// Engine is the host of a Docker Engine that makes them; "" where Runc does.
	Engine  string
	UIDBase uint32
	// Job is what a child is to do with it: "calls", "churn", "clean", "tree" or "reboot".
	Job string
	// Op is what "tree" does, Step where it dies, Over the session that is over to which it does it.
	// "reboot" has its source in Op.
	Op, Over string
	Step     int
}

func newRealHouse(t testing.TB) *realHouse {
	t.Helper()
	runc := needOCI(t)
	dir, err := testrig.MkdirTemp("toold-session-")
	if err != nil {
		t.Fatal(err)
	}
	var random [6]byte
	_, _ = rand.Read(random[:])
	name := hex.EncodeToString(random[:])
	h := &realHouse{
		Dir: dir, Runc: runc, Agent: filepath.Join(dir, "toolagent"), Owner: "session-test-" + name, Cgroup: "/toold-session-test-" + name,
		UIDBase: testrig.UIDs(t),
	}
	testrig.Must(t, testrig.Doomed(strings.TrimPrefix(h.Cgroup, "/")))
	t.Cleanup(func() {
		clean := h.child(t, "clean")
		clean.SysProcAttr = nil // it ends by itself
		if err := clean.Run(); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	if err := testrig.Build(dir, "cmd/toolagent"); err != nil {
		t.Fatal(err)
	}
	return h
}

// newRealHouseOfGVisor is one whose sessions are gVisor's.
func newRealHouseOfGVisor(t testing.TB) *realHouse {
	t.Helper()
	h := newRealHouse(t)
	runsc, err := testrig.Bin("runsc")
	if err != nil {
		testrig.Skipf(t, "runsc", "%v", err)
	}
	h.Runc = runsc // what a runtime is, is not read from its name
	return h
}

// source is a directory of alice's that sessions may have as their source: t.TempDir is closed to her.
func source(t testing.TB) string {
	t.Helper()
	dir := testrig.TempDir(t, "toold-source-")
	if err := os.Chown(dir, int(alice.UID), int(alice.GID)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// child is the test binary with a job.
func (h *realHouse) child(t testing.TB, job string) *exec.Cmd {
	t.Helper()
	config := *h
	config.Job = job
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(b))
	cmd.Stderr = os.Stderr
	// A daemon must not outlive the tests. It ends with the thread that has made
	// it, which is therefore to be kept from others: drivers have threads that end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// driver is called by the name of Config.Driver, too. It is closed where it is an io.Closer.
func (h *realHouse) driver(log *slog.Logger) (name string, d sandbox.Driver, err error) {
	if h.Engine != "" {
		d, err = docker.New(docker.Config{
			Host: h.Engine, Image: sandboxtest.EngineImage, StateDir: filepath.Join(h.Dir, "driver"), RunDir: filepath.Join(h.Dir, "run"),
			AgentBinary: h.Agent, Ripgrep: filepath.Join(h.Dir, "ripgrep"), CgroupParent: h.Cgroup, Log: log,
		})
		return docker.Name, d, err
	}
	d, err = oci.New(oci.Config{
		Runtimes: map[string]string{"runc": h.Runc}, StateDir: filepath.Join(h.Dir, "driver"), RunDir: filepath.Join(h.Dir, "run"),
		AgentBinary: h.Agent, Ripgrep: filepath.Join(h.Dir, "ripgrep"), Rootfs: "host", CgroupParent: h.Cgroup, Log: log,
	})
	return oci.Name, d, err
}

// clean removes what is left of the house.
func (h *realHouse) clean() error {
	if _, err := os.Stat(h.Agent); err != nil {
		return os.RemoveAll(h.Dir) // there was no daemon
	}
	_, d, err := h.driver(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	left, err := d.List(context.Background(), h.Owner)
	errs := []error{err}
	for _, rec := range left {
		errs = append(errs, d.Destroy(context.Background(), rec))
	}
	errs = append(errs, os.RemoveAll(h.Dir))
	groups, _ := filepath.Glob("/sys/fs/cgroup/*" + h.Cgroup)
	for _, g := range append(groups, "/sys/fs/cgroup"+h.Cgroup) {
		if err := os.Remove(g); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// open starts a daemon of the house.
func (h *realHouse) open(log *slog.Logger) (*Manager, func() error, error) {
	name, d, err := h.driver(log)
	if err != nil {
		return nil, nil, err
	}
	st, err := store.Open(store.Config{Path: filepath.Join(h.Dir, "toold.db"), Log: log})
	if err != nil {
		return nil, nil, err
	}
	set := testSettings()
	set.Limits.Memory, set.MaxLimits.Memory, set.Limits.PIDs = 128<<20, 0, 64
	set.Limits.CPUs, set.Limits.FileSize, set.Limits.Tmp = 0, 64<<20, 16<<20
	set.Limits.Disk = 32 << 20
	// No call ends because the host is slow.
	wall := client.Duration(10 * time.Minute)
	set.Limits.Wall, set.MaxLimits.Wall, set.BashTimeout = wall, wall, time.Duration(wall)
	trees, err := layers.Open(filepath.Join(h.Dir, "worktrees"))
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	caches, err := cache.Open(filepath.Join(h.Dir, "caches"))
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	images, err := image.Open(filepath.Join(h.Dir, "images"), log)
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	all := map[string]Images{oci.Name: images}
	if d, ok := d.(*docker.Driver); ok {
		all[docker.Name] = d.Images()
	}
	m, err := New(Config{
		Trees: trees, Caches: caches, Images: all,
		Store: st, Tools: tool.NewRegistry(), Drivers: map[string]sandbox.Driver{name: d}, Driver: name,
		Log: log, Owner: h.Owner, OutputDir: filepath.Join(h.Dir, "output"), JournalDir: filepath.Join(h.Dir, "transactions"), UIDBase: h.UIDBase, UIDClaims: filepath.Join(h.Dir, "uids"), Settings: set,
	})
	if err == nil {
		if err = m.Start(context.Background()); err != nil {
			err = errors.Join(err, m.Close(context.Background()), trees.Close())
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, st.Close(), images.Close())
	}
	return m, func() error {
		err := errors.Join(m.Close(context.Background()), trees.Close(), images.Close(), st.Close())
		if c, ok := any(d).(io.Closer); ok {
			err = errors.Join(err, c.Close())
		}
		return err
	}, nil
}

// openReal opens a daemon that ends, with its sessions, when the test does.
func openReal(t testing.TB, h *realHouse) *Manager {
	t.Helper()
	m, stop, err := h.open(slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.EndAll(context.Background()), stop()); err != nil {
			t.Error(err)
		}
	})
	return m
}

type logTo struct{ t testing.TB }

func (l logTo) Write(p []byte) (int, error) {
	l.t.Logf("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

func realCall(t testing.TB, m *Manager, session, name string, input any) *client.Call {
	t.Helper()
	raw, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.calls.Call(t.Context(), alice, session, client.CallCreate{Tool: name, Input: raw}, call.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type object map[string]any

func TestRealSession(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	s, err := m.Create(t.Context(), alice, client.SessionCreate{Env: map[string]string{"GREETING": "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	bash := func(command string) *client.Call {
		t.Helper()
		return realCall(t, m, s.ID, "bash", object{"command": command})
	}
	if c := bash("echo $GREETING from $(id -u); exit 3"); c.Output != "hello from 1000\nexit code 3" || c.Metadata["exit_code"] != int64(3) || c.Usage.DurationMillis <= 0 && c.Usage.CPUMillis < 0 {
		t.Errorf("bash: %+v", c)
	}
	if c := realCall(t, m, s.ID, "write", object{"file_path": "a.txt", "content": "one\ntwo\n"}); c.Error != nil || c.IsError {
		t.Errorf("write: %+v", c)
	}
	if c := realCall(t, m, s.ID, "read", object{"file_path": "a.txt"}); !strings.Contains(c.Output, "two") {
		t.Errorf("read: %+v", c)
	}
	if c := bash("seq 1 5000"); c.Metadata["truncated"] != true || c.Metadata["total_lines"] != int64(5000) {
		t.Errorf("seq: %v", c.Metadata)
	} else if d := bash(fmt.Sprintf("wc -l < %s; tail -1 %s", c.Metadata["output_path"], c.Metadata["output_path"])); d.Output != "5000\n5000\n" {
		t.Errorf("the saved output, from inside: %q", d.Output)
	}
	// A program that takes more than it may have ends; the session goes on.
	for _, tt := range []struct{ command, reason string }{
		{"head -c 400M /dev/zero | tail -c 400M | wc -c; exit ${PIPESTATUS[1]}", "memory"},
		{"cat /dev/zero > /tmp/x; exit 1", "disk"},
	} {
		if c := bash(tt.command); c.Metadata["reason"] != tt.reason || !c.IsError {
			t.Errorf("%s: %v, %q", tt.command, c.Metadata, c.Output)
		}
		if c := bash("echo next"); !strings.HasPrefix(c.Output, "next\n") || c.IsError { // that /tmp is full is said
			t.Errorf("after %s: %+v", tt.command, c)
		}
	}
	up, err := m.Files.Upload(t.Context(), alice, s.ID, "up.bin", 0o700, strings.NewReader("\x00\xffbytes"))
	if err != nil || up.IsError || up.Error != nil {
		t.Fatalf("upload: %+v, %v", up, err)
	}
	r, n, err := m.Files.Download(t.Context(), alice, s.ID, "up.bin")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if r.Close(); err != nil || string(b) != "\x00\xffbytes" || n != int64(len(b)) {
		t.Errorf("download: %q, %d, %v", b, n, err)
	}
}

// childEnv makes the test binary a daemon that makes sessions and calls, says
// which, and waits to be killed.
const childEnv = "TOOLD_SESSION_TEST_DAEMON"

const (
	crashSessions = 20
	crashLines    = 400
)

func childDaemon(config string) {
	var h realHouse
	err := json.Unmarshal([]byte(config), &h)
	if err == nil {
		err = map[string]func() error{"calls": h.makeCalls, "churn": h.churn, "clean": h.clean, "tree": h.changeTree, "reboot": h.makeOverlaid}[h.Job]()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (h *realHouse) makeCalls() error {
	m, _, err := h.open(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	zero := int64(0)
	for i := range crashSessions {
		s, err := m.Create(context.Background(), alice, client.SessionCreate{})
		if err != nil {
			return err
		}
		// Every other output is long enough to go to a file at once.
		command := fmt.Sprintf("for i in $(seq 1 %d); do echo line $i %s; sleep 0.01; done", crashLines, strings.Repeat("x", i%2*400))
		r := bashCall(command)
		r.WaitMillis = &zero
		c, err := m.calls.Call(context.Background(), alice, s.ID, r, call.Options{})
		if err != nil {
			return err
		}
		for c.Status == client.CallPending { // one that has not begun is not made by the next daemon
			time.Sleep(time.Millisecond)
			if c, err = m.calls.GetCall(context.Background(), alice, c.ID); err != nil {
				return err
			}
		}
		fmt.Println(c.ID)
	}
	fmt.Println("all")
	select {}
}

func TestRealDaemonIsKilled(t *testing.T) {
	t.Parallel()
	h := newRealHouse(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := h.child(t, "calls")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "all" {
		ids = append(ids, lines.Text())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if len(ids) != crashSessions {
		t.Fatalf("%d calls were made", len(ids))
	}
	start := time.Now()
	m := openReal(t, h)
	t.Logf("%d sessions were taken over in %s", len(m.live()), time.Since(start))
	if n := len(m.live()); n != crashSessions {
		t.Errorf("%d sessions live on", n)
	}
	for i, id := range ids {
		var want strings.Builder
		for n := 1; n <= crashLines; n++ {
			fmt.Fprintf(&want, "line %d %s\n", n, strings.Repeat("x", i%2*400))
		}
		var c *client.Call
		awaitFor(t, 5*time.Minute, "call "+id+" has ended", func() bool {
			c, err = m.calls.GetCall(t.Context(), alice, id)
			return err != nil || c.Finished()
		})
		if err != nil || c.Status != client.CallCompleted || c.IsError {
			t.Errorf("call %d: %+v, %v", i, c, err)
			continue
		}
		r, _, err := m.calls.Output(t.Context(), alice, id, client.OutputQuery{})
		if err != nil {
			t.Errorf("output %d: %v", i, err)
			continue
		}
		got, err := io.ReadAll(r)
		r.Close()
		// A line without its x ends in a blank that echo does not print.
		if strings.ReplaceAll(want.String(), " \n", "\n") != string(got) || err != nil {
			t.Errorf("output %d: %d bytes, %v", i, len(got), err)
		}
	}
}

func TestRealDoctor(t *testing.T) {
	t.Parallel()
	h := newRealHouse(t)
	m := openReal(t, h)
	set := *m.settings.Load()
	set.Network.Mode = client.NetworkRules
	m.Reload(set)
	admin := auth.Principal{Tenant: "default", Admin: true}
	d, err := doctorOf(m).Doctor(t.Context(), admin, true)
	if err != nil {
		t.Fatal(err)
	}
	boundary := false
	for _, c := range d.Checks {
		if c.Probed && c.Status == client.CheckFail {
			t.Errorf("%s %s: %s", c.Group, c.Name, c.Detail)
		}
		boundary = boundary || c.Group == "network" && strings.HasSuffix(c.Detail, "none arrived at a listener of this host")
		t.Logf("%-8s %-20s %-5s %s", c.Group, c.Name, c.Status, c.Detail)
	}
	if !boundary {
		t.Error("the boundary of the network was not tried")
	}
	if n := len(m.live()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// BenchmarkRealCall is a call of a warm session, without HTTP.
func BenchmarkRealCall(b *testing.B) {
	h := newRealHouse(b)
	m := openReal(b, h)
	s, err := m.Create(b.Context(), alice, client.SessionCreate{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("bash", func(b *testing.B) {
		for b.Loop() {
			if c := realCall(b, m, s.ID, "bash", object{"command": "true"}); c.IsError || c.Error != nil {
				b.Fatalf("%+v", c)
			}
		}
	})
	realCall(b, m, s.ID, "write", object{"file_path": "a.txt", "content": "one\ntwo\n"})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if c := realCall(b, m, s.ID, "read", object{"file_path": "a.txt"}); c.IsError || c.Error != nil {
				b.Fatalf("%+v", c)
			}
		}
	})
}

// TestRealDaemonIsKilledAtAnyMoment kills daemons while they make and end
// sessions. What the last one finds is usable or gone, and nothing else is left.
func TestRealDaemonIsKilledAtAnyMoment(t *testing.T) {
	h := newRealHouse(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for round := range 6 {
		cmd := h.child(t, "churn")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		bufio.NewScanner(out).Scan() // it has begun
		time.Sleep(time.Duration(30+round*37) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	m := openReal(t, h)
	live := m.live()
	for _, s := range live {
		if c := realCall(t, m, s.id, "bash", object{"command": "echo alive"}); c.Output != "alive\n" {
			t.Errorf("session %s: %+v", s.id, c)
		}
	}
	left, err := m.cfg.Drivers["oci"].List(t.Context(), h.Owner)
	if err != nil || len(left) != len(live) {
		t.Errorf("%d sandboxes for %d sessions, %v", len(left), len(live), err)
	}
	held, _, err := m.store.Leases(t.Context())
	if err != nil || len(held) != len(live) {
		t.Errorf("%d uid ranges for %d sessions, %v: %+v", len(held), len(live), err, held)
	}
	for _, e := range mustReadDir(t, m.cfg.OutputDir) {
		m.mu.RLock()
		s := m.sessions[e.Name()]
		m.mu.RUnlock()
		if row, err := m.store.Session(t.Context(), e.Name()); s == nil && (err != nil || !row.Keep) {
			t.Errorf("outputs of %s are left", e.Name())
		}
	}
	t.Logf("%d sessions live on", len(live))
}

// churn makes and ends sessions for ever.
func (h *realHouse) churn() error {
	m, _, err := h.open(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		return err
	}
	fmt.Println("begun")
	for range 2 {
		go func() {
			for i := 0; ; i++ {
				s, err := m.Create(context.Background(), alice, client.SessionCreate{})
				if err == nil && i%3 > 0 {
					_, err = m.End(context.Background(), alice, s.ID, client.EndOptions{Force: true})
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
		}()
	}
	select {}
}
