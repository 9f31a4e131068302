package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

var pauses = []time.Duration{0, 30 * time.Millisecond}

func pauseName(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// benchBash times `bash -c true` over the API beside a bare fork+exec on the
// host, runc exec and, where an Engine answers, docker exec.
func benchBash(ctx context.Context, l *lab) ([]row, error) {
	id, err := l.session(ctx)
	if err != nil {
		return nil, err
	}
	defer l.end(ctx, id)
	subjects := []subject{
		{name: "host fork+exec", op: hostBash},
		{name: "toold bash", op: func() error {
			_, err := l.call(ctx, id, "bash", map[string]any{"command": "true"})
			return err
		}},
		{name: "HTTP echo (GET /v1/version)", op: func() error { _, err := l.c.Version(ctx); return err }},
	}
	if box, err := startBox(l, id); err != nil {
		l.note("no runc exec figures: %v", err)
	} else {
		subjects = append(subjects, subject{name: "runc exec", every: 10, op: box.exec})
	}
	if d, err := startDocker(l); err != nil {
		l.note("no docker exec figures: %v", err)
	} else {
		subjects = append(subjects, subject{name: "docker exec (CLI)", every: 10, op: d})
	}
	return l.latencies("bash", subjects, map[string]string{"toold bash": "≤ 1.5 ×"})
}

// benchFiles times the file tools on a small file.
func benchFiles(ctx context.Context, l *lab) ([]row, error) {
	id, err := l.session(ctx)
	if err != nil {
		return nil, err
	}
	defer l.end(ctx, id)
	text := strings.Repeat("a line of an ordinary source file\n", 100)
	for _, f := range []string{"read.txt", "edit.txt"} {
		if err := os.WriteFile(filepath.Join(l.tree, f), []byte(text+"counter 0 end\n"), 0o644); err != nil {
			return nil, err
		}
	}
	i, k := 0, 0
	subjects := []subject{
		{name: "host fork+exec", op: hostBash},
		{name: "read", op: func() error {
			_, err := l.call(ctx, id, "read", map[string]any{"file_path": "read.txt"})
			return err
		}},
		{name: "write", op: func() error {
			k++
			_, err := l.call(ctx, id, "write", map[string]any{"file_path": "write.txt", "content": fmt.Sprint(text, k)})
			return err
		}},
		{name: "edit", op: func() error {
			i++
			_, err := l.call(ctx, id, "edit", map[string]any{"file_path": "edit.txt", "old_string": fmt.Sprintf("counter %d end", i-1), "new_string": fmt.Sprintf("counter %d end", i)})
			return err
		}},
	}
	// What a request costs that asks nothing of a session: the floor of the rest.
	subjects = append(subjects, subject{name: "HTTP echo (GET /v1/version)", op: func() error { _, err := l.c.Version(ctx); return err }})
	const target = "≤ 600 µs"
	return l.latencies("files", subjects, map[string]string{"read": target, "write": target, "edit": target})
}

// latencies times the subjects in turns, without and with pauses; the first one
// is the yardstick of the others.
func (l *lab) latencies(group string, subjects []subject, targets map[string]string) ([]row, error) {
	var rows []row
	for _, p := range pauses {
		n := l.n(1000)
		if p > 0 {
			n = l.n(200)
		}
		got, err := inTurns(n, p, subjects)
		if err != nil {
			return nil, err
		}
		yardstick := subjects[0].name
		for _, s := range subjects[1:] {
			r := row{Group: group, Name: s.name, Pause: pauseName(p), Unit: "µs", stats: got[s.name], Target: targets[s.name]}
			rows = append(rows, r.against(yardstick, got[yardstick]))
		}
	}
	return rows, nil
}

// benchParallel gives the throughput of eight clients on eight sessions beside
// eight loops of fork+exec on the host.
func benchParallel(ctx context.Context, l *lab) ([]row, error) {
	const clients = 8
	ids := make([]string, clients)
	for i := range ids {
		id, err := l.session(ctx)
		if err != nil {
			return nil, err
		}
		defer l.end(ctx, id)
		ids[i] = id
	}
	each := l.n(200)
	rate := func(op func(i int) error) (float64, error) {
		var wg sync.WaitGroup
		errs := make(chan error, clients)
		start := time.Now()
		for i := range clients {
			wg.Go(func() {
				for range each {
					if err := op(i); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		wg.Wait()
		select {
		case err := <-errs:
			return 0, err
		default:
			return float64(clients*each) / time.Since(start).Seconds(), nil
		}
	}
	var ours, bare []float64
	for range 3 {
		b, err := rate(func(int) error { return hostBash() })
		if err != nil {
			return nil, err
		}
		o, err := rate(func(i int) error {
			_, err := l.call(ctx, ids[i], "bash", map[string]any{"command": "true"})
			return err
		})
		if err != nil {
			return nil, err
		}
		bare, ours = append(bare, b), append(ours, o)
	}
	return []row{row{Group: "parallel", Name: "toold bash, 8 clients on 8 sessions", Unit: "ops/s", stats: summarise(ours)}.against("host fork+exec, 8 loops", summarise(bare))}, nil
}

// benchSearch times grep and glob beside ripgrep on the same tree, bare.
func benchSearch(ctx context.Context, l *lab) ([]row, error) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		l.note("no search figures: %v", err)
		return nil, nil
	}
	src := filepath.Join(l.tree, "src")
	for i := range 40 {
		d := filepath.Join(src, fmt.Sprintf("pkg%02d", i))
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
		for k := range 50 {
			body := strings.Repeat(fmt.Sprintf("func F%d(a, b int) int { return a*%d + b }\n", k, i), 60)
			if i == 7 && k == 7 {
				body += "needle in the haystack\n"
			}
			if err := os.WriteFile(filepath.Join(d, fmt.Sprintf("f%02d.go", k)), []byte(body), 0o644); err != nil {
				return nil, err
			}
		}
	}
	id, err := l.session(ctx)
	if err != nil {
		return nil, err
	}
	defer l.end(ctx, id)
	got, err := inTurns(l.n(100), 0, []subject{
		{name: "rg", op: func() error { return exec.Command(rg, "-n", "needle in", src).Run() }},
		{name: "grep", op: func() error {
			_, err := l.call(ctx, id, "grep", map[string]any{"pattern": "needle in", "path": "src"})
			return err
		}},
		{name: "rg --files", op: func() error { return exec.Command(rg, "--files", "-g", "*.go", src).Run() }},
		{name: "glob", op: func() error {
			_, err := l.call(ctx, id, "glob", map[string]any{"pattern": "**/*.go", "path": "src"})
			return err
		}},
	})
	if err != nil {
		return nil, err
	}
	return []row{
		row{Group: "search", Name: "grep, 2,000 files", Unit: "µs", stats: got["grep"]}.against("rg", got["rg"]),
		row{Group: "search", Name: "glob, 2,000 files", Unit: "µs", stats: got["glob"]}.against("rg --files", got["rg --files"]),
	}, nil
}
