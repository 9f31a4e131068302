package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"

	"github.com/toold/toold/client"
)

// box is a bare container of the runtime's, made from the bundle of a live
// session: the same namespaces, mounts, limits and filter, with sleep in place of
// the agent.
type box struct{ runc, root, bundle, id string }

// newBox copies a session's bundle.
func newBox(l *lab, session, name string) *box {
	var found string
	filepath.WalkDir(l.dir, func(p string, e os.DirEntry, err error) error {
		if err == nil && e.Name() == "config.json" && strings.Contains(p, session) {
			found = p
		}
		return nil
	})
	if found == "" {
		must(fmt.Errorf("no bundle of %s below %s", session, l.dir))
	}
	var spec specs.Spec
	must(json.Unmarshal([]byte(readFile(found)), &spec))
	if !filepath.IsAbs(spec.Root.Path) {
		spec.Root.Path = filepath.Join(filepath.Dir(found), spec.Root.Path)
	}
	spec.Process.Args = []string{"/usr/bin/sleep", "3600"}
	spec.Linux.CgroupsPath = l.cgroupParent + "/" + name
	dir := filepath.Join(l.dir, name)
	must(writeBundle(dir, spec))
	return &box{runc: l.runc, root: dir + "-runc", bundle: dir, id: name}
}

// writeBundle makes a directory that a runtime runs.
func writeBundle(dir string, spec specs.Spec) error {
	text, err := json.Marshal(spec)
	return errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
}

func startBox(l *lab, session string) *box {
	b := newBox(l, session, "box")
	must(b.run())
	l.cleanups = append(l.cleanups, b.delete)
	return b
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

// benchCreate times the creation of a session beside the runtime's own run of
// the same bundle, and a burst of creations.
func benchCreate(ctx context.Context, l *lab) []row {
	id := get(l.session(ctx))
	defer l.end(ctx, id)
	b := newBox(l, id, "yard")
	var rows []row
	for _, m := range []manner{{n: l.n(100), run: 1}, {name: "30ms", n: l.n(60), run: 1, pause: 30 * time.Millisecond}} {
		var first []float64
		got := get(inTurns(m, []subject{
			{name: "runc run", op: func() (time.Duration, error) {
				b.id = fmt.Sprintf("yard-%s-%d", m.name, len(first))
				defer b.delete()
				return timed(b.run)()
			}},
			{name: "session", op: func() (time.Duration, error) {
				start := time.Now()
				id, err := l.session(ctx)
				took := time.Since(start)
				if err != nil {
					return 0, err
				}
				err = l.bash(ctx, id, "true")
				first = append(first, micros(start))
				return took, errors.Join(err, l.end(ctx, id))
			}},
		}))
		rows = append(rows,
			row{Group: "create", Name: "session, cold", Manner: m.name, Unit: "µs", stats: got["session"], Target: "≤ 1.5 ×"}.against("runc run", got["runc run"]),
			row{Group: "create", Name: "session, cold, and a first bash", Manner: m.name, Unit: "µs", stats: summarise(first)}.against("runc run", got["runc run"]))
	}
	burst := l.n(100)
	ids := make([]string, burst)
	var work errgroup.Group
	start := time.Now()
	for i := range burst {
		work.Go(func() (err error) {
			if ids[i], err = l.session(ctx); err != nil {
				return err
			}
			return l.bash(ctx, ids[i], "true")
		})
	}
	if err := work.Wait(); err != nil {
		must(fmt.Errorf("burst of %d: %w", burst, err))
	}
	took := micros(start) / 1e3
	must(l.end(ctx, ids...))
	return append(rows, row{Group: "create", Name: fmt.Sprintf("burst of %d, all used once", burst), Unit: "ms", stats: stats{took, took, took, 1}})
}

func micros(since time.Time) float64 { return float64(time.Since(since).Nanoseconds()) / 1e3 }

// benchOutput gives the rate of a command that prints a lot, beside the same
// pipe into cat, and what it costs the daemon in memory.
func benchOutput(ctx context.Context, l *lab) []row {
	id := get(l.session(ctx))
	defer l.end(ctx, id)
	size := 1 << 30
	if l.smoke {
		size = 1 << 24
	}
	cmd := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' 'x'", size)
	before := l.rss()
	var ours, bare []float64
	for range 3 {
		start := time.Now()
		must(exec.Command("bash", "-c", cmd+" | cat > /dev/null").Run())
		bare = append(bare, float64(size>>20)/time.Since(start).Seconds())
		start = time.Now()
		must(l.bash(ctx, id, cmd))
		ours = append(ours, float64(size>>20)/time.Since(start).Seconds())
	}
	grown := l.rss() - before
	return []row{
		row{Group: "output", Name: fmt.Sprintf("bash prints %d MiB", size>>20), Unit: "MiB/s", stats: summarise(ours), Target: "≥ 0.5 ×"}.against("| cat > /dev/null", summarise(bare)),
		{Group: "output", Name: "growth of the daemon meanwhile", Unit: "MiB", stats: stats{grown, grown, grown, 1}, Target: "≤ 16 MiB"},
	}
}

// rss is what a daemon has in memory, and available what the machine has left, in MiB.
func (l *lab) rss() float64 {
	return kernelMiB(fmt.Sprintf("/proc/%d/status", l.daemon.Cmd.Process.Pid), "VmRSS")
}

func available() float64 { return kernelMiB("/proc/meminfo", "MemAvailable") }

// kernelMiB reads a line of a file of the kernel's that counts in KiB.
func kernelMiB(file, name string) float64 {
	n, _ := strconv.ParseFloat(strings.TrimSuffix(kernelSays(file, name), " kB"), 64)
	return n / 1024
}

// benchIdle gives what an idle session costs: what its memory cgroup is charged
// with, kernel memory included, and what the machine has less of for each.
func benchIdle(ctx context.Context, l *lab) []row {
	n := l.n(50)
	free := available()
	daemon := l.rss()
	ids := l.crowd(ctx, n, l.bound())
	waiting := l.charged(ids)
	if !l.smoke {
		time.Sleep(40 * time.Second) // the shell that waits for a next command is ended as well
	}
	charged := l.charged(ids)
	less := (free - available() - (l.rss() - daemon)) / float64(n)
	must(l.end(ctx, ids...))
	return []row{
		{Group: "idle", Name: "session, 3 s after its last command", Unit: "MiB", stats: summarise(waiting)},
		{Group: "idle", Name: "session, charged to its cgroup", Unit: "MiB", stats: summarise(charged), Target: "≤ 2.5 MiB"},
		{Group: "idle", Name: fmt.Sprintf("session, MemAvailable of the host / %d", n), Unit: "MiB", stats: stats{less, less, less, n}},
	}
}

// crowd makes sessions and uses each once, and waits until what is given back at once has
// been given back.
func (l *lab) crowd(ctx context.Context, n int, like client.SessionCreate) (ids []string) {
	for range n {
		id := get(l.open(ctx, like))
		must(l.bash(ctx, id, "true"))
		ids = append(ids, id)
	}
	time.Sleep(3 * time.Second)
	return ids
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
