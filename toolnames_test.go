package toold_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tool"
)

// nameExcepted are files, and directories, in which such a string is not the name of a tool.
var nameExcepted = map[string]string{
	"internal/tool/access.go":              "the permissions, all of them in one place",
	"internal/tool/grep.go":                "what another system calls a field",
	"internal/tool/shell/":                 "programs that commands name",
	"internal/tool/run/root/":              "system calls, in errors",
	"internal/agent/inside/exec/shells.go": "the program of a shell",
	"internal/config/":                     "keys of config.toml",
	"internal/shipped/":                    "a client: the calls that a trial makes",
	"internal/sandbox/sandboxtest/":        "a suite, which calls tools as a client does",
	"cmd/toold/settings.go":                "keys of config.toml, made settings",
	"cmd/toolctl/":                         "a client, and its own commands",
}

// TestToolNames: a tool can be added, renamed or replaced without a search for those who
// ask for it by name, so that its name stands only in its own files.
func TestToolNames(t *testing.T) {
	own := make(map[string]bool) // file → it is a tool's
	names := make(map[string]bool)
	for _, d := range tool.NewRegistry().All() {
		names[d.Name] = true
		for _, dir := range []string{"internal/tool/", "internal/tool/run/"} {
			own[dir+d.Name+".go "+d.Name] = true
		}
	}
	used := make(map[string]bool)
	excepted := func(path string) bool {
		for prefix := range nameExcepted {
			if strings.HasPrefix(path, prefix) {
				used[prefix] = true
				return true
			}
		}
		return false
	}
	sources(t, func(path string, src []byte) {
		ours := strings.HasPrefix(path, "internal/") || strings.HasPrefix(path, "cmd/")
		if !ours || strings.HasSuffix(path, "_test.go") {
			return
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			name, err := strconv.Unquote(lit.Value)
			if err == nil && names[name] && !own[path+" "+name] && !excepted(path) {
				t.Errorf("%s: the tool %s is named outside its files: ask for a property of it or of its input", set.Position(lit.Pos()), name)
			}
			return true
		})
	})
	for prefix := range nameExcepted {
		if !used[prefix] {
			t.Errorf("%s needs no exception any more", prefix)
		}
	}
}

// TestInputsAreRead: between the server and the agent the JSON of an input is judged,
// hashed, stored and sent, but read by package tool alone, once.
func TestInputsAreRead(t *testing.T) {
	reads := map[string]bool{"Unmarshal": true, "NewDecoder": true, "NewReader": true, "Read": true, "Decode": true}
	sources(t, func(path string, src []byte) {
		among := []string{"internal/session/", "internal/judge/", "internal/call/", "internal/hook/", "internal/policy/", "internal/audit/"}
		if strings.HasSuffix(path, "_test.go") || !slices.ContainsFunc(among, func(dir string) bool { return strings.HasPrefix(path, dir) }) {
			return
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !reads[fun.Sel.Name] {
				return true
			}
			for _, arg := range call.Args {
				if sel, ok := arg.(*ast.SelectorExpr); ok && (sel.Sel.Name == "JSON" || sel.Sel.Name == "Input") {
					t.Errorf("%s: an input is read from its JSON: ask the tool.Input beside it", set.Position(call.Pos()))
				}
			}
			return true
		})
	})
}
