package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// tier is a way to hold sessions, beside what one would do without toold.
type tier struct {
	name   string
	config string // of [sandbox]
	// bare makes a container as the tier's own tools do, from a live session of
	// the tier's where that helps.
	bare func(l *lab, session string) (*bare, error)
}

// bare is a container without toold, and the operations that are compared.
type bare struct {
	exec func() error // a command in it
	run  func() error // a container made, and removed again
}

// tiers that the group of that name can measure.
func allTiers() []tier {
	return []tier{
		{"runc", "runtime = \"runc\"\n", runcTier},
		{"runsc", "runtime = \"runsc\"\n", runscTier},
		{"docker", "driver = \"docker\"\nrootfs = \"toold-small\"\n", dockerTier},
	}
}

// benchTiers times a command, and making and ending a session, on each tier: in
// turns with each other, with each tier's own tools, and with the bare host.
func benchTiers(ctx context.Context, l *lab) ([]row, error) {
	calls := []subject{{name: "host fork+exec", op: timed(hostBash)}}
	creates := []subject{{name: "host fork+exec", op: timed(hostBash)}}
	for _, t := range allTiers() {
		if !slices.Contains(l.tiers, t.name) {
			continue
		}
		call, create, err := l.tier(ctx, t)
		if err != nil {
			l.note("no figures for %s: %v", t.name, err)
			continue
		}
		calls, creates = append(calls, call...), append(creates, create...)
	}
	if len(calls) == 1 {
		return nil, fmt.Errorf("none of the tiers %s works here: %s", strings.Join(l.tiers, ", "), strings.Join(l.notes, "; "))
	}
	rows, err := l.latencies("tiers", calls, nil)
	if err != nil {
		return nil, err
	}
	got, err := inTurns(manner{n: l.n(50), run: 1}, creates)
	if err != nil {
		return nil, err
	}
	for _, s := range creates[1:] {
		rows = append(rows, row{Group: "tiers", Name: s.name, Unit: "µs", stats: got[s.name]}.against(creates[0].name, got[creates[0].name]))
	}
	return rows, nil
}

// tier opens a lab of its own for t, with a session that stays.
func (l *lab) tier(ctx context.Context, t tier) (call, create []subject, err error) {
	var env []string
	if t.name == "docker" {
		if env, err = l.engine(ctx); err != nil {
			return nil, nil, err
		}
	}
	in, err := newLab(ctx, labConfig{smoke: l.smoke, sandbox: t.config, env: env})
	if err != nil {
		return nil, nil, err
	}
	l.cleanups = append(l.cleanups, in.close)
	id, err := in.session(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Dialled when it is first used: what comes before that takes longer than a
	// daemon keeps connections that nobody uses.
	var w *wire
	in.cleanups = append(in.cleanups, func() {
		if w != nil {
			w.close()
		}
	})
	call = append(call, subject{name: "bash, " + t.name, op: func() (_ time.Duration, err error) {
		if w == nil {
			if w, err = dialWire(in.socket); err != nil {
				return 0, err
			}
		}
		return w.call(id, "bash", map[string]any{"command": "true"})
	}})
	create = append(create, subject{name: "session made and ended, " + t.name, op: timed(func() error {
		s, err := in.session(ctx)
		if err != nil {
			return err
		}
		return in.end(ctx, s)
	})})
	b, err := t.bare(in, id)
	if err != nil {
		l.note("no figures of %s without toold: %v", t.name, err)
		return call, create, nil
	}
	return append(call, subject{name: t.name + " exec", every: 10, op: timed(b.exec)}),
		append(create, subject{name: t.name + " run and remove", op: timed(b.run)}), nil
}

// runcTier runs the bundle of the session.
func runcTier(l *lab, session string) (*bare, error) {
	b, err := startBox(l, session)
	if err != nil {
		return nil, err
	}
	dir, err := bundleOf(l, session, "yard", []string{"/usr/bin/sleep", "3600"})
	if err != nil {
		return nil, err
	}
	again := &box{runc: l.runc, root: filepath.Join(l.dir, "yard-runc"), bundle: dir, id: "yard"}
	return &bare{exec: b.exec, run: func() error {
		defer again.delete()
		return again.run()
	}}, nil
}

// runscTier runs the host's root read-only, without network, as `runsc do` would.
func runscTier(l *lab, _ string) (*bare, error) {
	runsc, err := filepath.Abs("bin/runsc")
	if err != nil {
		return nil, err
	}
	spec := specs.Spec{
		Version:  "1.1.0",
		Process:  &specs.Process{Args: []string{"/usr/bin/sleep", "3600"}, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"}, NoNewPrivileges: true},
		Root:     &specs.Root{Path: "/", Readonly: true},
		Hostname: "yard",
		Mounts:   []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}, {Destination: "/tmp", Type: "tmpfs", Source: "tmpfs"}},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
		}},
	}
	dir := filepath.Join(l.dir, "yard")
	text, err := json.Marshal(spec)
	if err := errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)); err != nil {
		return nil, err
	}
	base := []string{"--root", filepath.Join(l.dir, "yard-runsc"), "--platform", "systrap", "--network", "none", "--ignore-cgroups"}
	command := func(args ...string) error {
		// A container that stays would hold a pipe of ours open.
		return exec.Command(runsc, append(slices.Clone(base), args...)...).Run()
	}
	run := func(id string) error {
		if err := command("run", "-detach", "-bundle", dir, id); err != nil {
			return fmt.Errorf("runsc run: %w", err)
		}
		return nil
	}
	remove := func(id string) error { return command("delete", "-force", id) }
	if err := run("box"); err != nil {
		return nil, err
	}
	l.cleanups = append(l.cleanups, func() {
		_ = remove("box")
		_ = exec.Command("umount", filepath.Join(l.dir, "yard-runsc", "null-netns")).Run()
	})
	return &bare{
		exec: func() error { return command("exec", "box", "/bin/bash", "-c", "true") },
		run: func() error {
			if err := run("again"); err != nil {
				return err
			}
			return remove("again")
		},
	}, nil
}

// engine starts a private Docker Engine that has the small tool image, and gives
// what a daemon's environment must have for it.
func (l *lab) engine(ctx context.Context) ([]string, error) {
	if out, err := exec.CommandContext(ctx, "scripts/image", "small").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("scripts/image small: %w: %s", err, out)
	}
	dir := filepath.Join(l.dir, "engine")
	if out, err := exec.Command("scripts/engine", "start", dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("scripts/engine start: %w: %s", err, out)
	}
	l.cleanups = append(l.cleanups, func() { _ = exec.Command("scripts/engine", "stop", dir).Run() })
	load := exec.CommandContext(ctx, "curl", "-sSf", "--unix-socket", filepath.Join(dir, "docker.sock"),
		"-H", "Content-Type: application/x-tar", "--data-binary", "@bin/image/toold-small.tar", "http://engine/images/load")
	if out, err := load.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("load the image: %w: %s", err, out)
	}
	return []string{"DOCKER_HOST=unix://" + filepath.Join(dir, "docker.sock")}, nil
}

// dockerTier runs the same image by the docker command.
func dockerTier(l *lab, _ string) (*bare, error) {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return nil, err
	}
	command := func(args ...string) error {
		cmd := exec.Command(docker, args...)
		cmd.Env = append(os.Environ(), l.env...)
		return cmd.Run()
	}
	run := func(name string) error {
		if err := command("run", "-d", "--network", "none", "--name", name, "toold-small", "sleep", "3600"); err != nil {
			return fmt.Errorf("docker run: %w", err)
		}
		return nil
	}
	if err := run("box"); err != nil {
		return nil, err
	}
	l.cleanups = append(l.cleanups, func() { _ = command("rm", "-f", "box") })
	return &bare{
		exec: func() error { return command("exec", "box", "bash", "-c", "true") },
		run: func() error {
			if err := run("again"); err != nil {
				return err
			}
			return command("rm", "-f", "again")
		},
	}, nil
}
