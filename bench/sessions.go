package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// box is a bare container of the runtime's, made from the bundle of a live
// session: the same namespaces, mounts, limits and filter, with sleep in place of
// the agent.
type box struct{ runc, root, bundle, id string }

// bundleOf copies a session's bundle and puts argv in place of the agent.
func bundleOf(l *lab, session, name string, argv []string) (string, error) {
	var found string
	filepath.WalkDir(l.dir, func(p string, e os.DirEntry, err error) error {
		if err == nil && e.Name() == "config.json" && strings.Contains(p, session) {
			found = p
		}
		return nil
	})
	if found == "" {
		return "", fmt.Errorf("no bundle of %s below %s", session, l.dir)
	}
	var spec specs.Spec
	if err := json.Unmarshal([]byte(readFile(found)), &spec); err != nil {
		return "", err
	}
	if !filepath.IsAbs(spec.Root.Path) {
		spec.Root.Path = filepath.Join(filepath.Dir(found), spec.Root.Path)
	}
	spec.Process.Args = argv
	spec.Linux.CgroupsPath = l.cgroupParent + "/" + name
	dir := filepath.Join(l.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600)
}

func startBox(l *lab, session string) (*box, error) {
	dir, err := bundleOf(l, session, "box", []string{"/usr/bin/sleep", "3600"})
	if err != nil {
		return nil, err
	}
	b := &box{runc: l.runc, root: filepath.Join(l.dir, "box-runc"), bundle: dir, id: "box"}
	if err := b.run(); err != nil {
		return nil, err
	}
	l.cleanups = append(l.cleanups, b.delete)
	return b, nil
}

// run starts the container, detached. Its output must not be a pipe of ours,
// which the container would hold open.
func (b *box) run() error {
	cmd := exec.Command(b.runc, "--root", b.root, "--log", filepath.Join(b.bundle, "log"), "run", "-d", "--bundle", b.bundle, b.id)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("runc run: %w: %s", err, readFile(filepath.Join(b.bundle, "log")))
	}
	return nil
}

func (b *box) exec() error {
	return exec.Command(b.runc, "--root", b.root, "exec", "--user", "1000:1000", b.id, "bash", "-c", "true").Run()
}

func (b *box) delete() { exec.Command(b.runc, "--root", b.root, "delete", "-f", b.id).Run() }

// startDocker runs a container on the Engine, from an image that it already
// has, and gives the operation of one exec in it.
func startDocker(l *lab) (func() error, error) {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return nil, err
	}
	if err := exec.Command("timeout", "5", docker, "info").Run(); err != nil {
		return nil, fmt.Errorf("no Docker Engine answers")
	}
	image := firstLine(output(docker, "images", "-q"))
	if image == "" {
		return nil, fmt.Errorf("the Docker Engine has no image")
	}
	name := strings.TrimPrefix(l.cgroupParent, "/")
	if err := exec.Command(docker, "run", "-d", "--rm", "--network", "none", "--name", name, image, "sleep", "3600").Run(); err != nil {
		return nil, fmt.Errorf("docker run: %w", err)
	}
	l.cleanups = append(l.cleanups, func() { exec.Command(docker, "rm", "-f", name).Run() })
	return func() error { return exec.Command(docker, "exec", name, "bash", "-c", "true").Run() }, nil
}

func pauseName(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// benchCreate times the creation of a session beside the runtime's own run of
// the same bundle, and a burst of creations.
func benchCreate(ctx context.Context, l *lab) ([]row, error) {
	id, err := l.session(ctx)
	if err != nil {
		return nil, err
	}
	defer l.end(ctx, id)
	dir, err := bundleOf(l, id, "yard", []string{"/usr/bin/sleep", "3600"})
	if err != nil {
		return nil, err
	}
	b := &box{runc: l.runc, root: filepath.Join(l.dir, "yard-runc"), bundle: dir}
	var rows []row
	for _, p := range []time.Duration{0, 30 * time.Millisecond} {
		n := l.n(100)
		if p > 0 {
			n = l.n(60)
		}
		var made, first, bare []float64
		for i := range n {
			time.Sleep(p)
			b.id = fmt.Sprintf("yard-%d-%d", p, i)
			start := time.Now()
			if err := b.run(); err != nil {
				return nil, err
			}
			bare = append(bare, micros(start))
			b.delete()
			time.Sleep(p)
			start = time.Now()
			s, err := l.session(ctx)
			if err != nil {
				return nil, err
			}
			made = append(made, micros(start))
			if _, err := l.call(ctx, s, "bash", map[string]any{"command": "true"}); err != nil {
				return nil, err
			}
			first = append(first, micros(start))
			if err := l.end(ctx, s); err != nil {
				return nil, err
			}
		}
		rows = append(rows,
			row{Group: "create", Name: "session, cold", Manner: pauseName(p), Unit: "µs", stats: summarise(made), Target: "≤ 1.5 ×"}.against("runc run", summarise(bare)),
			row{Group: "create", Name: "session, cold, and a first bash", Manner: pauseName(p), Unit: "µs", stats: summarise(first)}.against("runc run", summarise(bare)))
	}
	burst := l.n(100)
	ids := make([]string, burst)
	errs := make([]error, burst)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range burst {
		wg.Go(func() {
			ids[i], errs[i] = l.session(ctx)
			if errs[i] == nil {
				_, errs[i] = l.call(ctx, ids[i], "bash", map[string]any{"command": "true"})
			}
		})
	}
	wg.Wait()
	took := micros(start) / 1e3
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("burst of %d: %w", burst, err)
		}
	}
	for _, id := range ids {
		if err := l.end(ctx, id); err != nil {
			return nil, err
		}
	}
	return append(rows, row{Group: "create", Name: fmt.Sprintf("burst of %d, all used once", burst), Unit: "ms", stats: stats{took, took, took, 1}}), nil
}

func micros(since time.Time) float64 { return float64(time.Since(since).Nanoseconds()) / 1e3 }

// benchOutput gives the rate of a command that prints a lot, beside the same
// pipe into cat, and what it costs the daemon in memory.
func benchOutput(ctx context.Context, l *lab) ([]row, error) {
	id, err := l.session(ctx)
	if err != nil {
		return nil, err
	}
	defer l.end(ctx, id)
	size := 1 << 30
	if l.smoke {
		size = 1 << 24
	}
	cmd := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' 'x'", size)
	before := rssMiB(l.cmd.Process.Pid)
	var ours, bare []float64
	for range 3 {
		start := time.Now()
		if err := exec.Command("bash", "-c", cmd+" | cat > /dev/null").Run(); err != nil {
			return nil, err
		}
		bare = append(bare, float64(size>>20)/time.Since(start).Seconds())
		start = time.Now()
		if _, err := l.call(ctx, id, "bash", map[string]any{"command": cmd}); err != nil {
			return nil, err
		}
		ours = append(ours, float64(size>>20)/time.Since(start).Seconds())
	}
	grown := rssMiB(l.cmd.Process.Pid) - before
	return []row{
		row{Group: "output", Name: fmt.Sprintf("bash prints %d MiB", size>>20), Unit: "MiB/s", stats: summarise(ours), Target: "≥ 0.5 ×"}.against("| cat > /dev/null", summarise(bare)),
		{Group: "output", Name: "growth of the daemon meanwhile", Unit: "MiB", stats: stats{grown, grown, grown, 1}, Target: "≤ 16 MiB"},
	}, nil
}

func rssMiB(pid int) float64 {
	for line := range strings.Lines(readFile(fmt.Sprintf("/proc/%d/status", pid))) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			n, _ := strconv.ParseFloat(f[1], 64)
			return n / 1024
		}
	}
	return 0
}

// benchIdle gives what an idle session costs: what its memory cgroup is charged
// with, kernel memory included, and what the machine has less of for each.
func benchIdle(ctx context.Context, l *lab) ([]row, error) {
	n := l.n(50)
	free := available()
	daemon := rssMiB(l.cmd.Process.Pid)
	var ids []string
	for range n {
		id, err := l.session(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := l.call(ctx, id, "bash", map[string]any{"command": "true"}); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	time.Sleep(3 * time.Second) // until what is given back at once has been given back
	waiting := l.charged(ids)
	if !l.smoke {
		time.Sleep(40 * time.Second) // the shell that waits for a next command is ended as well
	}
	charged := l.charged(ids)
	less := (free - available() - (rssMiB(l.cmd.Process.Pid) - daemon)) / float64(n)
	for _, id := range ids {
		if err := l.end(ctx, id); err != nil {
			return nil, err
		}
	}
	return []row{
		{Group: "idle", Name: "session, 3 s after its last command", Unit: "MiB", stats: summarise(waiting)},
		{Group: "idle", Name: "session, charged to its cgroup", Unit: "MiB", stats: summarise(charged), Target: "≤ 2.5 MiB"},
		{Group: "idle", Name: fmt.Sprintf("session, MemAvailable of the host / %d", n), Unit: "MiB", stats: stats{less, less, less, n}},
	}, nil
}

// charged is what the sessions' cgroups are charged with, in MiB.
func (l *lab) charged(ids []string) (all []float64) {
	for _, id := range ids {
		v := 0.0
		for _, f := range []string{"/sys/fs/cgroup/memory%s/%s/memory.usage_in_bytes", "/sys/fs/cgroup%s/%s/memory.current"} {
			if b := strings.TrimSpace(readFile(fmt.Sprintf(f, l.cgroupParent, id))); b != "" {
				v, _ = strconv.ParseFloat(b, 64)
			}
		}
		all = append(all, v/(1<<20))
	}
	return all
}

func available() float64 {
	for line := range strings.Lines(readFile("/proc/meminfo")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemAvailable:" {
			n, _ := strconv.ParseFloat(f[1], 64)
			return n / 1024
		}
	}
	return 0
}
