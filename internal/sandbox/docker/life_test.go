package docker_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

func (f *fixture) create() (sandbox.Sandbox, sandbox.Spec) {
	f.Helper()
	spec := f.Spec()
	sb, err := f.driver.Create(f.Ctx(), spec)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { sb.Close() })
	return sb, spec
}

// greets connects to the sandbox's agent and says hello.
func (f *fixture) greets(sb sandbox.Sandbox, spec sandbox.Spec) {
	f.Helper()
	if err := connect(f, f.Ctx(), sb, &spec).Close(); err != nil {
		f.Error(err)
	}
}

// connect makes a connection to the sandbox's agent.
func connect(t testing.TB, ctx context.Context, sb sandbox.Sandbox, spec *sandbox.Spec) *agent.Conn {
	t.Helper()
	c, err := sb.Dial(ctx)
	must(t, err)
	conn, _, err := agent.Connect(ctx, c, agent.Hello{
		Nonce: spec.Nonce, Worktree: spec.Worktree.Target, Home: sandbox.Home, Tmp: "/tmp", OutputDir: sandbox.OutputDir,
		ToolUID: sandbox.ToolUID, ToolGID: sandbox.ToolGID, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
		Shell: []string{"/bin/sh"}, UnackedBytes: 1 << 20,
	})
	must(t, err)
	return conn
}

// What others do to a container by the Engine is noticed, and leaves nothing.
func TestContainerEndsUnderUs(t *testing.T) {
	e := needDocker(t)
	for name, path := range map[string]struct{ method, path, cause string }{
		"kill":   {http.MethodPost, "/kill", "its container was killed"},
		"stop":   {http.MethodPost, "/stop?t=100", "its container was stopped"},
		"remove": {http.MethodDelete, "?force=1", "its container was removed from the Docker Engine"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, e, sandboxtest.BuildAgent(t))
			sb, mine := f.create()
			other, spec := f.create()
			f.greets(sb, mine) // before, it may not take the signal of a stop
			if err := e.API(path.method, "/containers/toold-"+sb.Record().SessionID+path.path, nil); err != nil {
				t.Fatal(err)
			}
			sandboxtest.AwaitEnd(t, sb)
			// What is removed is killed first.
			if got := sb.(sandbox.Witness).Cause(f.Ctx()); got != path.cause && (name != "remove" || got != "its container was killed") {
				t.Errorf("cause is %q, want %q", got, path.cause)
			}
			sandboxtest.StillAlive(t, other)
			if _, err := sb.Usage(f.Ctx()); !errors.Is(err, sandbox.ErrGone) {
				t.Errorf("usage: %v, want gone", err)
			}
			if _, err := sb.Dial(f.Ctx()); !errors.Is(err, sandbox.ErrGone) {
				t.Errorf("dial: %v, want gone", err)
			}
			if err := f.driver.Destroy(f.Ctx(), sb.Record()); err != nil {
				t.Error(err)
			}
			if _, err := f.driver.Adopt(f.Ctx(), sb.Record()); !errors.Is(err, sandbox.ErrGone) {
				t.Errorf("adopt: %v, want gone", err)
			}
			f.greets(other, spec)
		})
	}
}

// ownEngine is one that a test may stop.
func ownEngine(t *testing.T, flags ...string) *sandboxtest.Engine {
	t.Helper()
	e, err := sandboxtest.StartEngine(flags...)
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// While the Engine is down, sandboxes that it leaves alone go on: their agents
// answer, another daemon takes them over, and they can be killed.
func TestEngineStops(t *testing.T) {
	needDocker(t)
	e := ownEngine(t, "--live-restore")
	f := newFixture(t, e, sandboxtest.BuildAgent(t))
	sb, spec := f.create()
	doomed, _ := f.create()
	f.greets(sb, spec)
	if err := e.Script("halt"); err != nil {
		t.Fatal(err)
	}
	sandboxtest.StillAlive(t, sb)
	f.greets(sb, spec)
	if _, err := sb.Usage(f.Ctx()); err != nil {
		t.Error(err)
	}
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	next := f.open()
	again, err := next.Adopt(f.Ctx(), sb.Record())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	f.greets(again, spec)

	if _, err := next.Create(f.Ctx(), f.Spec()); err == nil || !strings.Contains(err.Error(), "not running") {
		t.Errorf("create: %v", err)
	}
	if err := next.Destroy(f.Ctx(), doomed.Record()); err == nil || !strings.Contains(err.Error(), "not running") {
		t.Errorf("destroy: %v", err)
	}
	sandboxtest.AwaitEnd(t, doomed)
	if list, err := next.List(f.Ctx(), f.Owner); err == nil || len(list) != 2 {
		t.Errorf("list is %v, %v; want both and an error", list, err)
	}
	if err := e.Script("restart"); err != nil {
		t.Fatal(err)
	}
	sandboxtest.StillAlive(t, again)
	f.greets(again, spec)
	for _, rec := range []sandbox.Record{doomed.Record(), sb.Record()} {
		if err := next.Destroy(f.Ctx(), rec); err != nil {
			t.Error(err)
		}
	}
	sandboxtest.AwaitEnd(t, again)
}

// An Engine that keeps no containers alive takes the sandboxes along when it is
// stopped, which is noticed like any other end.
func TestEngineTakesSandboxesAlong(t *testing.T) {
	needDocker(t)
	e := ownEngine(t)
	f := newFixture(t, e, sandboxtest.BuildAgent(t))
	sb, _ := f.create()
	if err := e.Script("restart"); err != nil {
		t.Fatal(err)
	}
	sandboxtest.AwaitEnd(t, sb)
	if err := f.driver.Destroy(context.Background(), sb.Record()); err != nil {
		t.Error(err)
	}
}

// Whose a container is, its name says together with its labels, which an image can have
// too.
func TestContainersOfOthers(t *testing.T) {
	e := needDocker(t)
	f := newFixture(t, e, sandboxtest.BuildAgent(t))
	sb, _ := f.create()
	// A container with our labels and another name is not ours.
	body := `{"Image":"` + sandboxtest.EngineImage + `","Cmd":["/bin/true"],"Labels":{"toold.owner":"` + f.Owner + `","toold.session":"ses_x","toold.incarnation":"y","toold.uid-base":"65536"}}`
	name := "other-" + sandboxtest.RandomHex(4)
	if err := e.API(http.MethodPost, "/containers/create?name="+name, strings.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.API(http.MethodDelete, "/containers/"+name+"?force=1", nil); err != nil {
			t.Error(err)
		}
	}()
	list, err := f.driver.List(f.Ctx(), f.Owner)
	if err != nil || len(list) != 1 || list[0].SessionID != sb.Record().SessionID {
		t.Errorf("list is %+v, %v", list, err)
	}
}
