// Command bench measures toold against what a user would have without it, in
// one run on one machine: every figure stands beside its yardstick, taken in
// turns with it, since figures of different runs on shared machines say nothing.
//
//	go run ./bench              # full, about three minutes
//	go run ./bench -smoke       # seconds, to see that it runs
//	go run ./bench -out FILE    # also write JSON
//	go run ./bench -only tiers  # each tier beside runc, runsc and docker
//
// It starts a daemon of its own from ./bin (run `make build` first) and needs
// root. Latencies are taken twice: back to back, and with a pause before each
// operation, since an idle machine shows costs that a busy loop hides.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// report is what a run writes as JSON.
type report struct {
	Date    string   `json:"date"`
	Machine machine  `json:"machine"`
	Smoke   bool     `json:"smoke,omitempty"`
	Rows    []row    `json:"rows"`
	Notes   []string `json:"notes,omitempty"`
}

// machine is the shape of what it ran on.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Runc   string `json:"runc"`
}

func main() {
	smoke := flag.Bool("smoke", false, "a few operations of each, to see that it runs")
	out := flag.String("out", "", "write the report as JSON to this `file`")
	only := flag.String("only", "", "run only the groups whose names are in this comma-separated `list`")
	tiers := flag.String("tiers", "runc,runsc,docker", "what the group tiers measures")
	flag.Parse()
	if addr := os.Getenv(floodEnv); addr != "" {
		flood(addr)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getenv(inside) == "" {
		os.Exit(outside(ctx))
	}
	if err := run(ctx, labConfig{smoke: *smoke, tiers: strings.Split(*tiers, ",")}, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// inside says to a benchmark that it has a mount namespace of its own.
const inside = "TOOLD_BENCH_INSIDE"

// outside runs the benchmark in a mount namespace of its own, so that what it
// mounts is gone with it, whatever happens.
func outside(ctx context.Context) int {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		if ended, ok := errors.AsType[*exec.ExitError](err); ok {
			return ended.ExitCode()
		}
		fmt.Fprintln(os.Stderr, "bench: start in a mount namespace of its own:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, cfg labConfig, out, only string) error {
	l, err := caught(func() *lab { return newLab(cfg) })
	if err != nil {
		return err
	}
	defer l.close()
	r := report{Date: time.Now().UTC().Format(time.RFC3339), Machine: shape(l.runc), Smoke: cfg.smoke}
	for _, g := range []struct {
		name string
		run  func(context.Context, *lab) []row
	}{
		{"policy", benchPolicy},
		{"bash", benchBash},
		{"files", benchFiles},
		{"parallel", benchParallel},
		{"create", benchCreate},
		{"output", benchOutput},
		{"search", benchSearch},
		{"idle", benchIdle},
		{"worktrees", benchWorktrees},
		{"caches", benchCaches},
		{"mcp", benchMCP},
		{"network", benchNetwork},
		{"tiers", benchTiers},
	} {
		if only != "" && !strings.Contains(","+only+",", ","+g.name+",") {
			continue
		}
		rows, err := caught(func() []row { return g.run(ctx, l) })
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		for _, w := range rows {
			fmt.Println(w)
		}
		r.Rows = append(r.Rows, rows...)
	}
	r.Notes = l.notes
	for _, n := range r.Notes {
		fmt.Println("note:", n)
	}
	if out == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(b, '\n'), 0o644)
}

// failure is an error that ends the benchmark.
type failure struct{ error }

// must ends the benchmark where err is an error: there is nothing else to do about it. What was
// begun is put away on the way out. It is for the main goroutine alone.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// get is v, or the end as of must.
func get[T any](v T, err error) T {
	must(err)
	return v
}

// caught is what f gives, or the error that ended it.
func caught[T any](f func() T) (v T, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	return f(), nil
}

func shape(runc string) machine {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Runc: firstLine(output(runc, "--version"))}
	m.Kernel = firstLine(output("uname", "-r"))
	m.CPU, m.Memory = kernelSays("/proc/cpuinfo", "model name"), kernelSays("/proc/meminfo", "MemTotal")
	return m
}
