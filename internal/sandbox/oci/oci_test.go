package oci_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/oci"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/testrig"
)

// fixture is a driver in directories and cgroups of its own.
type fixture struct {
	*sandboxtest.Fixture
	driver *oci.Driver
	cfg    oci.Config
}

// needOCI skips a test where no container can be made.
func needOCI(t testing.TB) string {
	t.Helper()
	return needBuilt(t, "oci", "runc")
}

// needBuilt skips a test where a runtime is of no use, or not there.
func needBuilt(t testing.TB, tier, runtime string) string {
	t.Helper()
	if os.Getuid() != 0 {
		testrig.Skipf(t, tier, "containers are made by root only")
	}
	path, err := filepath.Abs("../../../bin/" + runtime)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		testrig.Skipf(t, tier, "bin/%s is not built: %v", runtime, err)
	}
	return path
}

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
	own := sandboxtest.NewFixture(t, "/tmp/"+mark, "/"+mark)
	f := &fixture{Fixture: own, cfg: oci.Config{
		Runtimes:     map[string]string{runtime: path},
		StateDir:     filepath.Join(own.Dir, "state"),
		RunDir:       filepath.Join(own.Dir, "run"),
		AgentBinary:  agent,
		Ripgrep:      sandboxtest.Ripgrep(t),
		Rootfs:       "host",
		CgroupParent: own.Cgroup,
		UIDBase:      1 << 16,
		Log:          own.Logger(),
	}}
	f.driver = f.open()
	t.Cleanup(func() { own.End(f.driver) })
	return f
}

func (f *fixture) open() *oci.Driver {
	f.Helper()
	d, err := oci.New(f.cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { testrig.Must(f, d.Close()) })
	return d
}

// live is a sandbox with what a test needs to speak to its agent.
type live struct {
	sandbox.Sandbox
	t    testing.TB
	spec sandbox.Spec
	cg   *os.File
}

func (f *fixture) create(spec sandbox.Spec) *live {
	f.Helper()
	sb, err := f.driver.Create(f.Ctx(), spec)
	if err != nil {
		f.Fatal(err)
	}
	return f.live(sb, spec)
}

func (f *fixture) live(sb sandbox.Sandbox, spec sandbox.Spec) *live {
	f.Helper()
	l := &live{Sandbox: sb, t: f.TB, spec: spec}
	f.Cleanup(func() { l.Close() })
	l.attach()
	f.Cleanup(func() { l.cg.Close() })
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
	return l.ask(agentRequest{Argv: []string{"/bin/sh", "-c", script}, Call: "call-" + sandboxtest.RandomHex(4)})
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

func itoa(n int) string { return strconv.Itoa(n) }
