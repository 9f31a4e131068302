package network

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// A tier is what holds the sessions of a test.
type tier struct {
	name string
	// require is what TOOLD_TEST_REQUIRE calls it.
	require string
	// runtime is what sessions ask for; "" for the daemon's own.
	runtime string
	engine  bool // a private Docker Engine
	// relayed: only programs that know of the proxies reach anything.
	relayed bool
}

var (
	runc   = tier{name: "runc", require: "oci"}
	docker = tier{name: "docker", require: "docker", engine: true}
	gvisor = tier{name: "runsc", require: "runsc", runtime: "runsc", relayed: true}
	// tiers are all; those of transparent need no proxy.
	tiers       = []tier{runc, docker, gvisor}
	transparent = []tier{runc, docker}
)

// image is what sessions of the Engine are made of: links into mounts of the host's own
// directories, so that each client of this machine is there.
const image = "toold-network:host"

// hostMounts are where image leads.
func (r *rig) hostMounts() []client.Mount {
	if !r.tier.engine {
		return nil
	}
	return []client.Mount{{Source: filepath.Join(r.dir, "usr"), Target: "/opt/usr"}, {Source: filepath.Join(r.dir, "etc"), Target: "/opt/etc"}}
}

// etc are the directories below /etc that clients need.
var etc = []string{"alternatives", "java-17-openjdk", "java-21-openjdk", "ssl", "postgresql-common", "npmrc", "apt"}

// engine is the private Docker Engine of this run, once a test wants it.
var engine struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	status := m.Run()
	_ = os.RemoveAll(built.dir)
	if engine.dir != "" {
		if out, err := exec.Command("../../scripts/engine", "stop", engine.dir).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "stop the Engine: %v\n%s", err, out)
			status = max(1, status)
		}
	}
	os.Exit(status)
}

// startEngine starts the Engine with image.
func startEngine() {
	engine.err = func() error {
		dir, err := os.MkdirTemp("", "toold-network-engine-")
		if err == nil {
			err = os.Remove(dir) // scripts/engine makes it
		}
		if err != nil {
			return err
		}
		if out, err := exec.Command("../../scripts/engine", "start", dir).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		engine.dir = dir
		return importImage()
	}()
}

func importImage() error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var errs error
	add := func(name, link string) {
		h := &tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}
		if link != "" {
			h = &tar.Header{Name: name, Linkname: link, Typeflag: tar.TypeSymlink, Mode: 0o777}
		}
		errs = errors.Join(errs, w.WriteHeader(h))
	}
	for _, dir := range []string{"etc", "home", "opt", "opt/usr", "opt/etc", "tmp", "var", "var/tmp"} {
		add(dir, "")
	}
	add("usr", "opt/usr")
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		add(name, "opt/usr/"+name)
	}
	for _, name := range etc {
		add("etc/"+name, "/opt/etc/"+name)
	}
	if err := errors.Join(errs, w.Close()); err != nil {
		return err
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", engine.dir+"/docker.sock")
	}}
	defer tr.CloseIdleConnections()
	c := http.Client{Transport: tr, Timeout: bound}
	res, err := c.Post("http://engine/images/create?fromSrc=-&repo=toold-network&tag=host", "application/x-tar", &b)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var answer bytes.Buffer
	if _, err := answer.ReadFrom(res.Body); err != nil || res.StatusCode != http.StatusOK || bytes.Contains(answer.Bytes(), []byte(`"error"`)) {
		return fmt.Errorf("import the image: %s %s %w", res.Status, answer.String(), err)
	}
	return nil
}

// prepare makes ready what the tier needs, and gives the daemon's lines for it and its
// environment.
func (r *rig) prepare() (lines string, env []string) {
	r.t.Helper()
	if !r.tier.engine {
		return "", nil
	}
	engine.once.Do(startEngine)
	if engine.err != nil {
		testrig.Skipf(r.t, r.tier.require, "no Docker Engine: %v", engine.err)
	}
	must(r.t, os.Mkdir(filepath.Join(r.dir, "usr"), 0o755)) // where the daemon sees /usr
	must(r.t, os.Mkdir(filepath.Join(r.dir, "etc"), 0o755))
	for _, name := range etc {
		if _, err := os.Lstat("/etc/" + name); err == nil {
			out, err := exec.Command("cp", "-a", "/etc/"+name, filepath.Join(r.dir, "etc")).CombinedOutput()
			if err != nil {
				r.t.Fatalf("%v: %s", err, out)
			}
		}
	}
	return fmt.Sprintf("[sandbox]\ndriver = \"docker\"\nrootfs = %q\n", image), []string{"DOCKER_HOST=unix://" + engine.dir + "/docker.sock"}
}
