package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/toold/toold/client"
)

// benchWorktrees times what overlay worktrees add: a session over a tree, beside one with
// the tree bound into it; checkpoints, forks and differences. The tree lies on the disk
// that has the daemon's state.
func benchWorktrees(ctx context.Context, l *lab) []row {
	tree := l.bigTree()
	var rows []row
	for _, part := range []func(context.Context, *lab, string) []row{overlayCreate, overlayLarge, overlayDiff, overlayCheckpoints} {
		rows = append(rows, part(ctx, l, tree)...)
	}
	return rows
}

// bigTree makes a tree of small files.
func (l *lab) bigTree() string {
	tree := filepath.Join(l.dir, "big")
	for i := range l.n(20_000) {
		dir := filepath.Join(tree, strconv.Itoa(i/200), strconv.Itoa(i/20%10))
		if i%20 == 0 {
			must(os.MkdirAll(dir, 0o755))
		}
		must(os.WriteFile(filepath.Join(dir, "file"+strconv.Itoa(i)), fmt.Appendf(nil, "line one of %d\nline two\n", i), 0o644))
	}
	return tree
}

// overlay is a session over a tree.
func overlay(tree string) client.SessionCreate {
	return client.SessionCreate{Worktree: client.Worktree{Source: tree, Mode: client.WorktreeOverlay}}
}

func overlayCreate(ctx context.Context, l *lab, tree string) []row {
	subjectOf := func(mode client.WorktreeMode) subject {
		return l.making(ctx, string(mode), client.SessionCreate{Worktree: client.Worktree{Source: tree, Mode: mode}})
	}
	took := get(inTurns(manner{n: l.n(60), run: 1}, []subject{subjectOf(client.WorktreeBind), subjectOf(client.WorktreeOverlay)}))
	return []row{row{Group: "worktrees", Name: "session over an overlay", Unit: "µs", stats: took["overlay"], Target: "≤ 1.4 ×"}.
		against("bound", took["bind"])}
}

// overlayLarge is about what must not depend on the size of what a session has written.
func overlayLarge(ctx context.Context, l *lab, tree string) []row {
	like := overlay(tree)
	like.Limits.Disk = 4 << 30
	id := get(l.open(ctx, like))
	defer l.end(ctx, id)
	size := 2 << 30
	if l.smoke {
		size = 1 << 20
	}
	must(l.bash(ctx, id, fmt.Sprintf("head -c %d /dev/zero >large", size)))
	var checkpoint, forked, plain, restored []float64
	for i := range l.n(30) {
		must(l.bash(ctx, id, "echo "+strconv.Itoa(i)+" >small"))
		start := time.Now()
		c := get(l.c.Checkpoint(ctx, id, client.CheckpointCreate{}))
		checkpoint = append(checkpoint, micros(start))
		start = time.Now()
		fork := get(l.c.Fork(ctx, id, client.ForkRequest{At: c.ID}))
		forked = append(forked, micros(start))
		start = time.Now()
		bare := get(l.open(ctx, overlay(tree)))
		plain = append(plain, micros(start))
		must(l.end(ctx, fork.ID, bare))
		start = time.Now()
		get(l.c.Restore(ctx, id, client.RestoreRequest{Checkpoint: c.ID}))
		restored = append(restored, micros(start))
	}
	mib := strconv.Itoa(size>>20) + " MiB"
	return []row{
		{Group: "worktrees", Name: "checkpoint, " + mib + " written", Unit: "µs", stats: summarise(checkpoint)},
		row{Group: "worktrees", Name: "fork, " + mib + " written", Unit: "µs", stats: summarise(forked), Target: "+ ≤ 10 ms"}.against("new session", summarise(plain)),
		{Group: "worktrees", Name: "restore, " + mib + " written", Unit: "µs", stats: summarise(restored)},
	}
}

func overlayDiff(ctx context.Context, l *lab, tree string) []row {
	id := get(l.open(ctx, overlay(tree)))
	defer l.end(ctx, id)
	n := l.n(10_000)
	must(l.bash(ctx, id, fmt.Sprintf("find . -type f | head -%d | xargs sed -i 's/two/2/'", n)))
	plain := filepath.Join(l.dir, "plain")
	must(exec.Command("bash", "-c", fmt.Sprintf("cp -a %s %s && cd %[2]s && find . -type f | head -%d | xargs sed -i 's/two/2/'", tree, plain, n)).Run())
	subjects := []subject{
		{name: "patch", op: timed(func() error {
			body, err := l.c.Diff(ctx, id, client.DiffQuery{})
			if err != nil {
				return err
			}
			defer body.Close()
			_, err = io.Copy(io.Discard, body)
			return err
		})},
		{name: "git", op: timed(func() error {
			_ = exec.Command("git", "diff", "--no-index", "--binary", tree, plain).Run() // 1: they differ
			return nil
		})},
	}
	took := get(inTurns(manner{n: l.n(8), run: 1}, subjects))
	return []row{row{Group: "worktrees", Name: fmt.Sprintf("diff of %d files", n), Unit: "µs", stats: took["patch"], Target: "≤ 2 s"}.
		against("git diff --no-index", took["git"])}
}

// overlayCheckpoints makes many of them, each after a change, and many forks of one.
func overlayCheckpoints(ctx context.Context, l *lab, tree string) []row {
	id := get(l.open(ctx, overlay(tree)))
	defer l.end(ctx, id)
	var took []float64
	for i := range l.n(1000) {
		must(l.bash(ctx, id, fmt.Sprintf("echo %d >>log; echo %[1]d >f%d", i, i%50)))
		start := time.Now()
		if _, err := l.c.Checkpoint(ctx, id, client.CheckpointCreate{}); err != nil {
			must(fmt.Errorf("checkpoint %d: %w", i+1, err))
		}
		took = append(took, micros(start))
	}
	last := summarise(took[len(took)-len(took)/10-1:])
	used := du(l.dir)
	var forks []string
	for range l.n(100) {
		forks = append(forks, get(l.c.Fork(ctx, id, client.ForkRequest{})).ID)
	}
	grown := du(l.dir) - used
	must(l.end(ctx, forks...))
	return []row{
		row{Group: "worktrees", Name: fmt.Sprintf("checkpoint, the last of %d", len(took)), Unit: "µs", stats: last}.against("the first tenth", summarise(took[:len(took)/10+1])),
		{Group: "worktrees", Name: fmt.Sprintf("disk of %d forks", len(forks)), Unit: "MiB", stats: stats{grown, grown, grown, len(forks)}},
	}
}

// du is what a directory uses on the disk, in MiB.
func du(dir string) float64 {
	kib, _, _ := strings.Cut(output("du", "-skx", dir), "\t")
	n, _ := strconv.ParseFloat(kib, 64)
	return n / 1024
}
