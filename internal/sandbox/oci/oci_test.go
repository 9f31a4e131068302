package oci_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/oci"
)

// fixture is a driver in directories and cgroups of its own.
type fixture struct {
	t      testing.TB
	driver *oci.Driver
	cfg    oci.Config
	owner  string
}

// needOCI skips a test where no container can be made. TOOLD_TEST_REQUIRE turns
// the skip into a failure.
func needOCI(t testing.TB) string {
	t.Helper()
	skip := t.Skipf
	if strings.Contains(os.Getenv("TOOLD_TEST_REQUIRE"), "oci") {
		skip = t.Fatalf
	}
	if os.Getuid() != 0 {
		skip("containers are made by root only")
	}
	path, err := filepath.Abs("../../../bin/runc")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		skip("bin/runc is not built: %v", err)
	}
	return path
}

var bases atomic.Uint32

// newFixture has the test binary as the agent.
func newFixture(t testing.TB) *fixture {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return newFixtureOf(t, self)
}

func newFixtureOf(t testing.TB, agent string) *fixture {
	t.Helper()
	return newFixtureWith(t, "runc", needOCI(t), agent)
}

func newFixtureWith(t testing.TB, runtime, path, agent string) *fixture {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", mark)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, owner: "test-" + randomHex(4), cfg: oci.Config{
		Runtimes:     map[string]string{runtime: path},
		StateDir:     filepath.Join(dir, "state"),
		RunDir:       filepath.Join(dir, "run"),
		AgentBinary:  agent,
		Rootfs:       "host",
		CgroupParent: "/" + mark + randomHex(4),
		Log:          slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}}
	f.driver = f.open()
	t.Cleanup(func() { f.cleanup(dir) })
	return f
}

func (f *fixture) open() *oci.Driver {
	f.t.Helper()
	d, err := oci.New(f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

// cleanup destroys what a test has left, and fails when that leaves anything.
func (f *fixture) cleanup(dir string) {
	ctx := context.Background()
	list, err := f.driver.List(ctx, f.owner)
	if err != nil {
		f.t.Error(err)
	}
	for _, rec := range list {
		if err := f.driver.Destroy(ctx, rec); err != nil {
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

// live is a sandbox with what a test needs to speak to its agent.
type live struct {
	sandbox.Sandbox
	t    testing.TB
	spec sandbox.Spec
	cg   *os.File
}

func (f *fixture) create(spec sandbox.Spec) *live {
	f.t.Helper()
	sb, err := f.driver.Create(f.ctx(), spec)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.live(sb, spec)
}

func (f *fixture) live(sb sandbox.Sandbox, spec sandbox.Spec) *live {
	f.t.Helper()
	l := &live{Sandbox: sb, t: f.t, spec: spec}
	f.t.Cleanup(func() { l.Close() })
	l.attach()
	f.t.Cleanup(func() { l.cg.Close() })
	return l
}

// attach does what a manager does after the first handshake.
func (l *live) attach() {
	l.t.Helper()
	r := l.ask(agentRequest{})
	if err := l.Attach(context.Background(), r.TID); err != nil {
		l.t.Fatal(err)
	}
	cg, err := l.CallCgroup()
	if err != nil {
		l.t.Fatal(err)
	}
	l.cg = cg
}

func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	f.t.Cleanup(cancel)
	return ctx
}

func (l *live) ask(q agentRequest) *agentResponse {
	l.t.Helper()
	c, err := l.Dial(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	q.Nonce = l.spec.Nonce
	r, err := ask(c, q, l.cg)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// sh runs a script as the tool user in a cgroup of its own.
func (l *live) sh(script string) *agentResponse {
	l.t.Helper()
	return l.ask(agentRequest{Argv: []string{"/bin/sh", "-c", script}, Call: "call-" + randomHex(4)})
}

// out is what a script prints; it must succeed.
func (l *live) out(script string) string {
	l.t.Helper()
	r := l.sh(script)
	if r.Err != "" || r.Code != 0 {
		l.t.Fatalf("%s: code %d, %s\n%s", script, r.Code, r.Err, r.Output)
	}
	return strings.TrimSpace(r.Output)
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

func itoa(n int) string { return strconv.Itoa(n) }
