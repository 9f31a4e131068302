package main

import (
	"context"
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
	bare func(l *lab, session string) *bare
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
func benchTiers(ctx context.Context, l *lab) []row {
	calls := []subject{{name: "host fork+exec", op: timed(hostBash)}}
	creates := []subject{{name: "host fork+exec", op: timed(hostBash)}}
	for _, t := range allTiers() {
		if !slices.Contains(l.tiers, t.name) {
			continue
		}
		if _, err := caught(func() any { l.tier(ctx, t, &calls, &creates); return nil }); err != nil {
			l.note("no figures for %s: %v", t.name, err)
		}
	}
	if len(calls) == 1 {
		must(fmt.Errorf("none of the tiers %s works here: %s", strings.Join(l.tiers, ", "), strings.Join(l.notes, "; ")))
	}
	rows := l.latencies("tiers", calls, nil)
	got := get(inTurns(manner{n: l.n(50), run: 1}, creates))
	for _, s := range creates[1:] {
		rows = append(rows, row{Group: "tiers", Name: s.name, Unit: "µs", stats: got[s.name]}.against(creates[0].name, got[creates[0].name]))
	}
	return rows
}

// tier opens a lab of its own for t, with a session that stays.
func (l *lab) tier(ctx context.Context, t tier, calls, creates *[]subject) {
	if t.name == "docker" {
		l.engine(ctx)
	}
	in := newLab(labConfig{smoke: l.smoke, sandbox: t.config})
	l.cleanups = append(l.cleanups, in.close)
	id := get(in.session(ctx))
	w := &wire{socket: in.socket}
	in.cleanups = append(in.cleanups, w.close)
	*calls = append(*calls, subject{name: "bash, " + t.name, op: func() (time.Duration, error) {
		return w.call(id, "bash", map[string]any{"command": "true"})
	}})
	both := in.making(ctx, "", in.bound()).op
	*creates = append(*creates, subject{name: "session made and ended, " + t.name, op: timed(func() error {
		_, err := both()
		return err
	})})
	b, err := caught(func() *bare { return t.bare(in, id) })
	if err != nil {
		l.note("no figures of %s without toold: %v", t.name, err)
		return
	}
	*calls = append(*calls, subject{name: t.name + " exec", every: 10, op: timed(b.exec)})
	*creates = append(*creates, subject{name: t.name + " run and remove", op: timed(b.run)})
}

// bareOf is a container that stays, in which exec runs, and others that are made and removed.
func (l *lab) bareOf(run, remove func(name string) error, exec func() error) *bare {
	must(run("box"))
	l.cleanups = append(l.cleanups, func() { _ = remove("box") })
	return &bare{exec: exec, run: func() error {
		if err := run("again"); err != nil {
			return err
		}
		return remove("again")
	}}
}

// runcTier runs the bundle of the session.
func runcTier(l *lab, session string) *bare {
	b, again := startBox(l, session), newBox(l, session, "yard")
	return &bare{exec: b.exec, run: func() error {
		defer again.delete()
		return again.run()
	}}
}

// runscTier runs the host's root read-only, without network, as `runsc do` would.
func runscTier(l *lab, _ string) *bare {
	runsc := get(filepath.Abs("bin/runsc"))
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
	must(writeBundle(dir, spec))
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
	l.cleanups = append(l.cleanups, func() { _ = exec.Command("umount", filepath.Join(l.dir, "yard-runsc", "null-netns")).Run() })
	return l.bareOf(run, remove, func() error { return command("exec", "box", "/bin/bash", "-c", "true") })
}

// engine starts a private Docker Engine that has the small tool image, which
// this program's environment names from then on, and with it that of daemons.
func (l *lab) engine(ctx context.Context) {
	prepare := func(what string, cmd *exec.Cmd) {
		if out, err := cmd.CombinedOutput(); err != nil {
			must(fmt.Errorf("%s: %w: %s", what, err, out))
		}
	}
	prepare("scripts/image small", exec.CommandContext(ctx, "scripts/image", "small"))
	dir := filepath.Join(l.dir, "engine")
	prepare("scripts/engine start", exec.Command("scripts/engine", "start", dir))
	l.cleanups = append(l.cleanups, func() { _ = exec.Command("scripts/engine", "stop", dir).Run() })
	prepare("load the image", exec.CommandContext(ctx, "curl", "-sSf", "--unix-socket", filepath.Join(dir, "docker.sock"),
		"-H", "Content-Type: application/x-tar", "--data-binary", "@bin/image/toold-small.tar", "http://engine/images/load"))
	must(os.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "docker.sock")))
}

// dockerTier runs the same image by the docker command.
func dockerTier(l *lab, _ string) *bare {
	docker := get(exec.LookPath("docker"))
	command := func(args ...string) error {
		return exec.Command(docker, args...).Run()
	}
	run := func(name string) error {
		if err := command("run", "-d", "--network", "none", "--name", name, "toold-small", "sleep", "3600"); err != nil {
			return fmt.Errorf("docker run: %w", err)
		}
		return nil
	}
	remove := func(name string) error { return command("rm", "-f", name) }
	return l.bareOf(run, remove, func() error { return command("exec", "box", "bash", "-c", "true") })
}
