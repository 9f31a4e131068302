package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// benchBash times `bash -c true` over the API beside a bare fork+exec on the
// host and runc exec. The group tiers has docker exec.
func benchBash(ctx context.Context, l *lab) []row {
	id := get(l.session(ctx))
	defer l.end(ctx, id)
	w := &wire{socket: l.socket}
	defer w.close()
	input := map[string]any{"command": "true"}
	subjects := []subject{
		{name: "host fork+exec", op: timed(hostBash)},
		{name: "toold bash", op: func() (time.Duration, error) { return w.call(id, "bash", input) }},
		{name: "toold bash (Go client)", op: timed(func() error { return l.bash(ctx, id, "true") })},
		{name: "HTTP echo (GET /v1/version)", op: w.echo},
	}
	if box, err := caught(func() *box { return startBox(l, id) }); err != nil {
		l.note("no runc exec figures: %v", err)
	} else {
		subjects = append(subjects, subject{name: "runc exec", every: 10, op: timed(box.exec)})
	}
	return l.latencies("bash", subjects, map[string]string{"toold bash": "≤ 1.5 ×"})
}

// benchFiles times the file tools on a small file, of ten lines, and on one of a
// hundred.
func benchFiles(ctx context.Context, l *lab) []row {
	id := get(l.session(ctx))
	defer l.end(ctx, id)
	w := &wire{socket: l.socket}
	defer w.close()
	var rows []row
	for _, lines := range []int{10, 100} {
		tools := fileSubjects(l, w, id, lines)
		targets := map[string]string{}
		for _, s := range tools {
			if lines == 10 {
				targets[s.name] = "≤ 600 µs"
			}
		}
		subjects := append([]subject{{name: "host fork+exec", op: timed(hostBash)}}, tools...)
		subjects = append(subjects, subject{name: "HTTP echo (GET /v1/version)", op: w.echo})
		rows = append(rows, l.latencies("files", subjects, targets)...)
	}
	return rows
}

// fileSubjects are the file tools on files of so many lines.
func fileSubjects(l *lab, w *wire, session string, lines int) []subject {
	text := strings.Repeat("a line of an ordinary source file\n", lines)
	name := func(tool string) string { return fmt.Sprintf("%s-%d.txt", tool, lines) }
	for _, tool := range []string{"read", "edit"} {
		must(os.WriteFile(filepath.Join(l.tree, name(tool)), []byte(text+"counter 0 end\n"), 0o644))
	}
	i, k := 0, 0
	label := func(tool string) string { return fmt.Sprintf("%s, %d lines", tool, lines) }
	return []subject{
		{name: label("read"), op: func() (time.Duration, error) {
			return w.call(session, "read", map[string]any{"file_path": name("read")})
		}},
		{name: label("write"), op: func() (time.Duration, error) {
			k++
			return w.call(session, "write", map[string]any{"file_path": name("write"), "content": fmt.Sprint(text, k)})
		}},
		{name: label("edit"), op: func() (time.Duration, error) {
			i++
			return w.call(session, "edit", map[string]any{
				"file_path": name("edit"), "old_string": fmt.Sprintf("counter %d end", i-1), "new_string": fmt.Sprintf("counter %d end", i),
			})
		}},
	}
}

// latencies times the subjects in turns: one operation of each at a time, runs of
// each back to back, and one at a time with a pause before each; the first subject
// is the yardstick of the others.
func (l *lab) latencies(group string, subjects []subject, targets map[string]string) []row {
	var rows []row
	for _, m := range []manner{{name: "", n: 1000, run: 1}, {name: "runs", n: 1000, run: runLength}, {name: "30ms", n: 200, run: 1, pause: 30 * time.Millisecond}} {
		m.n = l.n(m.n)
		got := get(inTurns(m, subjects))
		yardstick := subjects[0].name
		for _, s := range subjects[1:] {
			r := row{Group: group, Name: s.name, Manner: m.name, Unit: "µs", stats: got[s.name], Target: targets[s.name]}
			rows = append(rows, r.against(yardstick, got[yardstick]))
		}
	}
	return rows
}

// benchParallel gives the throughput of eight clients on eight sessions beside
// eight loops of fork+exec on the host.
func benchParallel(ctx context.Context, l *lab) []row {
	const clients = 8
	ids := make([]string, clients)
	for i := range ids {
		id := get(l.session(ctx))
		defer l.end(ctx, id)
		ids[i] = id
	}
	each := l.n(200)
	rate := func(op func(i int) error) float64 {
		var work errgroup.Group
		start := time.Now()
		for i := range clients {
			work.Go(func() error {
				for range each {
					if err := op(i); err != nil {
						return err
					}
				}
				return nil
			})
		}
		must(work.Wait())
		return float64(clients*each) / time.Since(start).Seconds()
	}
	var ours, bare []float64
	for range 3 {
		bare = append(bare, rate(func(int) error { return hostBash() }))
		ours = append(ours, rate(func(i int) error { return l.bash(ctx, ids[i], "true") }))
	}
	return []row{row{Group: "parallel", Name: "toold bash, 8 clients on 8 sessions", Unit: "ops/s", stats: summarise(ours)}.against("host fork+exec, 8 loops", summarise(bare))}
}

// benchSearch times grep and glob beside ripgrep on the same trees, bare: a large one, and
// one of ten files, where starting it is nearly all that there is to do.
func benchSearch(ctx context.Context, l *lab) []row {
	id := get(l.session(ctx))
	defer l.end(ctx, id)
	var rows []row
	for _, tree := range []struct {
		name        string
		dirs, files int
		lines       int // of each file
	}{{"2,000 files", 40, 50, 60}, {"10 files", 2, 5, 60}} {
		src := strings.ReplaceAll(tree.name, " ", "-")
		sources(filepath.Join(l.tree, src), tree.dirs, tree.files, tree.lines)
		call := func(tool, pattern string) func() (time.Duration, error) {
			return timed(func() error { return l.call(ctx, id, tool, map[string]any{"pattern": pattern, "path": src}) })
		}
		bare := func(args ...string) func() (time.Duration, error) {
			return timed(func() error { return exec.Command(l.rg, append(args, filepath.Join(l.tree, src))...).Run() })
		}
		got := get(inTurns(manner{n: l.n(100), run: 1}, []subject{
			{name: "rg", op: bare("-n", "needle in")},
			{name: "grep", op: call("grep", "needle in")},
			{name: "rg --files", op: bare("--files", "-g", "*.go")},
			{name: "glob", op: call("glob", "**/*.go")},
		}))
		rows = append(rows,
			row{Group: "search", Name: "grep, " + tree.name, Unit: "µs", stats: got["grep"]}.against("rg", got["rg"]),
			row{Group: "search", Name: "glob, " + tree.name, Unit: "µs", stats: got["glob"]}.against("rg --files", got["rg --files"]))
	}
	return rows
}

// sources makes a tree of Go files, in one of which there is a needle.
func sources(dir string, dirs, files, lines int) {
	for i := range dirs {
		d := filepath.Join(dir, fmt.Sprintf("pkg%02d", i))
		must(os.MkdirAll(d, 0o755))
		for k := range files {
			body := strings.Repeat(fmt.Sprintf("func F%d(a, b int) int { return a*%d + b }\n", k, i), lines)
			if i == 1 && k == 1 {
				body += "needle in the haystack\n"
			}
			must(os.WriteFile(filepath.Join(d, fmt.Sprintf("f%02d.go", k)), []byte(body), 0o644))
		}
	}
}
