package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// house is toold in a container beside what compose.yaml has.
type house struct {
	*engine
	c         compose
	flags     []string
	socket    string
	container string
	api       *client.Client
	cgroup    string
}

// build makes the image of the Dockerfile from programs that are built here.
func (e *engine) build(t *testing.T) {
	t.Helper()
	bin := filepath.Join(e.dir, "bin")
	must(t, os.Mkdir(bin, 0o755))
	must(t, testrig.Build(bin, "cmd/toold", "cmd/toolctl", "cmd/toolagent"))
	if _, err := testrig.Bin("runc"); err != nil {
		testrig.Skipf(t, "docker", "%v", err)
	}
	context := map[string]string{
		"deploy": "../../deploy", "scripts/install": "../../scripts/install", "config.toml": "../../config.toml", "examples": "../../examples",
		"bin": bin,
	}
	e.image("toold", "deploy/docker/Dockerfile", map[string]string{"GO_IMAGE": base, "BASE_IMAGE": base}, context)
}

// open starts toold with these files of deploy/docker.
func (e *engine) open(t *testing.T, over ...string) *house {
	t.Helper()
	env := map[string]string{"GRAFANA_PASSWORD": "secret", "PROMETHEUS_IMAGE": "toold-test-prometheus", "TOOLD_TOOLS_IMAGE": base}
	h := &house{engine: e, c: readCompose(t, "compose.yaml", env), cgroup: "/" + filepath.Base(e.dir)}
	if len(over) > 0 {
		h.c = overlaid(t, "compose.yaml", over[0], env)
	}
	h.socket = filepath.Join(e.dir, "run/toold/toold.sock")
	h.flags = []string{
		"--state-dir", filepath.Join(e.dir, "var/lib/toold"), "--run-dir", filepath.Join(e.dir, "run/toold"), "--socket", h.socket,
		"--cgroup-parent", h.cgroup, "--uid-base", fmt.Sprint(testrig.UIDs(t)),
	}
	h.api = client.New(client.Options{Socket: h.socket})
	t.Cleanup(h.api.Close)
	h.start(t)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if list, err := h.api.ListSessions(ctx, client.SessionQuery{}); err == nil {
			for _, s := range list.Items {
				_, _ = h.api.EndSession(ctx, s.ID, client.EndOptions{Force: true})
			}
		}
		if t.Failed() {
			t.Log(h.log(h.container))
		}
		h.remove(h.container, false)
		dirs, _ := filepath.Glob("/sys/fs/cgroup/*" + h.cgroup)
		for _, d := range append(dirs, "/sys/fs/cgroup"+h.cgroup) {
			_ = os.Remove(d)
		}
	})
	return h
}

func (h *house) start(t *testing.T) {
	t.Helper()
	h.container = h.up(h.c, "toold", h.flags...)
	testrig.Eventually(t, "toold is ready", func() bool {
		if state, err := h.ContainerInspect(t.Context(), h.container); err != nil || !state.State.Running {
			t.Fatalf("toold has ended: %v\n%s", err, h.log(h.container))
		}
		ready, err := h.api.Ready(t.Context())
		return err == nil && ready.Status == "ok"
	})
}

// bash runs a command in a session and gives what it printed.
func (h *house) bash(t *testing.T, session, command string) string {
	t.Helper()
	input, err := json.Marshal(map[string]string{"command": command})
	must(t, err)
	call, err := h.api.CreateCall(t.Context(), session, client.CallCreate{Tool: "bash", Input: input}, client.CallOptions{})
	must(t, err)
	if call.Error != nil {
		t.Fatalf("%s: %v", command, call.Error)
	}
	return call.Output
}

// session on a directory of the host's that somebody else owns.
func (h *house) session(t *testing.T, r client.SessionCreate) (id, tree string) {
	t.Helper()
	tree = filepath.Join(h.dir, "srv", "tree-"+filepath.Base(t.Name())+r.Runtime)
	must(t, os.MkdirAll(tree, 0o755))
	must(t, os.WriteFile(filepath.Join(tree, "hello"), []byte("from the host\n"), 0o644))
	must(t, os.Chown(tree, 4321, 4321))
	must(t, os.Chown(filepath.Join(tree, "hello"), 4321, 4321))
	r.Worktree = client.Worktree{Source: tree}
	s, err := h.api.CreateSession(t.Context(), r)
	if err != nil {
		t.Fatalf("%v\n%s", err, h.log(h.container))
	}
	return s.ID, tree
}

// work is what a session must be good for.
func (h *house) work(t *testing.T, session, tree string) {
	t.Helper()
	if got, want := h.bash(t, session, "id -u; cat hello; echo from inside >there"), "1000\nfrom the host\n"; got != want {
		t.Errorf("a command printed %q, want %q", got, want)
	}
	info, err := os.Stat(filepath.Join(tree, "there"))
	must(t, err)
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 4321 {
		t.Errorf("what the session wrote belongs to %+v, not to the owner of the tree", info.Sys())
	}
}

// restart kills the container in the middle of a call, takes it away and makes
// another.
func (h *house) restart(t *testing.T, session string) {
	t.Helper()
	now := int64(0)
	call, err := h.api.CreateCall(t.Context(), session, client.CallCreate{
		Tool: "bash", WaitMillis: &now, Input: json.RawMessage(`{"command": "for i in $(seq 60); do echo line $i; sleep 0.05; done"}`),
	}, client.CallOptions{})
	must(t, err)
	// Running is said of a call that the agent may have yet to hear of.
	testrig.Eventually(t, "the call has begun to print", func() bool {
		c, err := h.api.GetCall(t.Context(), call.ID)
		if err != nil || c.Status != client.CallRunning {
			return c != nil && c.Finished()
		}
		out, err := h.api.CallOutput(t.Context(), call.ID, client.OutputQuery{})
		if err != nil {
			return false
		}
		defer out.Close()
		one := make([]byte, 1)
		_, err = io.ReadFull(out, one)
		return err == nil
	})
	h.remove(h.container, true)
	h.start(t)
	testrig.Eventually(t, "the call has ended", func() bool {
		c, err := h.api.GetCall(t.Context(), call.ID)
		return err == nil && c.Status == client.CallCompleted
	})
	out, err := h.api.CallOutput(t.Context(), call.ID, client.OutputQuery{})
	must(t, err)
	defer out.Close()
	text, err := io.ReadAll(out)
	must(t, err)
	var want strings.Builder
	for i := range 60 {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if string(text) != want.String() {
		t.Errorf("over the restart the call printed %q", text)
	}
	if got := h.bash(t, session, "echo still here"); got != "still here\n" {
		t.Errorf("after the restart: %q", got)
	}
}

// TestContainer runs what compose.yaml and what goes over it say, one after the
// other: the rights in there are enough for sessions, and sessions outlive toold's
// container.
func TestContainer(t *testing.T) {
	e := startEngine(t)
	e.build(t)
	e.network("toold_default")
	t.Run("without rights", e.withoutRights)
	t.Run("oci", func(t *testing.T) {
		h := e.in(t).open(t)
		id, tree := h.session(t, client.SessionCreate{})
		h.work(t, id, tree)
		h.restart(t, id)
		if out, code := h.exec(h.container, "toolctl", "--socket", h.socket, "session", "list", "-o", "name"); code != 0 || out != id+"\n" {
			t.Errorf("the health check says %q, exit status %d", out, code)
		}
		if program(t, "runsc") != "" {
			kernel, tree := h.session(t, client.SessionCreate{Runtime: "runsc"})
			h.work(t, kernel, tree)
			h.end(t, kernel)
		}
		if prometheus := program(t, "prometheus"); prometheus != "" {
			h.scraped(t, prometheus)
		}
		h.end(t, id)
	})
	t.Run("docker", func(t *testing.T) {
		h := e.in(t).open(t, "compose.docker.yaml")
		id, tree := h.session(t, client.SessionCreate{})
		if s, err := h.api.GetSession(t.Context(), id); err != nil || s.Driver != "docker" {
			t.Errorf("the session: %+v, %v", s, err)
		}
		h.work(t, id, tree)
		h.restart(t, id)
		h.end(t, id)
		list, err := h.ContainerList(t.Context(), container.ListOptions{All: true})
		must(t, err)
		if len(list) != 1 || list[0].ID != h.container {
			t.Errorf("containers besides toold's: %+v", list)
		}
	})
}

// end ends a session, of which nothing may be left.
func (h *house) end(t *testing.T, session string) {
	t.Helper()
	_, err := h.api.EndSession(t.Context(), session, client.EndOptions{})
	must(t, err)
	left, err := h.api.GC(t.Context(), client.GCRequest{DryRun: true})
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left behind: %+v", left)
	}
}

// scraped runs Prometheus as compose.yaml does and asks it whether toold is up.
func (h *house) scraped(t *testing.T, prometheus string) {
	t.Helper()
	context := map[string]string{"bin/prometheus": prometheus, "bin/promtool": program(t, "promtool")}
	dockerfile := filepath.Join(h.dir, "Dockerfile.prometheus")
	must(t, os.WriteFile(dockerfile, []byte("FROM "+base+`
COPY bin/ /bin/
RUN mkdir /prometheus && chown 65534 /prometheus
USER 65534
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
`), 0o600))
	context["Dockerfile"] = dockerfile
	h.image("toold-test-prometheus", "Dockerfile", nil, context)
	id := h.up(h.c, "prometheus")
	defer h.remove(id, true)
	var out string
	testrig.Eventually(t, "Prometheus sees toold", func() bool {
		out, _ = h.exec(id, "/bin/promtool", "query", "instant", "http://127.0.0.1:9090", `up{job="toold"}`)
		return strings.Contains(out, "=> 1 ")
	})
}
