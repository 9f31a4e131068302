package run

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/internal/tool/run/readrule"
)

// BenchmarkReadRules is what it costs a search of the sources of Go that .env files
// are asked about. cpu-ms/op is the time of all processors, ripgrep's included.
func BenchmarkReadRules(b *testing.B) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip(err)
	}
	src := strings.TrimSpace(string(goroot)) + "/src"
	settings, err := json.Marshal(map[string]any{"read_rules": readrule.Rules{
		Worktree: src,
		List: []readrule.Rule{
			{Patterns: []string{"*"}, Action: "allow"},
			{Patterns: []string{"**/.env", ".env"}, Action: "ask"},
			{Patterns: []string{"**/.env.*", ".env.*"}, Action: "ask"},
			{Patterns: []string{"**/.env.example", ".env.example"}, Action: "allow"},
		},
	}})
	must(b, err)
	for _, search := range []struct {
		tool  Tool
		input string
	}{
		{Grep{}, `{"pattern": "no such text anywhere"}`},
		{Grep{}, `{"pattern": "func [A-Z]", "limit": 100}`},
		{Glob{}, `{"pattern": "*_test.go"}`},
	} {
		for name, rules := range map[string]json.RawMessage{"without": nil, "with": settings} {
			b.Run(search.tool.Name()+search.input+"/"+name, func(b *testing.B) {
				env := ripgrepEnv(b)
				env.Worktree, env.Settings = src, rules
				before := cpuTime()
				for b.Loop() {
					if _, err := search.tool.Run(b.Context(), env, json.RawMessage(search.input), nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(cpuTime()-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// cpuTime is what this process and its children have taken.
func cpuTime() time.Duration {
	var all time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		_ = syscall.Getrusage(who, &u) // cannot fail
		all += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return all
}
