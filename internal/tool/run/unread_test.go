package run

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tool/run/readrule"
)

// guarded is env with rules: .env asks, all below secret is denied.
func guarded(t *testing.T, env *Env) *Env {
	t.Helper()
	rules, err := json.Marshal(map[string]any{"read_rules": readrule.Rules{
		Worktree: env.Worktree,
		List: []readrule.Rule{
			{Patterns: []string{"*"}, Action: "allow", Source: "default"},
			{Patterns: []string{"**/.env", ".env"}, Action: "ask", Source: "default"},
			{Patterns: []string{"secret/*", "*.key"}, Action: "deny", Source: "config.toml:8"},
		},
	}})
	must(t, err)
	with := *env
	with.Settings = rules
	return &with
}

var guardedTree = map[string]string{
	"a.txt": "TOKEN=open\n", "sub/b.txt": "TOKEN=open too\n", ".env": "TOKEN=s3cret\n", "sub/.env": "nothing\n",
	"secret/one": "TOKEN=s3cret\n", "secret/deep/two": "nothing\n", "sub/x.key": "\x00TOKEN=s3cret\n",
	".gitignore": "ignored\n", "ignored/.env": "TOKEN=s3cret\n", "ignored/x.key": "TOKEN=s3cret\n",
}

func TestReadRulesBindGrep(t *testing.T) { withRipgreps(t, testReadRulesBindGrep) }

func testReadRulesBindGrep(t *testing.T, env *Env) {
	tree(t, env.Worktree, guardedTree)
	env = guarded(t, env)
	const denied = "(3 files not searched: read denies them (config.toml:8).)"
	for _, tt := range []struct {
		in    map[string]any
		count int // files that are not shown
		says  []string
	}{
		{map[string]any{"pattern": "TOKEN"}, 5, []string{"Found 2 matches", denied, "(2 files not searched: to read them is asked about (default): W/.env, W/sub/.env."}},
		{map[string]any{"pattern": "TOKEN", "output_mode": "files"}, 5, []string{"Found 2 files", denied}},
		{map[string]any{"pattern": "TOKEN", "output_mode": "count"}, 5, []string{"Found 2 files", denied}},
		{map[string]any{"pattern": "TOKEN", "include": "*.key"}, 1, []string{"No matches", "(1 file not searched: read denies it (config.toml:8).)"}},
		{map[string]any{"pattern": "TOKEN", "path": "secret"}, 2, []string{"No matches", "(2 files not searched: read denies them"}},
		{map[string]any{"pattern": "TOKEN", "path": "secret/one"}, 1, []string{"No matches", "(1 file not searched: read denies it"}},
		{map[string]any{"pattern": "TOKEN", "path": ".env"}, 1, []string{"No matches", "(1 file not searched: to read it is asked about (default): W/.env. Call read to ask.)"}},
		{map[string]any{"pattern": "TOKEN", "path": "ignored"}, 2, []string{"No matches"}},
		{map[string]any{"pattern": "TOKEN", "include": "*.txt"}, 0, []string{"Found 2 matches"}},
	} {
		text, r := answer(t, env, Grep{}, tt.in)
		for _, s := range tt.says {
			if !strings.Contains(text, s) {
				t.Errorf("%v: no %q in\n%s", tt.in, s, text)
			}
		}
		if n, _ := r.Metadata["left_out"].(int); n != tt.count || strings.Contains(text, "s3cret") || strings.Contains(text, "binary") {
			t.Errorf("%v: %d are not shown, want %d:\n%s", tt.in, n, tt.count, text)
		}
	}
	// Whether a file that must not be read has a match cannot be found out.
	hit, _ := answer(t, env, Grep{}, map[string]any{"pattern": "s3cret"})
	miss, _ := answer(t, env, Grep{}, map[string]any{"pattern": "no such text"})
	if hit != miss {
		t.Errorf("the answers differ:\n%s\n%s", hit, miss)
	}
	// An answer that ends early has not looked at all files.
	if text, _ := answer(t, env, Grep{}, map[string]any{"pattern": "TOKEN", "limit": 1}); strings.Contains(text, "s3cret") ||
		strings.Contains(text, "not searched") && !strings.Contains(text, "(at least ") && !strings.Contains(text, denied) {
		t.Errorf("cut:\n%s", text)
	}
}

func TestReadRulesBindNames(t *testing.T) { withRipgreps(t, testReadRulesBindNames) }

// What read denies is in no list; what it asks about is, or nobody could ask for it.
func testReadRulesBindNames(t *testing.T, env *Env) {
	tree(t, env.Worktree, guardedTree)
	env = guarded(t, env)
	for _, tt := range []struct {
		tool        Tool
		in          map[string]any
		names, note string
	}{
		{Glob{}, map[string]any{"pattern": "**/*"}, ".env .gitignore a.txt sub/.env sub/b.txt", "(3 files left out: read denies them (config.toml:8).)"},
		{Glob{}, map[string]any{"pattern": "*.key"}, "", "(1 file left out: read denies it (config.toml:8).)"},
		{Glob{}, map[string]any{"pattern": "*.txt"}, "a.txt sub/b.txt", ""},
		{List{}, map[string]any{}, ".env .gitignore a.txt b.txt", "(3 entries left out: read denies them"},
		{Read{}, map[string]any{"file_path": "sub"}, ".env b.txt", "(1 entry left out: read denies it (config.toml:8).)"},
		{Read{}, map[string]any{"file_path": "."}, ".env .gitignore a.txt", ""},
	} {
		text, _ := answer(t, env, tt.tool, tt.in)
		var got []string
		for l := range strings.Lines(text) {
			l = strings.TrimPrefix(strings.TrimSpace(l), "W/")
			if strings.Contains(l, ".") && !strings.ContainsAny(l, "( ") && !strings.HasSuffix(l, "/") {
				got = append(got, l)
			}
		}
		slices.Sort(got)
		names := strings.Join(slices.Compact(got), " ")
		if names != tt.names || !strings.Contains(text, tt.note) || tt.note == "" && strings.Contains(text, "left out") {
			t.Errorf("%s %v: %q, want %q with %q:\n%s", tt.tool.Name(), tt.in, names, tt.names, tt.note, text)
		}
	}
}
