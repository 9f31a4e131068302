package run

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// BenchmarkEngines searches the sources of Go, some 100 MB in 10,000 files, with
// ripgrep and with the agent's own engine.
func BenchmarkEngines(b *testing.B) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip(err)
	}
	for name, in := range map[string]map[string]any{
		"literal":    {"pattern": "no such text anywhere"},
		"ignorecase": {"pattern": "no such text anywhere", "ignore_case": true},
		"words":      {"pattern": `\bunsafe\.Po[a-z]+\(nothing`},
		"classes":    {"pattern": `[a-z]+[0-9]{6}[x-z]\w+_`},
	} {
		for _, engine := range []string{"ripgrep", "own"} {
			b.Run(name+"/"+engine, func(b *testing.B) {
				env := searchEnv(b)
				env.Exec = hostExec
				if engine == "own" {
					env.Exec = noRipgrep
				} else if _, err := exec.LookPath("rg"); err != nil {
					b.Skip("ripgrep is not installed")
				}
				in["path"] = strings.TrimSpace(string(goroot)) + "/src"
				raw, err := json.Marshal(in)
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					if res, err := (Grep{}).Run(b.Context(), env, raw, nil); err != nil || res.Metadata["matches"] != 0 {
						b.Fatalf("%v, %v", res, err)
					}
				}
			})
		}
	}
}
