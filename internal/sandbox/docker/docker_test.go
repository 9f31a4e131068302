package docker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/toold/toold/internal/sandbox/docker"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/testrig"
)

// private is the Engine of all tests, started when the first one wants it.
var private struct {
	once sync.Once
	*sandboxtest.Engine
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := private.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// needDocker gives the Engine of all tests, and skips where there can be none.
func needDocker(t testing.TB) *sandboxtest.Engine {
	t.Helper()
	if os.Getuid() != 0 {
		testrig.Skipf(t, "docker", "an Engine is started by root only")
	}
	private.once.Do(func() { private.Engine, private.err = sandboxtest.StartEngine() })
	if private.err != nil {
		testrig.Skipf(t, "docker", "no Docker Engine: %v", private.err)
	}
	return private.Engine
}

// fixture is a driver in directories and cgroups of its own.
type fixture struct {
	*sandboxtest.Fixture
	driver *docker.Driver
	cfg    docker.Config
}

func newFixture(t testing.TB, e *sandboxtest.Engine, agent string) *fixture {
	t.Helper()
	group, err := e.Cgroup()
	if err != nil {
		t.Fatal(err)
	}
	own := sandboxtest.NewFixture(t, e.Dir+"/test-", group+"/")
	f := &fixture{Fixture: own, cfg: docker.Config{
		Host:         e.Host(),
		Image:        sandboxtest.EngineImage,
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
