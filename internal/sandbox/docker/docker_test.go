package docker_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/internal/sandbox/docker"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/testrig"
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
	e.dir = "/tmp/toold-test-docker-" + sandboxtest.RandomHex(8)
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
		w.CloseWithError(sandboxtest.HostImage(w, nil, "sh", "bash", "awk", "cat", "chmod", "cp", "cut", "dd", "diff", "echo", "env", "false", "find", "git", "grep",
			"head", "id", "kill", "ln", "ls", "mkdir", "mkfifo", "mv", "nohup", "nproc", "printf", "ps", "readlink", "rm", "rmdir", "sed", "seq", "setsid",
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
func needDocker(t testing.TB) *testEngine {
	t.Helper()
	if os.Getuid() != 0 {
		testrig.Skipf(t, "docker", "an Engine is started by root only")
	}
	private.once.Do(func() { private.err = private.start() })
	if private.err != nil {
		testrig.Skipf(t, "docker", "no Docker Engine: %v", private.err)
	}
	return &private
}

// fixture is a driver in directories and cgroups of its own.
type fixture struct {
	*sandboxtest.Fixture
	driver *docker.Driver
	cfg    docker.Config
}

func newFixture(t testing.TB, e *testEngine, agent string) *fixture {
	t.Helper()
	own := sandboxtest.NewFixture(t, e.dir+"/test-", e.group(t)+"/")
	f := &fixture{Fixture: own, cfg: docker.Config{
		Host:         e.host(),
		Image:        testImage,
		StateDir:     filepath.Join(own.Dir, "state"),
		RunDir:       filepath.Join(own.Dir, "run"),
		AgentBinary:  agent,
		Ripgrep:      sandboxtest.Ripgrep(t),
		CgroupParent: own.Cgroup,
		Log:          own.Logger(),
	}}
	f.driver = f.open()
	t.Cleanup(func() { own.End(f.driver) })
	return f
}

func (f *fixture) open() *docker.Driver {
	f.Helper()
	d, err := docker.New(f.cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { d.Close() })
	return d
}
