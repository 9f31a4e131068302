package oci_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/oci"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

func TestNewRefuses(t *testing.T) {
	needOCI(t)
	for name, change := range map[string]func(*oci.Config){
		"no runtime":             func(c *oci.Config) { c.Runtimes = nil },
		"relative runtime":       func(c *oci.Config) { c.Runtimes = map[string]string{"runc": "bin/runc"} },
		"runtime name":           func(c *oci.Config) { c.Runtimes = map[string]string{"../x": "/bin/true"} },
		"default runtime":        func(c *oci.Config) { c.DefaultRuntime = "other" },
		"no agent":               func(c *oci.Config) { c.AgentBinary = "/nonexistent" },
		"no ripgrep":             func(c *oci.Config) { c.Ripgrep = "/nonexistent" },
		"relative rootfs":        func(c *oci.Config) { c.Rootfs = "image" },
		"missing rootfs":         func(c *oci.Config) { c.Rootfs = "/nonexistent" },
		"host path /home":        func(c *oci.Config) { c.HostPaths = []string{"/usr", "/home/x"} },
		"host path /var":         func(c *oci.Config) { c.HostPaths = []string{"/var/lib"} },
		"host path /var by link": func(c *oci.Config) { c.HostPaths = []string{linkTo(t, "/var/lib")} },
		"host path /etc":         func(c *oci.Config) { c.HostPaths = []string{"/etc"} },
		"host path /":            func(c *oci.Config) { c.HostPaths = []string{"/"} },
		"missing host path":      func(c *oci.Config) { c.HostPaths = []string{"/usr", "/nonexistent"} },
		"cgroup parent":          func(c *oci.Config) { c.CgroupParent = "../x" },
		"closed run directory": func(c *oci.Config) {
			closed := filepath.Join(t.TempDir(), "closed")
			if err := os.Mkdir(closed, 0o700); err != nil {
				t.Fatal(err)
			}
			c.RunDir = closed
		},
	} {
		f := newFixture(t)
		cfg := f.cfg
		cfg.Runtimes = maps.Clone(cfg.Runtimes)
		change(&cfg)
		if _, err := oci.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func linkTo(t *testing.T, target string) string {
	t.Helper()
	// Below /usr: what is below /tmp is refused for its own name.
	link := filepath.Join("/usr/local/share", mark+sandboxtest.RandomHex(4))
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(link) })
	return link
}

func TestHost(t *testing.T) {
	f := newFixture(t)
	f.cfg.Runtimes["absent"], f.cfg.Runtimes["false"] = "/nonexistent/crun", "/bin/false"
	f.cfg.DefaultRuntime = "runc"
	f.driver = f.open()
	checks := f.driver.Host(context.Background())
	status := map[string]client.CheckStatus{}
	for _, c := range checks {
		t.Logf("%-8s %-45s %-5s %s %s", c.Group, c.Name, c.Status, c.Detail, c.Hint)
		status[c.Group+" "+c.Name] = c.Status
		if c.Detail == "" {
			t.Errorf("%s says nothing", c.Name)
		}
	}
	for name, want := range map[string]client.CheckStatus{
		"host kernel": client.CheckOK, "host openat2": client.CheckOK, "host pidfd": client.CheckOK,
		"runtime runc": client.CheckOK, "runtime absent": client.CheckNA, "runtime false": client.CheckNA,
		"worktree mode overlay with runc": client.CheckOK, "worktree mode overlay with absent": "",
	} {
		if status[name] != want {
			t.Errorf("%s is %q, want %s", name, status[name], want)
		}
	}
	if got, err := f.driver.Runtimes(t.Context()); err != nil || !slices.Equal(got, []string{"runc", "absent", "false"}) {
		t.Errorf("runtimes are %v, %v", got, err)
	}
	for name, want := range map[string]string{"runc": "<nil>", "absent": "no such file", "false": "exit status 1", "other": "no such runtime"} {
		if err := f.driver.Try(t.Context(), name); !strings.Contains(fmt.Sprint(err), want) || errors.Is(err, sandbox.ErrNoRuntime) != (name == "other") {
			t.Errorf("try %s: %v", name, err)
		}
	}
	f.nothingLeft(f.Spec())
}
