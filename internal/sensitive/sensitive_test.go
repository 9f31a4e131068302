package sensitive

import (
	"slices"
	"strings"
	"testing"
)

func TestPath(t *testing.T) {
	for path, want := range map[string]Kind{
		"main.go": Plain, "a/b": Plain, "git": Plain, "a.git": Plain, ".gitignore": Plain, "git~": Plain, "~1": Plain,
		".git": OnSight, ".git/hooks/pre-commit": OnSight, "a/b/.git/config": OnSight, ".GIT/config": OnSight,
		".git./x": OnSight, ".git ": OnSight, ".git . ./x": OnSight, "git~1/x": OnSight, "a/GIT~12": OnSight, "git~1.": OnSight,
		".git::$INDEX_ALLOCATION/x": OnSight, ".g\u200cit/x": OnSight, "\ufeff.git": OnSight, ".gıt": Plain,
		".gitattributes": OnSight, "a/.gitattributes": OnSight, "gitatt~1": OnSight, "GI7D29~9": OnSight,
		".envrc": OnSight, "x/.envrc": OnSight, "x/.VSCode/tasks.json": OnSight, "vscode~1/tasks.json": OnSight, "devcon~1": OnSight,
		".gitmodules": OnSight, "gitmod~4": OnSight, "gi7eba~1": OnSight, "a/gi7eba~1": OnSight, "a/.gitmodules": OnSight,
		".github/workflows/x.yml": OnSight, "a/.github/x": OnSight, ".gitlab-ci.yml": OnSight, "gitlab~1.yml": OnSight, "gitlab~1": OnSight,
		".hu\u017fky":             OnSight, // a long s
		".pre-commit-config.yaml": OnSight, "pre-co~1.yam": OnSight,
		"Makefile": Build, "web/package.json": Build, "web/package.json/x": Plain, "Makefile/.git": OnSight, "\u212aefile": Plain, "ma\u212aefile": Build,
		".claude/settings.json": OnSight, "a/.claude/settings.local.json": OnSight, ".mcp.json": OnSight, "a/.mcp.json": OnSight,
		".cursor/mcp.json": OnSight, "a/.codex/config.toml": OnSight, ".gemini/settings.json": OnSight, ".qwen/settings.json": OnSight,
		"opencode.json": OnSight, "a/OpenCode.jsonc": OnSight, "openco~1.jso": OnSight, ".opencode/plugin/x.js": OnSight,
		"web/.husky/pre-commit": OnSight, ".cargo/config.toml": OnSight, "a/lefthook.yml": OnSight, "lefthook-local.yml": OnSight,
		"mise.toml": OnSight, "a/.config/mise/config.toml": OnSight, ".zed/tasks.json": OnSight, "x.code-workspace": OnSight, "a/X.Code-Workspace": OnSight,
		".amazonq/mcp.json": OnSight, "a/.openhands/setup.sh": OnSight, ".pi/settings.json": OnSight, "hk.pkl": OnSight, ".Rprofile": OnSight, ".rprofile/x": OnSight,
		".cursorrules": OnSight, "a/.windsurfrules": OnSight, ".goosehints": OnSight, "a/.pdbrc": OnSight, ".lazy.lua": OnSight, "LAZY~1.LUA": OnSight,
		".perldb": OnSight, "x/.iex.exs": OnSight, ".Renviron": OnSight, "jupyter_server_config.py": OnSight, ".shadowenv.d/x": OnSight, "_vimrc": OnSight,
		"pnpm-workspace.yaml": Build, "startup.mm": Plain, "cursorrules": Plain, "lazy.lua": Plain,
		"eslint.config.mjs": Build, "web/Vite.Config.ts": Build, ".prettierrc.cjs": Build, ".huskyrc.js": OnSight, "rc.json": Plain, "config.js": Plain, "a.config.js.txt": Plain,
		".mvn/jvm.config": Build, "Directory.Build.props": Build,
		"mise": Plain, "claude": Plain, "config": Plain, "code-workspace": Plain, "AGENTS.md": Plain, "a/flake.nix": Build,
		"HEAD": Part, "a/refs": Part, "": Plain, ".": Plain, "caf\xe9": Plain, ".git\xff": Plain,
	} {
		if got := Path(path); got != want {
			t.Errorf("%q: %d, want %d", path, got, want)
		}
	}
}

func TestRepository(t *testing.T) {
	for parts, want := range map[string]bool{
		"": false, "head": false, "head objects": false, "objects refs": false, "head objects refs": true, "head commondir": true, "commondir": false,
	} {
		has := make(map[string]bool)
		for p := range strings.FieldsSeq(parts) {
			has[p] = true
		}
		if Repository(has) != want {
			t.Errorf("%q: %v", parts, !want)
		}
	}
}

// Every name of the table is found as it is spelt, and stands in it once.
func TestTop(t *testing.T) {
	seen := make(map[string]bool)
	for _, name := range slices.Concat(Top(), builds) {
		if seen[name] || name != strings.ToLower(name) {
			t.Errorf("%q is there twice, or not in lower case", name)
		}
		seen[name] = true
	}
	for _, name := range Top() {
		if Of(name) != OnSight {
			t.Errorf("%q is not found", name)
		}
	}
}
