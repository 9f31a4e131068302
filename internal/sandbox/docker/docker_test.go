package docker_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/docker"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

// testEngine is a private Engine, started when the first test wants it.
type testEngine struct {
	once sync.Once
	dir  string
	err  error
}

var private testEngine

func TestMain(m *testing.M) {
	code := m.Run()
	if err := private.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// script runs scripts/engine. An Engine that it starts ends with this process.
func script(args ...string) error {
	out, err := exec.Command("../../../scripts/engine", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("scripts/engine %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// start starts an Engine in a directory that is made. What tests have lies in that,
// and in its cgroup: scripts/engine removes both, also when the tests are killed.
func (e *testEngine) start(flags ...string) error {
	e.dir = "/tmp/toold-test-docker-" + randomHex(8)
	if err := script(append([]string{"start", e.dir}, flags...)...); err != nil {
		return err
	}
	return e.importImage(testImage)
}

func (e *testEngine) stop() error {
	if e.dir == "" {
		return nil
	}
	return script("stop", e.dir)
}

// group is the cgroup of the Engine, which goes with it.
func (e *testEngine) group(t testing.TB) string {
	t.Helper()
	name, err := os.ReadFile(filepath.Join(e.dir, "group"))
	if err != nil {
		t.Fatal(err)
	}
	return "/" + strings.TrimSpace(string(name))
}

func (e *testEngine) host() string { return "unix://" + e.dir + "/docker.sock" }

// testImage is made of this host's programs.
const testImage = "toold-test:host"

func (e *testEngine) importImage(name string) error {
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(sandboxtest.HostImage(w, nil, "sh", "bash", "awk", "cat", "chmod", "cp", "cut", "dd", "echo", "env", "false", "find", "git", "grep",
			"head", "id", "kill", "ln", "ls", "mkdir", "mkfifo", "mv", "nohup", "nproc", "printf", "ps", "readlink", "rg", "rm", "rmdir", "sed", "seq", "setsid",
			"sleep", "sort", "stat", "sync", "tail", "tee", "test", "timeout", "touch", "tr", "true", "uname", "uniq", "wc", "xargs", "yes", "date", "python3"))
	}()
	defer r.Close()
	repo, tag, _ := strings.Cut(name, ":")
	return e.api(http.MethodPost, "/images/create?fromSrc=-&repo="+repo+"&tag="+tag, r)
}

// api makes a request of the Engine behind the driver's back.
func (e *testEngine) api(method, path string, body io.Reader) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, body)
	if err != nil {
		return err
	}
	if method == http.MethodPost && !strings.HasPrefix(path, "/images/") {
		req.Header.Set("Content-Type", "application/json")
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.dir+"/docker.sock")
	}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode >= 400 || strings.Contains(string(answer), `"error"`) {
		return fmt.Errorf("%s %s: %s %s %w", method, path, resp.Status, answer, err)
	}
	return nil
}

// needDocker gives the Engine of all tests, and skips where there can be none.
// TOOLD_TEST_REQUIRE turns the skip into a failure.
func needDocker(t testing.TB) *testEngine {
	t.Helper()
	skip := t.Skipf
	if slices.Contains(strings.Split(os.Getenv("TOOLD_TEST_REQUIRE"), ","), "docker") {
		skip = t.Fatalf
	}
	if os.Getuid() != 0 {
		skip("an Engine is started by root only")
	}
	private.once.Do(func() { private.err = private.start() })
	if private.err != nil {
		skip("no Docker Engine: %v", private.err)
	}
	return &private
}

// fixture is a driver in directories and cgroups of its own.
type fixture struct {
	t      testing.TB
	driver *docker.Driver
	cfg    docker.Config
	owner  string

	engineIsGone bool // so that only what is here can be cleaned up
}

var bases atomic.Uint32

func newFixture(t testing.TB, e *testEngine, agent string) *fixture {
	t.Helper()
	dir, err := os.MkdirTemp(e.dir, "test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, owner: "test-" + randomHex(4), cfg: docker.Config{
		Host:         e.host(),
		Image:        testImage,
		StateDir:     filepath.Join(dir, "state"),
		RunDir:       filepath.Join(dir, "run"),
		AgentBinary:  agent,
		CgroupParent: e.group(t) + "/" + randomHex(4),
		Log:          slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}}
	f.driver = f.open()
	t.Cleanup(func() { f.cleanup(dir) })
	return f
}

func (f *fixture) open() *docker.Driver {
	f.t.Helper()
	d, err := docker.New(f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { d.Close() })
	return d
}

// cleanup destroys what a test has left, and fails when that leaves anything.
func (f *fixture) cleanup(dir string) {
	ctx := context.Background()
	list, err := f.driver.List(ctx, f.owner)
	if err != nil && !f.engineIsGone {
		f.t.Error(err)
	}
	for _, rec := range list {
		if err := f.driver.Destroy(ctx, rec); err != nil && !f.engineIsGone {
			f.t.Error(err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		f.t.Error(err)
	}
	mounts, err := filepath.Glob("/sys/fs/cgroup/*" + f.cfg.CgroupParent)
	if err != nil {
		f.t.Error(err)
	}
	for _, m := range append(mounts, "/sys/fs/cgroup"+f.cfg.CgroupParent) {
		if err := os.Remove(m); err != nil && !os.IsNotExist(err) {
			f.t.Errorf("cgroup is left: %v", err)
		}
	}
}

// spec is that of a small session with an empty worktree.
func (f *fixture) spec() sandbox.Spec {
	nonce := make([]byte, 32)
	rand.Read(nonce)
	return sandbox.Spec{
		SessionID:   "ses_" + randomHex(8),
		Incarnation: randomHex(8),
		Owner:       f.owner,
		UIDBase:     1<<30 + bases.Add(1)*sandbox.RangeSize,
		Limits:      client.Limits{Memory: 256 << 20, PIDs: 64, Tmp: 16 << 20},
		Worktree:    sandbox.Worktree{Mode: client.WorktreeEmpty, Target: sandbox.Workspace},
		Nonce:       nonce,
	}
}

func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	f.t.Cleanup(cancel)
	return ctx
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}
