package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/session/limits"
)

func readText(t *testing.T, text string) *project {
	t.Helper()
	name := filepath.Join(t.TempDir(), "toold.project.toml")
	writeFile(t, name, text, 0o600)
	return readProject(name)
}

// TestProject: what a project may say narrows a session, and never the other way round.
func TestProject(t *testing.T) {
	p := readText(t, `
mode = "ro"
caches = ["go", "npm"]
[limits]
memory = "1GiB"
cpus = 1.5
[budget]
calls = 100
wall = "1h"
[network]
mode = "none"
[permission.network]
"evil.example" = "ask"
[permission.http]
"GET https://a.example/*" = "deny"
`)
	if len(p.refused) > 0 {
		t.Fatal(p)
	}
	r := client.SessionCreate{
		Worktree: client.Worktree{Source: "/src"}, Caches: []client.CacheUse{{Name: "npm"}}, Limits: client.Limits{Memory: 2 << 30},
		Budget: client.Budget{Calls: 5, Output: 7}, Network: client.Network{Mode: client.NetworkRules},
		Permission: []client.RuleOf{{Permission: "network", Pattern: "evil.example", Action: "deny"}},
	}
	p.narrow(&r, false)
	want := client.SessionCreate{
		Worktree: client.Worktree{Source: "/src", Mode: client.WorktreeRO}, Caches: []client.CacheUse{{Name: "npm"}, {Name: "go", Mode: client.CacheCow}},
		Limits: client.Limits{Memory: 2 << 30}, AtMost: client.Limits{Memory: 1 << 30, CPUs: 1.5},
		Budget: client.Budget{Calls: 5, Wall: p.budget.Wall, Output: 7}, Network: client.Network{Mode: client.NetworkNone},
		Permission: []client.RuleOf{
			{Permission: "http", Pattern: "GET https://a.example/*", Action: "deny"},
			{Permission: "network", Pattern: "evil.example", Action: "ask"},
			{Permission: "network", Pattern: "evil.example", Action: "deny"}, // the user's, which decides
		},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
	r = client.SessionCreate{Worktree: client.Worktree{Source: "/src", Mode: client.WorktreeBind}}
	if p.narrow(&r, false); r.Worktree.Mode != client.WorktreeBind || len(p.refused) != 1 {
		t.Errorf("a flag was overruled, or it is not said: %+v, %q", r.Worktree, p.refused)
	}
	r = client.SessionCreate{Worktree: client.Worktree{Source: "/src"}}
	if p = readText(t, `mode = "ro"`); !reflect.DeepEqual(p.refused, []string(nil)) {
		t.Errorf("%q", p.refused)
	}
	if p.narrow(&r, true); r.Worktree.Mode != "" || len(p.refused) != 1 {
		t.Errorf("with --apply the mode is %q, %q", r.Worktree.Mode, p.refused)
	}
}

// TestProjectHostile: what a project must not say changes nothing, and is named.
func TestProjectHostile(t *testing.T) {
	for text, names := range map[string]string{
		`mode = "bind"`:                                       "mode",
		`mode = "empty"`:                                      "mode",
		`mode = ["ro"]`:                                       "mode",
		"mounts = [\"/:/host\"]":                              "mounts",
		"[[mounts]]\nsource = \"/\"":                          "mounts",
		"[env]\nLD_PRELOAD = \"x\"":                           "env",
		`image = "evil"`:                                      "image",
		`runtime = "runc"`:                                    "runtime",
		`delegates = ["bash"]`:                                "delegates",
		"[approvals]\napprover = \"any\"":                     "approvals",
		`profile = "admin"`:                                   "profile",
		`network = "rules"`:                                   "network",
		`caches = "go"`:                                       "caches",
		"[network]\nmode = \"rules\"":                         "network.mode",
		"[network]\nlearn = true":                             "network.learn",
		"[permission.network]\n\"*\" = \"allow\"":             `permission.network."*"`,
		"[permission.network]\n\"*\" = 3":                     `permission.network."*"`,
		"[permission.bash]\n\"*\" = \"deny\"":                 "permission.bash",
		"[permission]\nhttp = \"allow\"":                      `permission.http."*"`,
		"[limits]\nmemory = \"lots\"":                         "limits.memory",
		"[limits]\nmemory = 64":                               "limits.memory",
		"[limits]\npids = -1":                                 "limits.pids",
		"[limits]\npids = 1":                                  "limits.pids",
		"[limits]\nopen_files = 0":                            "limits.open_files",
		"[limits]\ncpus = nan":                                "limits.cpus",
		"[limits]\ndisk = \"1MiB\"":                           "limits.disk",
		"[limits]\nwall = \"-1s\"":                            "limits.wall",
		"[budget]\nwall = \"1ns\"":                            "budget.wall",
		"[budget]\ncalls = -3":                                "budget.calls",
		"[permission.network]\n\"a b\" = \"deny\"":            `permission.network."a b"`,
		"[permission.http]\n\"nothing\" = \"ask\"":            `permission.http."nothing"`,
		"[permission.http]\n\"GET a.example/%7e\" = \"deny\"": `permission.http."GET a.example/%7e"`,
		"[limits]\nmemoory = \"1GiB\"":                        "limits.memoory",
		"[budget]\ncalls = \"x\"":                             "budget.calls",
		"\"a\\u001b[2J\" = 1":                                 `a\x1b[2J`,
	} {
		p := readText(t, text)
		r := client.SessionCreate{Worktree: client.Worktree{Source: "/src"}}
		p.narrow(&r, false)
		if r.Worktree.Mode != "" || len(r.Mounts)+len(r.Env)+len(r.Permission)+len(r.Caches)+len(r.Delegates) > 0 || r.Image+r.Runtime+r.Network.Mode+r.Profile != "" ||
			r.AtMost != (client.Limits{}) || r.Budget != (client.Budget{}) {
			t.Errorf("%s: %+v", text, r)
		}
		if names != "" && (len(p.refused) != 1 || !strings.HasPrefix(p.refused[0], names+": ")) {
			t.Errorf("%s: it is said that %q was left out", text, p.refused)
		}
	}
	secret := filepath.Join(t.TempDir(), "secret")
	writeFile(t, secret, "root:secret-of-the-user", 0o600)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{secret, link, t.TempDir(), "/dev/zero", "/none"} {
		if p := readProject(name); len(p.refused) != 1 || !strings.HasPrefix(p.refused[0], "all of it: ") || strings.Contains(p.refused[0], "secret-of") {
			t.Errorf("%s: %q", name, p.refused)
		}
	}
	if p := readText(t, strings.Repeat("# long\n", maxProject)); len(p.refused) != 1 {
		t.Errorf("a long one: %q", p.refused)
	}
}

// taken checks that a daemon takes a session whatever a project says of it.
func taken(t *testing.T, text string) {
	t.Helper()
	p := readText(t, text)
	r := client.SessionCreate{Worktree: client.Worktree{Source: "/src"}}
	p.narrow(&r, true)
	full := client.Limits{CPUs: 1, Memory: 1 << 30, PIDs: 1000, Tmp: 1 << 20, OpenFiles: 1000, FileSize: 1 << 30, Disk: 1 << 30, Calls: 4, Output: 1 << 20, Wall: client.Duration(time.Hour)}
	notes, err := limits.Fill(&r.Limits, limits.Config{Default: full, AtMost: r.AtMost, StateDir: t.TempDir()})
	if err != nil {
		t.Errorf("%q: %v, %q", text, err, notes)
	}
	if _, err := policy.CheckRules("session", r.Permission); err != nil {
		t.Errorf("%q: %v", text, err)
	}
	if err := policy.CheckSpelling("session", r.Permission); err != nil {
		t.Errorf("%q: %v", text, err)
	}
	b := r.Budget
	if min(b.Calls, int64(b.CPU), int64(b.Wall), int64(b.Output)) < 0 || r.Worktree.Mode != "" && r.Worktree.Mode != client.WorktreeOverlay {
		t.Errorf("%q: %+v", text, r)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Errorf("%q: %v", text, err)
	}
	for _, why := range p.refused {
		if width(why) > 4*noteWidth || line(why) != why {
			t.Errorf("%q: refused by %q", text, why)
		}
	}
}

func FuzzProject(f *testing.F) {
	f.Add("mode = \"ro\"\ncaches = [\"go\"]\n[limits]\ncpus = 1\n[budget]\nwall = \"1h\"\n[network]\nmode = \"none\"\n[permission.http]\n\"GET a.example/*\" = \"deny\"\n")
	f.Fuzz(taken)
}

// TestProjectRandom: keys that there are with values that are odd, also many of them.
func TestProjectRandom(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	values := []string{
		"-1", "0", "1", "1e300", "nan", "inf", "-inf", "9223372036854775807", "-9223372036854775808", "true", "1979-05-27", "[]", "{}", `["a", 1]`, `""`,
		`"overlay"`, `"ro"`, `"none"`, `"deny"`, `"ask"`, `"allow"`, `"1ns"`, `"-5h"`, `"100000d"`, `"64Ki"`, `"0.1B"`, `"1e18TiB"`, `"NaN"`, `"\u0000\u001b[2J\u202e"`, `"` + strings.Repeat("x", 3000) + `"`,
	}
	patterns := []string{`"*"`, `"*.a.example"`, `"a b"`, `""`, `"\u0000"`, `"GET https://a.example/*"`, `"GET http://a.example/%7E"`, `"[::1]:80"`, `"10.0.0.0/8"`, `"a:99999"`, `"` + strings.Repeat("a.", 900) + `"`}
	tables := map[string][]string{
		"limits": limitNames(), "budget": {"calls", "cpu", "wall", "output"}, "network": {"mode", "learn", `"\n"`},
		"permission.network": patterns, "permission.http": patterns, "permission.bash": patterns, `"a\u0007"`: {"x"},
	}
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	for range 300 {
		var text strings.Builder
		for _, key := range []string{"mode", "caches", "image", `"\u001b"`} {
			if r.IntN(2) == 0 {
				fmt.Fprintf(&text, "%s = %s\n", key, pick(values))
			}
		}
		for _, table := range slices.Sorted(maps.Keys(tables)) {
			fmt.Fprintf(&text, "[%s]\n", table)
			for _, key := range tables[table] {
				if r.IntN(2) == 0 {
					fmt.Fprintf(&text, "%s = %s\n", key, pick(values))
				}
			}
		}
		if p := readText(t, text.String()); len(p.refused) > 0 && strings.HasPrefix(p.refused[0], "all of it") {
			t.Fatalf("%q in\n%s", p.refused, text.String())
		}
		taken(t, text.String())
	}
	var many strings.Builder
	many.WriteString("[permission.network]\n")
	for i := range 2000 {
		fmt.Fprintf(&many, "\"h%d.example\" = \"deny\"\n", i)
	}
	taken(t, many.String())
}
