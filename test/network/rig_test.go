// Package network tries the network of sessions through toold and toolctl: real containers,
// real clients in them, and servers in a network namespace of the test's own, which is also
// the daemon's.
package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/egress/netns"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/thread"
)

// bound is ten times what anything here takes.
const bound = time.Minute

// The far side: open has a line in the rules, closed has none; both are private.
const (
	open   = "10.20.0.1"
	closed = "10.30.0.1"
)

// hosts is what names lead to, for the daemon.
const hosts = "127.0.0.1 localhost\n" +
	open + " allowed.example asked.example learned.example other.example\n" +
	closed + " denied.example rebound.example\n"

// base are the rules of most tests.
const base = `
[permission]
"*" = "allow"
external_directory = "allow"
[permission.network]
"allowed.example" = "allow"
"allowed.example:8080" = "allow"
"allowed.example:22" = "allow"
"allowed.example:5432" = "allow"
"rebound.example" = "allow"
"asked.example" = "ask"
"asked.example:22" = "ask"
"asked.example:5432" = "ask"
"*.trap.example" = "allow"
"*.trap.example:8081" = "allow"
"waiting.trap.example:8081" = "ask"
"169.254.169.253:8081" = "allow"
"8.8.4.4:8081" = "allow"
"10.20.0.0/16:*" = "allow"
[permission.http]
"* http://allowed.example/secret/*" = { action = "deny", reason = "secrets stay there" }
`

// proxies are variables of the daemon's, which it must not heed.
var proxies = []string{"http_proxy=http://" + closed + ":80", "HTTPS_PROXY=http://" + closed + ":80", "ALL_PROXY=socks5://" + closed + ":80"}

// rig is a daemon in a namespace of its own.
type rig struct {
	t       *testing.T
	tier    tier
	sandbox string // lines of the configuration that are the tier's
	dir     string
	ns      *os.File
	cgroup  string
	argv    []string
	client  *client.Client
	reached atomic.Int64 // connections to closed, and requests for what is secret
	zone    *zone
	*testrig.Daemon
}

// built is where the programs are, once a test wants them.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func build() error {
	built.once.Do(func() {
		if built.dir, built.err = testrig.MkdirTemp("toold-network-bin-"); built.err == nil {
			built.err = testrig.Build(built.dir, "cmd/toold", "cmd/toolagent", "cmd/toolctl")
		}
	})
	return built.err
}

func newRig(t *testing.T, on tier) *rig {
	t.Helper()
	if os.Getuid() != 0 {
		testrig.Skipf(t, "root", "only root makes containers and namespaces")
	}
	dir := testrig.TempDir(t, "toold-network-")
	must(t, build())
	r := &rig{t: t, tier: on, dir: dir, cgroup: filepath.Base(dir)}
	var env []string
	r.sandbox, env = r.prepare()
	var err error
	r.ns, err = thread.Run(func() (*os.File, error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return nil, err
		}
		if err := errors.Join(netns.Up(), netns.RouteAll()); err != nil {
			return nil, err
		}
		return os.Open("/proc/thread-self/ns/net")
	})
	must(t, err)
	t.Cleanup(func() { _ = r.ns.Close() })
	r.ownAddress()
	must(t, os.WriteFile(filepath.Join(dir, "hosts"), []byte(hosts+trapNames()+ruledNames), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte("nameserver "+nameServer+"\n"), 0o644))
	r.zone = r.names()
	r.argv = slices.Concat([]string{
		"unshare", "-m", "--propagation", "private", "sh", "-c", `cd "$0" && mount --bind hosts /etc/hosts && mount --bind resolv.conf /etc/resolv.conf && { [ ! -e usr ] || mount --bind /usr usr; } && exec env "$@"`, dir,
	}, env, proxies, []string{filepath.Join(built.dir, "toold"), "--ephemeral", "--config", filepath.Join(dir, "config.toml")}, testrig.Flags(dir, r.cgroup, testrig.UIDs(t)))
	r.configure("")
	r.start()
	r.client = client.New(client.Options{Socket: testrig.Socket(dir)})
	t.Cleanup(func() {
		r.client.Close()
		if err := errors.Join(r.CloseStdin(), testrig.RemoveCgroups(r.cgroup)); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of toold:\n%s", r.Log())
		}
	})
	for _, at := range []string{open + ":80", open + ":8080", closed + ":80", closed + ":443", closed + ":22", closed + ":5432"} {
		r.serve(at)
	}
	return r
}

// configure writes the configuration: base, and more.
func (r *rig) configure(more string) {
	r.t.Helper()
	text := "[network]\nmode = \"rules\"\n" + more + "\n[approvals]\nself_approve = true\n[tenant.closed]\nuids = [40002]\nnetwork = { mode = \"none\" }\n[tenant.small]\nuids = [40003]\nnetwork = { limits = { connections = 4 } }\n" + r.sandbox + base
	must(r.t, os.WriteFile(filepath.Join(r.dir, "config.toml"), []byte(text), 0o600))
}

// start starts the daemon, or another one after it was killed.
func (r *rig) start() {
	r.t.Helper()
	var err error
	r.Daemon, err = netns.In(r.ns, func() (*testrig.Daemon, error) {
		return testrig.StartDaemon(testrig.Socket(r.dir), filepath.Join(r.dir, "log"), r.argv...)
	})
	must(r.t, err)
}

// serve answers each request with a line, and counts connections to closed.
func (r *rig) serve(at string) {
	r.t.Helper()
	l := r.listen(at)
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if strings.HasPrefix(q.URL.Path, "/secret/") {
				r.reached.Add(1)
			}
			switch {
			case q.URL.Path == "/redirect":
				http.Redirect(w, q, q.URL.RawQuery, http.StatusFound)
			case q.Header.Get("Upgrade") != "":
				upgrade(w)
			case q.URL.Path == "/header":
				w.Header().Set("X", strings.Repeat("x", 100<<10))
			case q.URL.Path == "/flat/Packages": // of apt
				fmt.Fprint(w, "Package: flat\nVersion: 1\nArchitecture: all\nMaintainer: x\nFilename: ./flat.deb\nSize: 1\nDescription: flat, of the test\n")
			case strings.HasPrefix(q.URL.Path, "/flat/"):
				http.NotFound(w, q)
			case q.URL.Path == "/slow": // a byte now and then
				for q.Context().Err() == nil {
					_, _ = w.Write([]byte("."))
					_ = http.NewResponseController(w).Flush()
					time.Sleep(100 * time.Millisecond)
				}
			default:
				fmt.Fprintf(w, "served %s%s\n", q.Host, q.URL.Path)
			}
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew && strings.HasPrefix(at, closed) {
				r.reached.Add(1)
			}
		},
	}
	done := make(chan struct{})
	go func() { _ = s.Serve(l); close(done) }()
	r.t.Cleanup(func() { _ = s.Close(); <-done })
}

func (r *rig) session(c client.SessionCreate) string {
	r.t.Helper()
	c.Runtime, c.Mounts = r.tier.runtime, append(c.Mounts, r.hostMounts()...)
	s, err := r.client.CreateSession(context.Background(), c)
	if err != nil && r.tier.runtime != "" {
		testrig.Skipf(r.t, r.tier.require, "no session on %s: %v", r.tier.name, err)
	}
	must(r.t, err)
	return s.ID
}

func (r *rig) bash(session, command string) *client.Call {
	r.t.Helper()
	got, err := r.try(session, command)
	must(r.t, err)
	return got
}

// try is bash for other goroutines than the test's.
func (r *rig) try(session, command string) (*client.Call, error) {
	input, err := json.Marshal(map[string]any{"command": command})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	return r.client.CreateCall(ctx, session, client.CallCreate{Tool: "bash", Input: input}, client.CallOptions{})
}

// ctl runs toolctl and gives what it prints.
func (r *rig) ctl(args ...string) string {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(built.dir, "toolctl"), append([]string{"--socket", testrig.Socket(r.dir)}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("toolctl %q: %v\n%s%s", args, err, out, stderr.String())
	}
	return string(out)
}

// has checks that a call's output has all these.
func has(t *testing.T, c *client.Call, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(c.Output, w) {
			t.Errorf("the output has no %q:\n%s", w, c.Output)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
