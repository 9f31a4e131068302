package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

func readText(t *testing.T, text string) (*project, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "toold.project.toml")
	writeFile(t, name, text, 0o600)
	return readProject(name)
}

// TestProject: what a project may say narrows a session, and never the other way round.
func TestProject(t *testing.T) {
	p, err := readText(t, `
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
	if err != nil || len(p.refused) > 0 {
		t.Fatal(err, p)
	}
	r := client.SessionCreate{
		Worktree: client.Worktree{Source: "/src"}, Caches: []client.CacheUse{{Name: "npm"}}, Limits: client.Limits{Memory: 2 << 30},
		Budget: client.Budget{Calls: 5, Output: 7}, Network: client.Network{Mode: client.NetworkRules},
		Permission: []client.RuleOf{{Permission: "network", Pattern: "evil.example", Action: "deny"}},
	}
	p.narrow(&r)
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
	if p.narrow(&r); r.Worktree.Mode != client.WorktreeBind || len(p.refused) != 1 {
		t.Errorf("a flag was overruled, or it is not said: %+v, %q", r.Worktree, p.refused)
	}
}

// TestProjectHostile: what a project must not say changes nothing, and is named.
func TestProjectHostile(t *testing.T) {
	for text, names := range map[string]string{
		`mode = "bind"`:                           "mode",
		`mode = "empty"`:                          "mode",
		`mode = ["ro"]`:                           "mode",
		"mounts = [\"/:/host\"]":                  "mounts",
		"[[mounts]]\nsource = \"/\"":              "mounts",
		"[env]\nLD_PRELOAD = \"x\"":               "env",
		`image = "evil"`:                          "image",
		`runtime = "runc"`:                        "runtime",
		`delegates = ["bash"]`:                    "delegates",
		"[approvals]\napprover = \"any\"":         "approvals",
		`profile = "admin"`:                       "profile",
		`network = "rules"`:                       "network",
		`caches = "go"`:                           "caches",
		"[network]\nmode = \"rules\"":             "network.mode",
		"[network]\nlearn = true":                 "network.learn",
		"[permission.network]\n\"*\" = \"allow\"": `permission.network."*"`,
		"[permission.network]\n\"*\" = 3":         `permission.network."*"`,
		"[permission.bash]\n\"*\" = \"deny\"":     "permission.bash",
		"[permission]\nhttp = \"allow\"":          `permission.http."*"`,
		"[limits]\nmemory = \"lots\"":             "limits.memory",
		"[limits]\nmemoory = \"1GiB\"":            "limits.memoory",
		"[budget]\ncalls = \"x\"":                 "budget.calls",
		"\"a\\u001b[2J\" = 1":                     `a\x1b[2J`,
	} {
		p, err := readText(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		r := client.SessionCreate{Worktree: client.Worktree{Source: "/src"}}
		p.narrow(&r)
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
		if _, err := readProject(name); exitCode(err) != exitUsage || strings.Contains(err.Error(), "secret-of") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readText(t, strings.Repeat("# long\n", maxProject)); exitCode(err) != exitUsage {
		t.Errorf("a long one: %v", err)
	}
}
