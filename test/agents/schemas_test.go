package agents

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/shipped"
	"github.com/toold/toold/internal/testrig"
)

// ownTools are the tools of an agent's own, as it offers them to its model.
type ownTools struct {
	Version string `json:"version"` // of its package
	// Tools are the schemas of their inputs, without words.
	Tools map[string]any `json:"tools"`
}

// TestOwnTools: each agent's own tools are those of testdata/schemas, and what is new or gone of them
// is named. -update writes what there is now: what is new is then an alias of a tool of toold's, or
// none of its business, see TestForeignCalls.
func TestOwnTools(t *testing.T) {
	for _, a := range shipped.Agents {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			got := offeredBy(t, a)
			if *update {
				text, err := json.MarshalIndent(got, "", " ")
				testrig.Must(t, err)
				testrig.Must(t, os.WriteFile(schemasFile(a), append(text, '\n'), 0o644))
				return
			}
			known := readSchemas(t, a)
			for _, what := range newIn(known.Tools, got.Tools, "") {
				t.Errorf("new in %s %s: %s", a.Name, got.Version, what)
			}
			for _, what := range newIn(got.Tools, known.Tools, "") {
				t.Errorf("gone, or other, since %s %s: %s", a.Name, known.Version, what)
			}
		})
	}
}

func schemasFile(a *shipped.Agent) string {
	return filepath.Join("testdata", "schemas", a.Name+".json")
}

func readSchemas(t *testing.T, a *shipped.Agent) (known ownTools) {
	t.Helper()
	b, err := os.ReadFile(schemasFile(a))
	testrig.Must(t, err)
	testrig.Must(t, json.Unmarshal(b, &known))
	return known
}

// newIn names what is in the one of two values and not in the other, by the path to it.
func newIn(old, now any, at string) (what []string) {
	a, ok := old.(map[string]any)
	b, also := now.(map[string]any)
	if !ok || !also {
		if !reflect.DeepEqual(old, now) {
			text, _ := json.Marshal(now)
			what = append(what, at+" "+string(text))
		}
		return what
	}
	for _, k := range slices.Sorted(maps.Keys(b)) {
		if _, had := a[k]; !had {
			what = append(what, at+"/"+k)
		} else {
			what = append(what, newIn(a[k], b[k], at+"/"+k)...)
		}
	}
	return what
}

// configured are what is written into an agent's own configuration for it to offer all of its tools, a run for each: which
// Codex offers depends on what it knows of the model. Qwen Code has its model look for most, which are not in
// what it sends, whatever tools.toolSearch says.
var configured = map[string][]struct{ file, from, to string }{
	"codex": {{}, {"config.toml", `model = "m"`, `model = "gpt-5.5"`}},
}

// offeredBy starts an agent with its own tools and a model that says nothing, and gives what it offers.
func offeredBy(t *testing.T, a *shipped.Agent) ownTools {
	t.Helper()
	got := ownTools{Version: version(t, a), Tools: map[string]any{}}
	ways := configured[a.Name]
	if ways == nil {
		ways = append(ways, struct{ file, from, to string }{})
	}
	for _, way := range ways {
		offered := offeredAs(t, a, func(home string) {
			if way.file == "" {
				return
			}
			file := filepath.Join(home, way.file)
			b, err := os.ReadFile(file)
			testrig.Must(t, err)
			if strings.Count(string(b), way.from) != 1 {
				t.Fatalf("%s is not as it was:\n%s", file, b)
			}
			testrig.Must(t, os.WriteFile(file, []byte(strings.Replace(string(b), way.from, way.to, 1)), 0o600))
		})
		if len(offered) < 3 {
			t.Fatalf("it offers %v", offered)
		}
		for _, o := range offered {
			var schema any
			_ = json.Unmarshal(o.Schema, &schema) // one without a schema takes a text
			got.Tools[o.Name] = bare(schema)
		}
	}
	return got
}

// offeredAs is what an agent offers whose configuration, in its home, configure has changed.
func offeredAs(t *testing.T, a *shipped.Agent, configure func(home string)) []shipped.Offer {
	t.Helper()
	program := installed(t, patterns[a.Name])
	m, err := shipped.NewModel(shipped.Script{Tool: a.Tool})
	testrig.Must(t, err)
	t.Cleanup(m.Close)
	run := &shipped.Run{Agent: a, Program: program, Home: t.TempDir(), Model: m.URL, Bare: true}
	testrig.Must(t, run.Configure())
	configure(run.Home)
	env := run.Env(func(name string) string {
		if name == "PATH" {
			return filepath.Dir(installed(t, "node-linux-*/bin/node")) + ":" + os.Getenv("PATH")
		}
		return os.Getenv(name)
	})
	runAgent(t, run, append(env, "ENABLE_TOOL_SEARCH=false")) // else Claude Code names few of its tools
	return m.Offers()
}

// runAgent runs an agent to its end, in its home.
func runAgent(t *testing.T, run *shipped.Run, env []string) {
	t.Helper()
	argv := run.Argv()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = run.Home, env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// version is that of an agent's package.
func version(t *testing.T, a *shipped.Agent) string {
	t.Helper()
	var p struct{ Version string }
	b, err := os.ReadFile(installed(t, filepath.Join(a.Package, "package.json")))
	testrig.Must(t, err)
	testrig.Must(t, json.Unmarshal(b, &p))
	return p.Version
}

// bare is a schema without its words: the fields, their types and which are needed.
func bare(schema any) any {
	switch v := schema.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, part := range v {
			if fields, ok := part.(map[string]any); ok && k == "properties" {
				all := map[string]any{}
				for name, field := range fields {
					all[name] = bare(field)
				}
				out[k] = all
			} else if slices.Contains([]string{"type", "required", "items", "enum", "anyOf", "oneOf", "const"}, k) {
				out[k] = bare(part)
			}
		}
		if t, ok := out["type"].(string); ok { // some write it in capitals
			out["type"] = strings.ToLower(t)
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, part := range v {
			out = append(out, bare(part))
		}
		return out
	}
	return schema
}
