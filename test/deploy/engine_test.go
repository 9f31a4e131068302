package deploy

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	docker "github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/toold/toold/internal/testrig"
)

// bound is how long anything may take that only has to happen some time.
const bound = 60 * time.Second

// engine is a private Docker Engine that ends with the test.
type engine struct {
	*docker.Client
	t   *testing.T
	dir string // of the test: what would be the host's / in use
}

// in is the same Engine for a test within the one that started it.
func (e *engine) in(t *testing.T) *engine { return &engine{Client: e.Client, t: t, dir: e.dir} }

// base is what the images of the tests stand on.
const base = "toold-small:latest"

// startEngine starts one that has the small tool image, or skips the test.
func startEngine(t *testing.T) *engine {
	t.Helper()
	if os.Geteuid() != 0 {
		testrig.Skipf(t, "docker", "an Engine needs root")
	}
	if out, err := exec.Command("../../scripts/image", "small").CombinedOutput(); err != nil {
		testrig.Skipf(t, "docker", "the small tool image cannot be built: %v\n%s", err, out)
	}
	// Short, and passable for the users of sandboxes.
	dir := testrig.TempDir(t, "toold-deploy-")
	e := &engine{t: t, dir: dir}
	at := filepath.Join(dir, "engine")
	if out, err := exec.Command("../../scripts/engine", "start", at).CombinedOutput(); err != nil {
		testrig.Skipf(t, "docker", "no Engine: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("../../scripts/engine", "stop", at).CombinedOutput(); err != nil {
			t.Errorf("stop the Engine: %v\n%s", err, out)
		}
	})
	var err error
	e.Client, err = docker.NewClientWithOpts(docker.WithHost("unix://"+filepath.Join(at, "docker.sock")), docker.WithAPIVersionNegotiation())
	must(t, err)
	t.Cleanup(func() { _ = e.Close() })
	f, err := os.Open("../../bin/image/toold-small.tar")
	must(t, err)
	defer f.Close()
	loaded, err := e.ImageLoad(t.Context(), f)
	must(t, err)
	defer loaded.Body.Close()
	e.messages(loaded.Body)
	return e
}

// messages reads what the Engine says of a build or a load, and fails with its error.
func (e *engine) messages(r io.Reader) {
	e.t.Helper()
	var said strings.Builder
	for d := json.NewDecoder(r); ; {
		var m struct{ Stream, Error string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			e.t.Fatal(err)
		}
		said.WriteString(m.Stream)
		if m.Error != "" {
			e.t.Fatalf("%s\n%s", m.Error, said.String())
		}
	}
}

// image builds one from a context: names in it and the files on this host.
func (e *engine) image(name, dockerfile string, args map[string]string, context map[string]string) {
	e.t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for to, from := range context {
		must(e.t, addAll(w, to, from))
	}
	must(e.t, w.Close())
	given := map[string]*string{}
	for k, v := range args {
		given[k] = &v
	}
	r, err := e.ImageBuild(e.t.Context(), &b, build.ImageBuildOptions{
		Tags: []string{name}, Dockerfile: dockerfile, BuildArgs: given, NetworkMode: "none", Remove: true, ForceRemove: true,
	})
	must(e.t, err)
	defer r.Body.Close()
	e.messages(r.Body)
}

// addAll puts a file, or a directory with all that is in it, into an archive.
func addAll(w *tar.Writer, to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h := &tar.Header{Name: to + strings.TrimPrefix(path, from), Mode: int64(info.Mode().Perm()), Size: int64(len(text))}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
}

// network that the services of a file share.
func (e *engine) network(name string) {
	e.t.Helper()
	_, err := e.NetworkCreate(e.t.Context(), name, network.CreateOptions{Driver: "bridge", Internal: true})
	must(e.t, err)
}

// up runs a service as docker compose would. What it has of the host's directories
// is below the test's own, by the same names in the container.
func (e *engine) up(c compose, name string, extra ...string) (id string) {
	e.t.Helper()
	s := c.Services[name]
	cfg := &container.Config{Image: s.Image, Hostname: s.Hostname, Cmd: append(s.Command, extra...)}
	for k, v := range s.Environment {
		cfg.Env = append(cfg.Env, k+"="+v)
	}
	host := &container.HostConfig{
		PidMode: container.PidMode(s.PID), CgroupnsMode: container.CgroupnsMode(s.Cgroup), ReadonlyRootfs: s.ReadOnly,
		CapDrop: s.CapDrop, CapAdd: e.possible(s.CapAdd), NetworkMode: container.NetworkMode(c.Name + "_default"),
	}
	for _, o := range s.SecurityOpt {
		if o == "systempaths=unconfined" { // the one that clients translate
			host.MaskedPaths, host.ReadonlyPaths = []string{}, []string{}
			continue
		}
		host.SecurityOpt = append(host.SecurityOpt, strings.Replace(o, "no-new-privileges:true", "no-new-privileges", 1))
	}
	for _, b := range binds(e.t, s) {
		host.Binds = append(host.Binds, e.moved(b).String())
	}
	host.ExtraHosts = e.neighbours(c)
	aliases := &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{c.Name + "_default": {Aliases: []string{name}}}}
	made, err := e.ContainerCreate(e.t.Context(), cfg, host, aliases, nil, c.Name+"-"+name+"-1")
	must(e.t, err)
	must(e.t, e.ContainerStart(e.t.Context(), made.ID, container.StartOptions{}))
	return made.ID
}

// neighbours are the addresses of the services that run already. An Engine answers
// questions for their names by rules of the packet filter, and the private one has
// none.
func (e *engine) neighbours(c compose) (hosts []string) {
	list, err := e.ContainerList(e.t.Context(), container.ListOptions{})
	must(e.t, err)
	for _, n := range list {
		at := n.NetworkSettings.Networks[c.Name+"_default"]
		for service := range c.Services {
			if at != nil && slices.Contains(n.Names, "/"+c.Name+"-"+service+"-1") {
				hosts = append(hosts, service+":"+at.IPAddress)
			}
		}
	}
	return hosts
}

// moved is a volume on this machine, which has its own toold and its own Engine.
func (e *engine) moved(b bind) bind {
	switch {
	case strings.HasPrefix(b.source, "."):
		at, err := filepath.Abs(filepath.Join(files, b.source))
		must(e.t, err)
		b.source = at
	case b.source == "/var/run/docker.sock":
		b.source = strings.TrimPrefix(e.DaemonHost(), "unix://")
	case b.source == "/sys/fs/cgroup", strings.HasPrefix(b.source, e.dir):
	case filepath.IsAbs(b.source):
		b.source, b.target = e.dir+b.source, e.dir+b.target
		must(e.t, os.MkdirAll(b.source, 0o711))
	}
	return b
}

// possible are those capabilities that this machine has to give.
func (e *engine) possible(all []string) (some []string) {
	status, err := os.ReadFile("/proc/self/status")
	must(e.t, err)
	_, have, _ := strings.Cut(string(status), "CapBnd:")
	var mask uint64
	_, err = fmt.Sscanf(have, "%x", &mask)
	must(e.t, err)
	const sysResource = 24
	for _, c := range all {
		if c == "SYS_RESOURCE" && mask&(1<<sysResource) == 0 {
			e.t.Log("without SYS_RESOURCE, which this machine does not have")
			continue
		}
		some = append(some, c)
	}
	return some
}

// exec runs a program in a container and gives what it printed and its exit status.
func (e *engine) exec(id string, argv ...string) (string, int) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), bound)
	defer cancel()
	x, err := e.ContainerExecCreate(ctx, id, container.ExecOptions{Cmd: argv, AttachStdout: true, AttachStderr: true})
	must(e.t, err)
	a, err := e.ContainerExecAttach(ctx, x.ID, container.ExecAttachOptions{})
	must(e.t, err)
	defer a.Close()
	var out bytes.Buffer
	_, err = stdcopy.StdCopy(&out, &out, a.Reader)
	must(e.t, err)
	end, err := e.ContainerExecInspect(ctx, x.ID)
	must(e.t, err)
	return out.String(), end.ExitCode
}

// remove takes a container away; kill asks it nothing first.
func (e *engine) remove(id string, kill bool) {
	e.t.Helper()
	ctx := context.WithoutCancel(e.t.Context())
	if !kill {
		grace := 40
		must(e.t, e.ContainerStop(ctx, id, container.StopOptions{Timeout: &grace}))
	}
	must(e.t, e.ContainerRemove(ctx, id, container.RemoveOptions{Force: true}))
}

// log is what a container has printed.
func (e *engine) log(id string) string {
	r, err := e.ContainerLogs(context.WithoutCancel(e.t.Context()), id, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	var out bytes.Buffer
	_, _ = stdcopy.StdCopy(&out, &out, r)
	return out.String()
}
