package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// bin is where the programs under test were built to.
var bin struct {
	toold, toolctl, agent, probe string
	runc                         string // holds the controls
	runtime                      string // holds the sessions; "" where an Engine does
}

// cgroupParent is below which all cgroups of this run are made.
var cgroupParent = fmt.Sprintf("toold-attack-%d", os.Getpid())

// why is the reason that this machine cannot run the tests; "" when it can.
var why string

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	if err := chooseTier(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if why = cannot(); why == "" {
		status, done, err := surroundings()
		switch {
		case done:
			return status
		case err != nil:
			why = err.Error()
		}
	}
	dir, err := testrig.MkdirTemp("toold-attack-")
	if err == nil {
		err = testrig.Doomed(cgroupParent)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	defer func() { _ = testrig.RemoveCgroups(cgroupParent) }() // what is left has failed a test
	if why == "" {
		if err := build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := current.prepare(dir); err != nil {
			why = err.Error()
		}
	}
	if why != "" {
		why = fmt.Sprintf("%s: not applicable here: %s", current.name, why)
		fmt.Println(why)
		if testrig.Required(current.require) {
			fmt.Fprintln(os.Stderr, "attack tests are required here but cannot run")
			return 1
		}
	}
	status := m.Run()
	if *update {
		if err := recordResults(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return status
}

// cannot says why no attack can be made here; "" when they can.
func cannot() string {
	if os.Getuid() != 0 {
		return "not root"
	}
	var err error
	if bin.runc, err = findProgram("runc"); err != nil {
		return "no runc: run `make build` first"
	}
	if firstUID, _, err = testrig.ClaimUIDs(); err != nil {
		return err.Error()
	}
	return ""
}

// build compiles what is tested, as `make build` does.
func build(dir string) error {
	for at, name := range map[*string]string{&bin.toold: "toold", &bin.toolctl: "toolctl", &bin.agent: "toolagent", &bin.probe: "probe"} {
		*at = filepath.Join(dir, name)
	}
	return testrig.Build(dir, "cmd/toold", "cmd/toolctl", "cmd/toolagent", "test/attack/probe")
}

// rig is a daemon with two tenants, a victim and an attacker.
type rig struct {
	dir, socket string
	config      string
	wrap        []string // the program that starts the daemon, with its arguments; nil for none
	daemon      *testrig.Daemon
	admin       *client.Client // may do everything
	a, b        *client.Client // act for tenant a (the attacker) and b (the neighbour)
	trees       string         // the configured worktree root
}

// firstUID is where the ids of this process begin, and bases counts the daemons that have
// had some.
var (
	firstUID uint32
	bases    atomic.Uint32
)

// uidBase is where the ids of another daemon begin: sixteen ranges, apart from those of
// the one before, whose processes may still end.
func uidBase() uint32 {
	return firstUID + bases.Add(1)%(testrig.UIDRanges/16)*16*testrig.RangeSize
}

// newRig starts a daemon, by wrap unless that is nil. extra is added to its
// configuration.
func newRig(t *testing.T, wrap []string, extra string) *rig {
	t.Helper()
	if why != "" {
		t.Skip(why)
	}
	beginRow(t)
	r := &rig{dir: t.TempDir(), wrap: wrap}
	must(t, os.Chmod(r.dir, 0o711))
	must(t, os.Chmod(filepath.Dir(r.dir), 0o711))
	r.socket = filepath.Join(r.dir, "run", "toold.sock")
	r.trees = filepath.Join(r.dir, "trees")
	must(t, os.Mkdir(r.trees, 0o755))
	r.config = filepath.Join(r.dir, "config.toml")
	must(t, os.WriteFile(r.config, fmt.Appendf(nil, `
[daemon]
socket = %q
state_dir = %q
run_dir = %q
[metrics]
listen = ""
[sandbox]
%suid_base = %d
[worktrees]
roots = [%[6]q]
mounts = [%[6]q]
[tenant.a]
uids = [40001]
[tenant.b]
uids = [40002]
[doom_loop]
hard_limit = 0
[profile.wall.permission]
doom_loop = "allow"
external_directory = "allow"
[limits]
memory = "256MiB"
tmp = "32MiB"
disk = "96MiB"
pids = 128
file_size = "64MiB"
%[7]s`, r.socket, filepath.Join(r.dir, "state"), filepath.Join(r.dir, "run"), current.lines, uidBase(), r.trees, extra), 0o600))
	r.start(t)
	t.Cleanup(func() { r.stop(t) })
	return r
}

// start runs the daemon and waits until it is ready.
func (r *rig) start(t *testing.T) {
	t.Helper()
	r.launch(t)
	must(t, r.daemon.Ready())
	r.admin = client.New(client.Options{Socket: r.socket, HTTPTimeout: patience})
	r.a = client.New(client.Options{Socket: r.socket, Tenant: "a", HTTPTimeout: patience})
	r.b = client.New(client.Options{Socket: r.socket, Tenant: "b", HTTPTimeout: patience})
}

// launch runs the daemon.
func (r *rig) launch(t *testing.T) {
	t.Helper()
	argv := append(slices.Clone(r.wrap), bin.toold, "--config", r.config, "--cgroup-parent", "/"+cgroupParent)
	var err error
	r.daemon, err = testrig.LaunchDaemon(r.socket, filepath.Join(r.dir, "log"), argv...)
	must(t, err)
}

// kill ends the daemon as a crash would.
func (r *rig) kill(t *testing.T) {
	t.Helper()
	must(t, r.daemon.Kill())
}

// stop ends all sessions and the daemon, and shows the log of a failed test.
func (r *rig) stop(t *testing.T) {
	for _, c := range []*client.Client{r.a, r.b, r.admin} {
		list, err := c.ListSessions(context.Background(), client.SessionQuery{})
		if err != nil {
			continue
		}
		for _, s := range list.Items {
			c.EndSession(context.Background(), s.ID, client.EndOptions{Force: true})
		}
	}
	if err := r.daemon.Terminate(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Logf("daemon's log:\n%s", r.daemon.Log())
	}
}

// toolctl runs the command line against the daemon, as root.
func (r *rig) toolctl(args ...string) (string, error) {
	cmd := exec.Command(bin.toolctl, args...)
	cmd.Env = append(os.Environ(), "TOOLD_SOCKET="+r.socket)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// metric is the sum of a metric's samples.
func (r *rig) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	text, err := r.admin.Metrics(t.Context())
	must(t, err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // no label's value has a space
		if len(fields) == 2 && (fields[0] == name || strings.HasPrefix(fields[0], name+"{")) {
			v, err := strconv.ParseFloat(fields[1], 64)
			must(t, err)
			sum += v
		}
	}
	return sum
}

// tree makes a worktree of the tenant's with the probe in it.
func (r *rig) tree(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(r.trees, "tree-")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	copyFile(t, bin.probe, filepath.Join(dir, "probe"), 0o755)
	return dir
}

// session opens a session of the client's tenant: unless the request says
// otherwise with a profile that asks for nothing, so that what is attacked is the
// wall and not the rules before it.
func (r *rig) session(t *testing.T, c *client.Client, req client.SessionCreate) *client.Session {
	t.Helper()
	if req.Profile == "" {
		req.Profile = "wall"
	}
	s, err := c.CreateSession(context.Background(), req)
	if err != nil {
		t.Fatalf("create session: %v", err)
	}
	return s
}

// call runs a tool and gives the finished call, whatever became of it.
func call(t *testing.T, c *client.Client, session, tool string, input any) *client.Call {
	t.Helper()
	got, err := tryCall(c, session, tool, input)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return got
}

// longest is the longest timeout that a call of bash may have, for those that a busy
// machine takes its time for.
const longest = 10 * time.Minute

// tryCall is call for other goroutines than the test's.
func tryCall(c *client.Client, session, tool string, input any) (*client.Call, error) {
	raw, err := json.Marshal(input)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest+patience)
	defer cancel()
	return c.CreateCall(ctx, session, client.CallCreate{Tool: tool, Input: raw}, client.CallOptions{})
}

// bash runs a command and gives its finished call.
func bash(t *testing.T, c *client.Client, session, command string) *client.Call {
	t.Helper()
	return call(t, c, session, "bash", map[string]any{"command": command})
}

// probe runs the hostile program in the session.
func probe(t *testing.T, c *client.Client, session string, args ...string) outcomes {
	t.Helper()
	got := bash(t, c, session, "/workspace/probe "+strings.Join(args, " "))
	o := parseOutcomes(got.Output)
	if len(o) == 0 {
		t.Fatalf("probe %v printed nothing: %q (metadata %v, error %v)", args, got.Output, got.Metadata, got.Error)
	}
	return o
}

// outcomes is what probe printed, by the name of the attempt.
type outcomes map[string]string

func parseOutcomes(out string) outcomes {
	o := outcomes{}
	for line := range strings.Lines(out) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			o[k] = v
		}
	}
	return o
}

// refused checks that each attempt was answered with one of the errors given; the
// attempt's name is that of the check.
func (o outcomes) refused(t *testing.T, want string, names ...string) {
	t.Helper()
	for _, n := range names {
		got, ok := o[n]
		if !ok {
			t.Errorf("%s was not tried: %v", n, o)
			continue
		}
		holds(t, n, strings.Contains(" "+want+" ", " "+got+" "), "got %s, want one of %s", got, want)
	}
}

// keys gives the names that begin with prefix.
func (o outcomes) keys(prefix string) (names []string) {
	for n := range o {
		if strings.HasPrefix(n, prefix) {
			names = append(names, n)
		}
	}
	return names
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, out.Close())
	must(t, os.Chmod(to, mode))
}

// patience is how long anything may take.
const patience = testrig.Patience

// lockedBuffer takes the daemon's log.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
