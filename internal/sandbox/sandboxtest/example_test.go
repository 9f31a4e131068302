// Package sandboxtest_test carries out the recipe for a driver of docs/architecture.md on
// a driver without walls: its agents are goroutines of the test.
package sandboxtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent/inside"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/cache"
	calls "github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/session"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/worktree/layers"
)

// 1. A package below `internal/sandbox` with a type that implements `sandbox.Driver`. The
// comments of the interface are the contract.
type driver struct{ host *host }

var _ sandbox.Driver = driver{}

// host is what stays when the daemon ends: a Driver keeps nothing itself.
type host struct {
	dir   string
	mu    sync.Mutex // guards the field below
	boxes map[string]*box
}

func (driver) Name() string                               { return "example" }
func (driver) Runtimes(context.Context) ([]string, error) { return []string{"example"}, nil }

func (driver) Try(_ context.Context, name string) error {
	return sandbox.CheckRuntime(name, []string{"example"})
}

func (d driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := errors.Join(ctx.Err(), refuse(&spec)); err != nil {
		return nil, err
	}
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	if d.host.boxes[spec.SessionID] != nil {
		return nil, fmt.Errorf("there is a sandbox %s", spec.SessionID)
	}
	dir := filepath.Join(d.host.dir, spec.SessionID)
	if err := os.MkdirAll(filepath.Join(dir, spec.Worktree.Target), 0o700); err != nil {
		return nil, err
	}
	b, err := start(dir, &spec)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.host.boxes[spec.SessionID] = b
	return b, nil
}

// named gives the sandbox that rec names, nil for none.
func (h *host) named(rec sandbox.Record) *box {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.boxes[rec.SessionID]; b != nil && b.rec == rec {
		return b
	}
	return nil
}

func (d driver) Adopt(_ context.Context, rec sandbox.Record) (sandbox.Sandbox, error) {
	if b := d.host.named(rec); b != nil {
		return b, nil
	}
	return nil, sandbox.ErrGone
}

func (d driver) List(_ context.Context, owner string) (all []sandbox.Record, _ error) {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	for _, b := range d.host.boxes {
		if b.rec.Owner == owner {
			all = append(all, b.rec)
		}
	}
	return all, nil
}

func (d driver) Destroy(_ context.Context, rec sandbox.Record) error {
	b := d.host.named(rec)
	if b == nil {
		return nil
	}
	b.stop()
	<-b.done
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	delete(d.host.boxes, rec.SessionID)
	return os.RemoveAll(b.dir)
}

// 2. A type that implements `sandbox.Sandbox`. What only some drivers can do is an interface
// of its own, such as `sandbox.Meter`.
type box struct {
	rec  sandbox.Record
	dir  string // the root that its tools see
	stop func()
	done chan struct{} // closed when the agent has ended
}

var _ sandbox.Sandbox = (*box)(nil)

// start starts the agent, which sees dir as its root.
func start(dir string, spec *sandbox.Spec) (*box, error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unix"})
	if err != nil {
		return nil, err
	}
	server, err := inside.NewServer(inside.ServerConfig{Listener: ln, Nonce: spec.Nonce, Tools: run.Builtin(), Dir: dir, SameUser: true})
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &box{dir: dir, stop: stop, done: make(chan struct{}), rec: sandbox.Record{ID: spec.ID, Runtime: "example"}}
	go func() { defer close(b.done); _ = server.Serve(ctx) }()
	return b, nil
}

func (b *box) Record() sandbox.Record            { return b.rec }
func (b *box) Attach(context.Context, int) error { return nil }
func (b *box) CallCgroup() (*os.File, error)     { return nil, nil } //nolint:nilnil // nil where there is none
func (b *box) IDMap() string                     { return "" }
func (b *box) OOMKills() int64                   { return 0 }
func (b *box) PIDsHits() int64                   { return 0 }
func (b *box) Done() <-chan struct{}             { return b.done }
func (b *box) Close() error                      { return nil }
func (b *box) Usage(context.Context) (u client.Usage, err error) {
	select {
	case <-b.done:
		err = sandbox.ErrGone
	default:
	}
	return u, err
}

func (b *box) Dial(ctx context.Context) (*net.UnixConn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(b.dir, "socket"))
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// 3. The driver refuses what it cannot enforce with `sandbox.ErrUnsupported`, or says it in
// `Notes`.
func refuse(spec *sandbox.Spec) error {
	switch {
	case spec.Runtime != "" && spec.Runtime != "example":
		return fmt.Errorf("runtime %q: %w", spec.Runtime, sandbox.ErrUnsupported)
	case spec.Worktree.Mode != client.WorktreeEmpty || len(spec.Mounts) > 0:
		return fmt.Errorf("a worktree or a mount of the host: %w", sandbox.ErrUnsupported)
	case filepath.Base(spec.SessionID) != spec.SessionID:
		return fmt.Errorf("session id %q is no name", spec.SessionID)
	case spec.Limits.Disk > 0:
		return fmt.Errorf("limits.disk: %w", sandbox.ErrUnsupported)
	case spec.Limits.Tmp >= spec.Limits.Memory:
		return errors.New("limits.tmp must be less than limits.memory")
	}
	return nil
}

func (b *box) Notes() []string { return []string{"nothing is limited"} }

// needsPrograms are the tests of the suite that run programs, which have no walls here.
const needsPrograms = "Inside Deep Identity Worktree WorktreeReadOnly WorktreeForeignFiles LinkedWorktrees Overlay OverlayForeign Relay RelayMounts Output Journal Mounts " +
	"MountTargets Search ProgramsRemoved Trees MemoryLimit PIDsLimit CPULimit Sizes TmpLimit FileLimits Image ImageDisk Usage Stdio LargeOutput Stall Abort Restart AgentKilled Adopt Names " +
	"Destroy DestroyBusy Isolation Picture IPC"

// 4. A `suite_test.go` that calls `sandboxtest.Run`. What the driver does otherwise stands in
// `Differs`, with the reason.
func TestExampleDriverInSuite(t *testing.T) {
	differs := make(map[string]string)
	for test := range strings.FieldsSeq(needsPrograms) {
		differs[test] = "the driver runs no programs"
	}
	sandboxtest.Run(t, func(t testing.TB, _ func() string) sandboxtest.Subject {
		d := open(t)
		f := sandboxtest.NewFixture(t, filepath.Join(os.TempDir(), "toold-example-"), "/toold-example-")
		t.Cleanup(func() { f.End(d) })
		return sandboxtest.Subject{
			Driver: d, Reopen: func() sandbox.Driver { return driver{d.host} }, Spec: f.Spec, Dirs: []string{d.host.dir}, Differs: differs,
		}
	})
}

// open makes the driver, as the daemon does when it starts.
func open(t testing.TB) driver {
	t.Helper()
	needs.OpenAt2(t)
	needs.Filter(t)
	dir := testrig.TempDir(t, "toold-example-") // a socket's path is short
	return driver{&host{dir: dir, boxes: make(map[string]*box)}}
}

// TestExampleDriver calls tools in a session that the driver holds, by way of a manager.
func TestExampleDriver(t *testing.T) {
	m, admin := manager(t, open(t)), auth.Principal{Tenant: "default", Admin: true}
	s, err := m.Create(t.Context(), admin, client.SessionCreate{})
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []struct{ tool, input, want string }{
		{"write", `{"file_path":"a","content":"hello\n"}`, "a"},
		{"read", `{"file_path":"/workspace/a"}`, "hello"},
	} {
		c, err := m.AllCalls().Call(t.Context(), admin, s.ID, client.CallCreate{Tool: call.tool, Input: json.RawMessage(call.input)}, calls.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c.IsError || !strings.Contains(c.Output, call.want) {
			t.Errorf("%s gives %q, %v", call.tool, c.Output, c.Error)
		}
	}
	if _, err := m.End(t.Context(), admin, s.ID, client.EndOptions{}); err != nil {
		t.Error(err)
	}
}

// manager has the driver for its sessions.
func manager(t *testing.T, d driver) *session.Manager {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	st, err := store.Open(store.Config{Path: filepath.Join(dir, "toold.db"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	trees, err := layers.Open(filepath.Join(dir, "worktrees"))
	if err != nil {
		t.Fatal(err)
	}
	caches, err := cache.Open(filepath.Join(dir, "caches"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.New(session.Config{
		Trees: trees, Caches: caches, JournalDir: filepath.Join(dir, "transactions"),
		Store: st, Tools: tool.NewRegistry(), Drivers: map[string]sandbox.Driver{d.Name(): d}, Driver: d.Name(),
		Log: log, Owner: "example", OutputDir: filepath.Join(dir, "output"), UIDBase: 1 << 28, UIDClaims: filepath.Join(dir, "uids"),
		Settings: session.Settings{
			Limits:      client.Limits{Memory: 64 << 20, PIDs: 100, Tmp: 8 << 20, Calls: 1, Wall: client.Duration(time.Minute)},
			Settings:    calls.Settings{Truncate: output.Limits{MaxLines: 2000, MaxBytes: 51200, SpillFile: 1 << 20, SpillSession: 1 << 20, Keep: time.Hour}, Shell: []string{"/bin/sh"}},
			IdleTimeout: time.Hour, Retention: time.Hour, Path: "/usr/bin:/bin",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Close(context.Background()), st.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestDriversAreWired: each driver with a suite has the lines that make it one of the daemon's.
func TestDriversAreWired(t *testing.T) {
	suites, err := filepath.Glob("../*/suite_test.go")
	if err != nil || len(suites) < 2 {
		t.Fatalf("suites %v, %v", suites, err)
	}
	for _, suite := range suites {
		name := filepath.Base(filepath.Dir(suite))
		for file, line := range map[string]string{
			// 5. A case in `daemon.addDriver` of `cmd/toold`, and the name in `sandbox.driver` of
			// `internal/config` and `config.toml`.
			"../../../cmd/toold/drivers.go": `case ` + name + `\.Name:`,
			"../../config/validate.go":      `"sandbox\.driver".*"` + name + `"`,
			"../../../config.toml":          `"` + name + `"`,
			// 6. A line in `tiers` of `test/attack/tier_test.go`. `go test ./test/attack -update` records
			// the results and writes the table in `docs/security.md`.
			"../../../test/attack/tier_test.go": `\{name: .*sandbox: ` + name + `Sandbox\}`,
		} {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(line).Match(text) {
				t.Errorf("%s does not have the driver %s: no line is like %s", file, name, line)
			}
		}
	}
}
