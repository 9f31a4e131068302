package attack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// A tier is one way to hold sessions. To add one: an entry in tiers, a name for
// TOOLD_TEST_REQUIRE, and what its sessions do otherwise in differences.
type tier struct {
	name string
	// title is the head of its column in docs/security.md.
	title string
	// require is what TOOLD_TEST_REQUIRE calls it: a tier that cannot run is a
	// failure then. "" for one that is used where it happens to work.
	require string
	// program holds the sessions: a name in PATH or in bin/; "" for an Engine.
	program string
	// engine: the run gets a private Docker Engine.
	engine bool
	// sandbox makes its lines of the configuration's section [sandbox], in dir.
	sandbox func(t *tier, dir string) (string, error)
	// lines are what sandbox made.
	lines string
}

// tiers are all that TOOLD_TEST_TIER may name; the first is the default.
var tiers = []*tier{
	{name: "runc", title: "runc", require: "oci", program: "runc", sandbox: ociSandbox},
	{name: "crun", title: "crun", program: "crun", sandbox: ociSandbox},
	{name: "runsc", title: "runsc (gVisor)", require: "runsc", program: "runsc", sandbox: ociSandbox},
	{name: "docker", title: "Docker Engine", require: "docker", engine: true, sandbox: dockerSandbox},
}

// current is the tier that this run attacks.
var current = tiers[0]

// chooseTier takes the one that TOOLD_TEST_TIER names.
func chooseTier() error {
	name := os.Getenv("TOOLD_TEST_TIER")
	if name == "" {
		return nil
	}
	var names []string
	for _, t := range tiers {
		if names = append(names, t.name); t.name == name {
			current = t
			return nil
		}
	}
	return fmt.Errorf("TOOLD_TEST_TIER is %q; there are %s", name, strings.Join(names, ", "))
}

// prepare finds what the tier needs, and makes sure that it can hold a session:
// the error says why not.
func (t *tier) prepare(dir string) (err error) {
	if t.program != "" {
		path, err := findProgram(t.program)
		if err != nil {
			return err
		}
		// A copy: what an attack must not change is not built anew meanwhile.
		bin.runtime = filepath.Join(dir, t.program)
		if err := copyProgram(path, bin.runtime); err != nil {
			return err
		}
	}
	if t.lines, err = t.sandbox(t, dir); err != nil {
		return err
	}
	return t.try(dir)
}

// copyProgram takes the place of the link that testrig.Build has made: written through it, the
// copy would replace a program that others run meanwhile.
func copyProgram(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return testrig.WriteProgram(to, b)
}

// findProgram prefers what is built with the project.
func findProgram(name string) (string, error) {
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return exec.LookPath(name)
}

func ociSandbox(*tier, string) (string, error) {
	return fmt.Sprintf("runtime = %q\n", bin.runtime), nil
}

// try holds one session.
func (t *tier) try(dir string) (err error) {
	run, socket := filepath.Join(dir, "try"), filepath.Join(dir, "try", "toold.sock")
	if err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(run, 0o755)); err != nil {
		return err
	}
	config := filepath.Join(dir, "try.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "[daemon]\nsocket = %q\nstate_dir = %q\nrun_dir = %q\n[metrics]\nlisten = \"\"\n[sandbox]\n%suid_base = %d\n",
		socket, filepath.Join(run, "state"), filepath.Join(run, "run"), t.lines, uidBase()), 0o600); err != nil {
		return err
	}
	daemon, err := testrig.StartDaemon(socket, filepath.Join(dir, "try.log"), bin.toold, "--config", config, "--cgroup-parent", "/"+cgroupParent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, daemon.Terminate()) }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := client.New(client.Options{Socket: socket, HTTPTimeout: patience})
	defer c.Close()
	s, err := c.CreateSession(ctx, client.SessionCreate{})
	if err != nil {
		if d, derr := c.Doctor(ctx, false); derr == nil {
			for _, check := range d.Checks {
				if check.Group == "runtime" && check.Status != client.CheckOK && strings.Contains(check.Detail, t.name) {
					return errors.New(check.Detail)
				}
			}
		}
		return err
	}
	_, err = c.EndSession(ctx, s.ID, client.EndOptions{Force: true})
	return err
}
