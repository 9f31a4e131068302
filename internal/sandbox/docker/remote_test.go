package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/docker"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// elsewhere makes an Engine reachable by TCP with TLS.
func elsewhere(t testing.TB, e *sandboxtest.Engine) (host, certs string) {
	t.Helper()
	far := sandboxtest.NewElsewhere(t, e.Socket())
	return far.Host, far.Certs
}

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Output(_ int64, _ bool, p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p)
	return nil
}
func (o *output) Metadata(map[string]any) {}

// shell runs a command in a sandbox over a connection of its own.
func shell(t testing.TB, ctx context.Context, sb sandbox.Sandbox, spec *sandbox.Spec, command string) string {
	t.Helper()
	conn := connect(t, ctx, sb, spec)
	defer conn.Close()
	in, err := json.Marshal(map[string]string{"command": command})
	must(t, err)
	var out output
	o, err := conn.Run(ctx, agent.Request{CallID: "call_" + sandboxtest.RandomHex(4), Tool: "bash", Input: in, TimeoutMillis: 60000}, &out)
	must(t, err)
	if o.Err != nil || o.Exit == nil {
		t.Fatalf("%s: %+v", command, o)
	}
	return out.b.String() + fmt.Sprintf("[%d]", o.Exit.Code)
}

func remoteDriver(t testing.TB, f *fixture, host, certs string) *docker.Remote {
	t.Helper()
	d, err := docker.NewRemote(docker.RemoteConfig{Config: docker.Config{
		Host: host, Image: sandboxtest.EngineImage, StateDir: f.cfg.StateDir, AgentBinary: f.cfg.AgentBinary, Ripgrep: f.cfg.Ripgrep, Log: f.cfg.Log,
	}, CertDir: certs})
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// A session with an Engine elsewhere works on a copy of its worktree, whose changes
// come back when it ends, also when another daemon has taken it over by then.
func TestRemote(t *testing.T) {
	e := needDocker(t)
	f := newFixture(t, e, sandboxtest.BuildAgent(t))
	host, certs := elsewhere(t, e)
	for _, mode := range []client.WorktreeMode{client.WorktreeBind, client.WorktreeRO, client.WorktreeEmpty} {
		t.Run(string(mode), func(t *testing.T) {
			d := remoteDriver(t, f, host, certs)
			spec := f.Spec()
			spec.Worktree.Mode = mode
			here := worktree(t, &spec)
			sb, err := d.Create(f.Ctx(), spec)
			must(t, err)
			for i := range 3 {
				if got := shell(t, f.Ctx(), sb, &spec, "id -u; pwd"); got != "1000\n/workspace\n[0]" {
					t.Errorf("connection %d: got %q", i, got)
				}
			}
			rg := "cd " + sandbox.RipgrepDir + "; if [ -e ld.so ]; then ./ld.so --library-path . ./rg --version; else ./rg --version; fi"
			if got := shell(t, f.Ctx(), sb, &spec, rg); !strings.HasPrefix(got, "ripgrep ") {
				t.Errorf("ripgrep: %q", got)
			}
			if got := shell(t, f.Ctx(), sb, &spec, "cat /run/toold/control/nonce /proc/1/mem; echo x > /run/toold/agent; kill -9 1; ls -A /run/toold/control"); !strings.Contains(got, "Permission denied") || strings.Contains(got, "socket\n") {
				t.Errorf("the agent's own: got %q", got)
			}
			edit := "cat file; echo new > file; rm gone; mkdir dir; echo in > dir/in; ln -s /etc/passwd link; echo x >> both; true"
			want := "old\n"
			got := shell(t, f.Ctx(), sb, &spec, edit)
			if mode != client.WorktreeEmpty && !strings.HasPrefix(got, want) {
				t.Errorf("got %q", got)
			}
			must(t, sb.Close())
			// Another daemon.
			must(t, d.Close())
			d = remoteDriver(t, f, host, certs)
			if list, err := d.List(f.Ctx(), spec.Owner); err != nil || len(list) != 1 {
				t.Fatalf("List: %v, %v", list, err)
			}
			sb, err = d.Adopt(f.Ctx(), sb.Record())
			must(t, err)
			if got := shell(t, f.Ctx(), sb, &spec, "echo again"); got != "again\n[0]" {
				t.Errorf("adopted: got %q", got)
			}
			if here != "" {
				must(t, os.WriteFile(filepath.Join(here, "both"), []byte("ours\n"), 0o644))
			}
			must(t, d.Destroy(f.Ctx(), sb.Record()))
			sandboxtest.AwaitEnd(t, sb)
			must(t, errors.Join(sb.Close(), d.Destroy(f.Ctx(), sb.Record())))
			checkBack(t, here, mode)
			if list, err := d.List(f.Ctx(), spec.Owner); err != nil || len(list) != 0 {
				t.Errorf("left: %v, %v", list, err)
			}
		})
	}
}

// worktree makes one for a spec, unless its mode is empty.
func worktree(t testing.TB, spec *sandbox.Spec) string {
	t.Helper()
	if spec.Worktree.Mode == client.WorktreeEmpty {
		return ""
	}
	here := t.TempDir()
	for name, content := range map[string]string{"file": "old\n", "gone": "x", "both": "theirs\n"} {
		must(t, os.WriteFile(filepath.Join(here, name), []byte(content), 0o644))
	}
	dir, err := os.Open(here)
	must(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	spec.Worktree.Source = dir
	return here
}

func checkBack(t testing.TB, here string, mode client.WorktreeMode) {
	t.Helper()
	if here == "" {
		return
	}
	want := map[string]string{"file": "new\n", "gone": "", "dir/in": "in\n", "both": "ours\n"}
	if mode == client.WorktreeRO {
		want = map[string]string{"file": "old\n", "gone": "x", "dir/in": "", "both": "ours\n"}
	}
	for name, content := range want {
		if got, _ := os.ReadFile(filepath.Join(here, name)); string(got) != content {
			t.Errorf("%s: got %q, want %q", name, got, content)
		}
	}
	if to, err := os.Readlink(filepath.Join(here, "link")); mode == client.WorktreeBind && to != "/etc/passwd" {
		t.Errorf("link: %q, %v", to, err)
	}
}

// An address by ssh is reached through the program ssh.
func TestRemoteSSH(t *testing.T) {
	e := needDocker(t)
	agent := sandboxtest.BuildAgent(t)
	bin := sandboxtest.SSH(t, agent, e.Socket())
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	f := newFixture(t, e, agent)
	d := remoteDriver(t, f, "ssh://builder@engine.test:2222", "")
	spec := f.Spec()
	sb, err := d.Create(f.Ctx(), spec)
	must(t, err)
	if got := shell(t, f.Ctx(), sb, &spec, "echo hello"); got != "hello\n[0]" {
		t.Errorf("got %q", got)
	}
	must(t, errors.Join(sb.Close(), d.Destroy(f.Ctx(), sb.Record())))
	args, err := os.ReadFile(filepath.Join(bin, "args"))
	if want := "-l builder -p 2222 -- engine.test docker system dial-stdio\n"; err != nil || !strings.Contains(string(args), want) {
		t.Errorf("ssh got %q, %v", args, err)
	}
}

// An address that cannot be trusted is refused before it is spoken to.
func TestRemoteAddresses(t *testing.T) {
	certs, _ := sandboxtest.Certificates(t)
	for host, part := range map[string]string{
		"tcp://127.0.0.1:2375":    "with TLS only",
		"tcp://127.0.0.1":         "no port",
		"http://127.0.0.1:2375":   "unix://, tcp:// or ssh://",
		"ssh://user:secret@host":  "no password",
		"tcp://user:secret@h:1":   "no password",
		"ssh://-oProxyCommand=x/": "dash",
		"ssh://-x@host":           "dash",
		"tcp://":                  "an address is",
		"tcp://h:1/path":          "an address is",
	} {
		dir := ""
		if !strings.Contains(host, ":2375") && !strings.HasPrefix(host, "http") {
			dir = certs
		}
		_, err := docker.NewRemote(docker.RemoteConfig{Config: docker.Config{Host: host, StateDir: t.TempDir()}, CertDir: dir})
		if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %q", host, err, part)
		}
	}
}
